//! The programs of the README and of the guide: they stand here as they are printed there.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::time::Duration;

use everhash::{Change, Db, ErrorKind, Swap, Table};

fn readme() -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open_or_create("pairs.ehdb")?;
    db.put("tree", "oak")?; // survives a killed process; and power loss, after 5 s or a sync
    assert_eq!(db.get("tree")?.as_deref(), Some(&b"oak"[..]));
    db.close()?;
    Ok(())
}

fn first() -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open_or_create("pairs.ehdb")?;
    db.put("tree", "oak")?;
    assert_eq!(db.get("tree")?.as_deref(), Some(&b"oak"[..]));
    assert!(db.contains_key("tree")?);
    assert_eq!(db.take("tree")?.as_deref(), Some(&b"oak"[..]));
    assert!(db.is_empty()?);
    db.close()?; // dropping the last handle does it, too; this reports failures
    Ok(())
}

fn count_visit(db: &Db) -> everhash::Result<()> {
    // No other write to the key comes between the look and the change.
    let visits = db.modify("visits", |value| {
        let count = value.map_or(0, |value| value[0]) + 1;
        (Change::Put(vec![count]), count)
    })?;
    assert_eq!(visits, 1);
    assert_eq!(db.compare_and_swap("visits", Some(&[1]), Some(&[7]))?, Swap::Done);
    assert!(!db.put_if_absent("visits", [0])?);
    Ok(())
}

fn keep_scores() -> everhash::Result<()> {
    // Integers lie in the table itself; `get`, `put`, `update` and `remove` allocate nothing.
    let scores: Table<u64, u64> = Table::create(Db::options(), "scores.ehdb")?;
    scores.put(&17, &100)?;
    assert_eq!(scores.get(&17)?, Some(100));
    Ok(())
}

fn keep_birds(db: &Db) -> everhash::Result<()> {
    let birds = db.table_or_create("birds")?;
    birds.put("owl", "night")?;
    assert!(!db.contains_key("owl")?); // the default table is another one
    assert_eq!(db.tables()?, ["birds"]);
    assert!(db.drop_table("birds")?); // at once, however many pairs there are
    Ok(())
}

fn keep_sessions(db: &Db) -> everhash::Result<()> {
    let sessions = db.expiring_table_or_create("sessions")?;
    sessions.put("8f3a", "ann", Duration::from_secs(1800))?;
    assert!(sessions.contains_key("8f3a")?);
    sessions.set_expiry("8f3a", Duration::ZERO)?;
    assert!(!sessions.contains_key("8f3a")?);
    Ok(())
}

fn look_back(db: &Db) -> everhash::Result<()> {
    db.put("tree", "oak")?;
    let snapshot = db.snapshot()?;
    db.put("tree", "elm")?;
    assert_eq!(snapshot.get("tree")?.as_deref(), Some(&b"oak"[..]));
    db.checkpoint("copy.ehdb")?; // a database of its own, of one moment
    Ok(())
}

fn open_what_is_there() -> everhash::Result<()> {
    match Db::open("none.ehdb") {
        Err(error) if error.kind() == ErrorKind::NotFound => {} // make one
        Err(error) if error.kind() == ErrorKind::Damaged => {}  // `Db::salvage`, or a backup
        other => drop(other?),
    }
    Ok(())
}

fn print_figures() -> everhash::Result<()> {
    let db = Db::options().count_calls(true).create("watched.ehdb")?;
    db.put("key", "value")?;
    let metrics = db.metrics();
    assert_eq!(metrics.stats.as_ref().map(|stats| stats.items), Some(1));
    println!("{metrics}"); // what Prometheus reads
    Ok(())
}

/// Returns the functions of the programs of a page: what stands behind their imports.
fn programs(page: &str) -> Vec<String> {
    let blocks = page.split("```rust").skip(1).map(|rest| rest.split("```").next().unwrap());
    let blocks = blocks.map(|block| block.split_once('\n').unwrap().1);
    blocks.map(|block| block[block.find("fn ").unwrap()..].to_owned()).collect()
}

#[test]
fn the_programs_of_the_readme_and_of_the_guide_do_what_they_say() {
    // Fails if one fails an assertion of its own.
    let directory = tempfile::tempdir().unwrap();
    // No other test of this program opens a file.
    std::env::set_current_dir(&directory).unwrap();
    readme().unwrap();
    std::fs::remove_file("pairs.ehdb").unwrap();
    first().unwrap();
    std::fs::remove_file("pairs.ehdb").unwrap();
    let db = Db::create("pairs.ehdb").unwrap();
    for program in [count_visit, keep_birds, keep_sessions, look_back] {
        program(&db).unwrap();
    }
    for program in [keep_scores, open_what_is_there, print_figures] {
        program().unwrap();
    }
}

#[test]
fn the_readme_and_the_guide_show_these_programs() {
    // Fails if a page were changed and not the program, or the other way round: then nobody would
    // know that what is printed compiles.
    let source = include_str!("guide.rs");
    let readme_page = include_str!("../../../README.md");
    let guide_page = include_str!("../../../docs/guide.md");
    for (page, main, count) in [(readme_page, "readme", 1), (guide_page, "first", 8)] {
        let programs = programs(page);
        assert_eq!(programs.len(), count);
        for program in programs {
            let named = program.replace("fn main()", &format!("fn {main}()"));
            assert!(source.contains(&named), "another program is printed: {program}");
        }
    }
}
