//! Several tables in one file: users, the names by which they are found, and a table for every
//! month that is dropped as a whole. `cargo run --example several_tables -- [FILE]`.

use everhash::{Db, Table, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "several.ehdb".into());
    let db = Db::open_or_create(path)?;
    register(&db, 7, "ann")?;
    register(&db, 8, "bob")?;
    println!("bob is user {:?}", find(&db, "bob")?);
    for month in ["2026-01", "2026-02", "2026-03"] {
        log(&db, month, "ann came")?;
    }
    keep_last(&db, 2)?;
    println!("tables: {:?}", db.tables()?);
    Ok(db.close()?)
}

/// Adds a user to the table of users, and to that of names: with one call, and with the engine
/// `reef` both or none, whatever happens.
pub fn register(db: &Db, number: u32, name: &str) -> everhash::Result<()> {
    let (users, names) = (db.table_or_create("users")?, db.table_or_create("names")?);
    // As `Table<_, u32>` stores it: every integer takes eight bytes, little-endian.
    let key = u64::from(number).to_le_bytes();
    let mut batch = WriteBatch::new();
    batch.put_in(&users, key, name).put_in(&names, name, key);
    db.write(&batch)
}

/// Returns the number of a user; tables can have types.
pub fn find(db: &Db, name: &str) -> everhash::Result<Option<u32>> {
    let names: Table<String, u32> = Table::of(db.table("names")?)?;
    names.get(&name.to_owned())
}

/// Writes a line into the log of a month.
pub fn log(db: &Db, month: &str, line: &str) -> everhash::Result<()> {
    let log = db.table_or_create(&format!("log {month}"))?;
    // One thread writes, and nothing is removed: else the length would be no new key.
    log.put(log.len()?.to_be_bytes(), line)?;
    Ok(())
}

/// Drops the logs of all months but the last `count`, each in O(1); returns how many.
pub fn keep_last(db: &Db, count: usize) -> everhash::Result<usize> {
    let logs: Vec<_> = db.tables()?.into_iter().filter(|name| name.starts_with("log ")).collect();
    let old = logs.len().saturating_sub(count);
    for name in &logs[..old] {
        db.drop_table(name)?;
    }
    Ok(old)
}
