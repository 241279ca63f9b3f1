//! Lines of a file, numbered, put in batches: `cargo run --example batch_import -- LINES [FILE]`.

use std::io::BufRead;

use everhash::{Db, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let lines = arguments.next().ok_or("which file has the lines?")?;
    let path = arguments.next().unwrap_or_else(|| "lines.ehdb".into());
    let count = run(std::io::BufReader::new(std::fs::File::open(lines)?), path.as_ref())?;
    println!("{count} lines");
    Ok(())
}

/// Puts every line under its number, a thousand in one call; returns how many there were.
pub fn run(lines: impl BufRead, path: &std::path::Path) -> Result<u64, Box<dyn std::error::Error>> {
    let db = Db::open_or_create(path)?;
    let mut batch = WriteBatch::new();
    let mut count = 0u64;
    for line in lines.lines() {
        count += 1;
        batch.put(count.to_be_bytes(), line?);
        if batch.len() == 1000 {
            db.write(&batch)?;
            batch.clear();
        }
    }
    db.write(&batch)?;
    db.close()?;
    Ok(count)
}
