//! A copy beside writes, and what a reopened database still has:
//! `cargo run --example backup_and_reopen -- [DIRECTORY]`.

use std::path::Path;

use everhash::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let (copied, kept) = run(directory.as_ref())?;
    println!("{copied} pairs in the copy, {kept} in the database");
    Ok(())
}

/// Writes, copies, writes on, and goes without a close; returns the pairs of both.
pub fn run(directory: &Path) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let (path, copy) = (directory.join("orders.ehdb"), directory.join("orders-copy.ehdb"));
    let db = Db::create(&path)?;
    for number in 0..1000u32 {
        db.put(number.to_be_bytes(), "paid")?;
    }
    // A snapshot of one moment: neither readers nor writers wait for the copy.
    let copied = db.backup(&copy, &Db::options())?;
    db.put("the order after the copy", "open")?;
    // Makes it durable now and not within five seconds.
    db.sync()?;
    drop(db);
    let db = Db::open(&path)?;
    assert!(db.contains_key("the order after the copy")?);
    assert!(!Db::open_read_only(&copy)?.contains_key("the order after the copy")?);
    db.check()?;
    Ok((copied, db.len()?))
}
