//! A server that saves from a child of its own process, as some do, and serves on meanwhile:
//! `cargo run --example save_from_child -- [DIRECTORY]`.

use std::fs::{File, rename};
use std::io::{BufWriter, Write};
use std::path::Path;

use everhash::{Db, ReceivedPairs};
// The system's `fork`, behind a safe function: it refuses a process with several threads, whose
// child may do little. `libc::fork` will do.
use everhash_pmem::in_forked_child;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let saved = run(directory.as_ref())?;
    println!("the child has saved {saved} pairs, some perhaps twice");
    Ok(())
}

/// Serves, saves, and serves on; returns how many pairs were sent. One that is written meanwhile
/// may come twice, with the value of the moment.
pub fn run(directory: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    // One thread: what a thread of the database would do is done between requests.
    let options = Db::options().background(false).create_if_missing(true);
    let db = options.open(directory.join("server.ehdb"))?;
    for number in 0..10_000 {
        db.put(format!("key {number}"), "before")?;
    }
    // Before the fork; from its instant on writes do not show.
    let mut handover = Some(db.snapshot()?.hand_over()?);
    let target = directory.join("saved.txt");
    let child = in_forked_child(|| match handover.take() {
        Some(handover) => u8::from(save(handover.receive(), &target).is_err()),
        None => 2,
    })?;
    let handover = handover.take().ok_or("only the child has taken it")?;
    let sending = handover.send()?;
    for number in 0..10_000 {
        db.put(format!("key {number}"), "after")?;
    }
    let sent = sending.wait()?;
    if child.wait()? != Some(0) {
        return Err("the child could not save; what was saved before is still there".into());
    }
    db.close()?;
    Ok(sent)
}

/// Writes all pairs to a file that appears when it is complete: in the child.
fn save(pairs: ReceivedPairs, target: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let unfinished = target.with_extension("unfinished");
    let mut out = BufWriter::new(File::create(&unfinished)?);
    for pair in pairs {
        // An error here says that the parent has ended, or could not send everything.
        let (key, value) = pair?;
        out.write_all(&[&key[..], b"\t", &value[..], b"\n"].concat())?;
    }
    out.into_inner()?.sync_all()?;
    rename(unfinished, target)?;
    Ok(())
}
