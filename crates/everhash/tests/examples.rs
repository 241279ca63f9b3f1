//! The examples do what they say.

#![allow(dead_code, reason = "their own main functions are not called")]
#![allow(clippy::unwrap_used, reason = "this is a test, though examples are not")]

use std::time::Duration;

#[path = "../examples/backup_and_reopen.rs"]
mod backup_and_reopen;
#[path = "../examples/batch_import.rs"]
mod batch_import;
#[path = "../examples/blob_cache.rs"]
mod blob_cache;
#[path = "../examples/counters.rs"]
mod counters;
#[path = "../examples/crash_and_reopen.rs"]
mod crash_and_reopen;
#[path = "../examples/seen_urls.rs"]
mod seen_urls;
#[path = "../examples/session_cache.rs"]
mod session_cache;
#[path = "../examples/several_tables.rs"]
mod several_tables;
#[path = "../examples/tenants.rs"]
mod tenants;

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    (directory, path)
}

#[test]
fn counters_lose_no_visit() {
    // Fails if two threads that count at once count one visit.
    let (_directory, path) = place();
    assert_eq!(counters::run(&path).unwrap(), 40_000);
    assert_eq!(counters::run(&path).unwrap(), 80_000);
}

#[test]
fn each_url_is_new_once() {
    // Fails if a URL were new to two threads, or to none.
    let (_directory, path) = place();
    assert_eq!(seen_urls::run(&path, 20_000).unwrap(), 20_000);
    assert_eq!(seen_urls::run(&path, 20_100).unwrap(), 100);
}

#[test]
fn a_cache_hits_and_stays_below_its_limit() {
    // Fails if the cache never hit, or grew without a bound.
    let (_directory, path) = place();
    let (hits, bytes) = blob_cache::run(&path, 100).unwrap();
    assert!(hits > 30 && hits < 100, "{hits}");
    assert!(bytes > 0 && bytes <= 32 << 20, "{bytes}");
}

#[test]
fn sessions_end() {
    // Fails if a session lived on after its time, or its use did not prolong it.
    let (_directory, path) = place();
    let db = everhash::Db::create(path).unwrap();
    let sessions = db.expiring_table_or_create("sessions").unwrap();
    sessions.put("a", "ann", Duration::from_millis(1)).unwrap();
    sessions.put("b", "bob", Duration::from_secs(60)).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(session_cache::user(&sessions, "a").unwrap(), None);
    assert_eq!(session_cache::user(&sessions, "b").unwrap().as_deref(), Some("bob"));
    let everhash::Expiry::At(end) = sessions.expiry("b").unwrap().unwrap() else { panic!() };
    assert!(end > std::time::SystemTime::now() + session_cache::LIFE / 2, "it was prolonged");
    let attempts = db.expiring_table_or_create("attempts").unwrap();
    let admitted = (0..8).filter(|_| session_cache::may_try(&attempts, "ann").unwrap()).count();
    assert_eq!(admitted, 5);
}

#[test]
fn lines_come_in_whole() {
    // Fails if the last, partly filled batch were left out.
    let (_directory, path) = place();
    let lines: String = (0..2500).map(|number| format!("line {number}\n")).collect();
    assert_eq!(batch_import::run(lines.as_bytes(), &path).unwrap(), 2500);
    let db = everhash::Db::open(path).unwrap();
    assert_eq!(db.get(2500u64.to_be_bytes()).unwrap().unwrap(), b"line 2499");
}

#[test]
fn a_copy_is_of_one_moment_and_nothing_is_lost() {
    // Fails if the copy had the order after it, or the database lost one.
    let (directory, _) = place();
    assert_eq!(backup_and_reopen::run(directory.path()).unwrap(), (1000, 1001));
}

#[test]
fn a_killed_writer_has_stored_what_it_said() {
    // The process that is killed is this test again, which finds its database here.
    const DATABASE: &str = "EVERHASH_EXAMPLE_DATABASE";
    if let Some(path) = std::env::var_os(DATABASE) {
        return crash_and_reopen::write(path.as_ref()).unwrap();
    }
    let (_directory, path) = place();
    let mut writer = std::process::Command::new(std::env::current_exe().unwrap());
    writer.args(["--exact", "a_killed_writer_has_stored_what_it_said", "--nocapture"]);
    writer.env(DATABASE, &path);
    let (said, found) = crash_and_reopen::run(&path, &mut writer, 500).unwrap();
    // The one that was being stored may be there, too.
    assert!(said >= 500 && (said..=said + 1).contains(&found), "{said} said, {found} found");
}

#[test]
fn tenants_see_their_own_pairs_and_go_as_a_whole() {
    // Fails if a tenant saw another one's pairs, or a name led out of the folder.
    let (directory, _) = place();
    let tenants = tenants::Tenants::new(directory.path());
    for name in ["ann", "bob", "../eve"] {
        tenants.of(name).unwrap().put("name", name).unwrap();
    }
    assert_eq!(tenants.open_count(), 3);
    assert_eq!(tenants.of("../eve").unwrap().get("name").unwrap().unwrap(), b"../eve");
    assert_eq!(directory.path().read_dir().unwrap().count(), 3);
    assert!(tenants.drop_tenant("bob").unwrap());
    assert!(!tenants.drop_tenant("bob").unwrap());
    assert!(!tenants.of("bob").unwrap().contains_key("name").unwrap());
    assert!(tenants.of("ann").unwrap().contains_key("name").unwrap());
}

#[test]
fn tables_of_one_file_are_apart_and_go_one_by_one() {
    // Fails if a pair were seen in another table, or a drop took two tables.
    let (_directory, path) = place();
    let db = everhash::Db::create(&path).unwrap();
    several_tables::register(&db, 7, "ann").unwrap();
    assert_eq!(several_tables::find(&db, "ann").unwrap(), Some(7));
    assert_eq!(several_tables::find(&db, "bob").unwrap(), None);
    for month in ["1", "2", "3"] {
        several_tables::log(&db, month, "first").unwrap();
        several_tables::log(&db, month, "second").unwrap();
    }
    assert_eq!(several_tables::keep_last(&db, 2).unwrap(), 1);
    assert_eq!(db.tables().unwrap(), ["log 2", "log 3", "names", "users"]);
    assert_eq!(db.table("log 3").unwrap().len().unwrap(), 2);
}
