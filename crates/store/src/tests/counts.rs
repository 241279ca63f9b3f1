//! Counts of pairs, where it only shows from inside.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::tables::prefix;
use crate::{Db, Durability, Error};

/// Fails a write of a table, so that its count is in doubt.
fn leave_in_doubt(table: &Db) {
    let full = |_: &dyn everhash_index::Table| Err(everhash_index::Error::Full { needed: 1 });
    let failed: Result<(), Error> = table.write_with(|_| Ok(()), full, |()| 0);
    assert!(failed.unwrap_err().is_full());
    assert_eq!(table.known_len(), None);
}

#[test]
fn a_write_that_panics_in_the_engine_leaves_its_count_in_doubt() {
    // Fails if only an error did: a pair that was stored before the panic would never be counted.
    let directory = tempfile::tempdir().unwrap();
    let db = Db::create(directory.path().join("pairs.ehdb")).unwrap();
    let table = db.create_table("table").unwrap();
    assert_eq!((table.len().unwrap(), table.known_len()), (0, Some(0)));
    let stored = prefix::joined(table.space().unwrap().number, b"key");
    let write = |inner: &dyn everhash_index::Table| -> everhash_index::Result<()> {
        inner.put(&stored, b"value")?;
        panic!("behind the store of a pair");
    };
    let written = || table.write_with(|_| Ok(()), write, |()| 0);
    assert!(catch_unwind(AssertUnwindSafe(written)).is_err());
    assert_eq!((table.known_len(), table.len().unwrap()), (None, 1));
}

#[test]
fn a_count_that_is_known_stays_so_while_another_one_is_taken_anew() {
    // Fails if the count of each table began anew with that of one: whoever asks at that moment
    // would be told of a table without a pair.
    let directory = tempfile::tempdir().unwrap();
    let options = Db::options().durability(Durability::Process).background(false);
    let db = options.create(directory.path().join("pairs.ehdb")).unwrap();
    let [known, doubtful] = ["known", "doubtful"].map(|name| db.create_table(name).unwrap());
    for table in [&db, &known, &doubtful] {
        table.put("key", "value").unwrap();
    }
    assert_eq!(known.len().unwrap(), 1);
    std::thread::scope(|scope| {
        let counts = scope.spawn(|| {
            for _ in 0..1000 {
                leave_in_doubt(&doubtful);
                assert_eq!(doubtful.len().unwrap(), 1);
            }
        });
        while !counts.is_finished() {
            for table in [&db, &known] {
                assert_eq!(table.known_len(), Some(1));
            }
        }
    });
    assert_eq!(doubtful.len().unwrap(), 1);
}
