//! A program that is killed while it writes, and what the next one finds:
//! `cargo run --example crash_and_reopen -- [FILE]`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use everhash::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, path] = &arguments[..]
        && mode == "write"
    {
        return write(path.as_ref());
    }
    let path = arguments.first().map_or("crashed.ehdb", String::as_str);
    let mut writer = Command::new(std::env::current_exe()?);
    let (said, found) = run(path.as_ref(), writer.args(["write", path]), 1000)?;
    println!("the killed program said that it had stored {said} pairs; {found} are there");
    Ok(())
}

/// Stores one pair after the other, and says so, until somebody ends the process.
pub fn write(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open_or_create(path)?;
    for number in 0u64.. {
        db.put(number.to_be_bytes(), b"stored")?;
        // Only now is anybody told.
        writeln!(std::io::stdout(), "stored {number}")?;
    }
    Ok(())
}

/// Runs a process that does `write`, kills it when it has said `count` pairs, and opens the
/// database; returns how many it said, and how many are there.
pub fn run(
    path: &Path,
    writer: &mut Command,
    count: u64,
) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let mut child = writer.stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it was piped"));
    let mut said = 0;
    for line in output.lines() {
        // The last line may be cut off: the process was killed.
        let Some(number) = line?.strip_prefix("stored ").and_then(|text| text.parse().ok()) else {
            continue;
        };
        let number: u64 = number;
        said = said.max(number + 1);
        if said == count {
            // SIGKILL: nothing of the program runs any more.
            child.kill()?;
        }
    }
    child.wait()?;
    let db = Db::open(path)?;
    assert!(db.info().recovered, "nobody has closed it");
    for number in 0..said {
        assert!(db.contains_key(number.to_be_bytes())?, "what was said is there");
    }
    let found = db.len()?;
    db.close()?;
    Ok((said, found))
}
