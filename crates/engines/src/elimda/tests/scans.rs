//! Scans: how much one call visits, and cursors of logs that are gone.

use everhash_index::{Cursor, Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::session::Session;

use crate::elimda::{ElimDa, ElimDaSettings};

fn create(model: Model, settings: &ElimDaSettings) -> Session<ElimDa> {
    let medium = Image::new(0, 4 << 20).with_guarantees(model.guarantees());
    Session::create(medium, Form::WORDS, settings).unwrap()
}

/// Scans a table from a cursor on. Returns how many pairs each call visited.
fn calls(session: &Session<ElimDa>, cursor: Cursor) -> Vec<u64> {
    let (mut next, mut calls) = (Some(cursor), Vec::new());
    while let Some(cursor) = next {
        let mut visited = 0;
        next = session.table().scan(cursor, &mut |_, _| visited += 1).unwrap();
        calls.push(visited);
    }
    calls
}

#[test]
fn a_call_of_a_scan_visits_a_part() {
    // Fails if one call goes on through all collecting logs, through all pairs of the buckets, or
    // through all of a table that is nearly empty: a caller could not stop in time.
    let settings =
        ElimDaSettings { initial_segments: 128, collecting_logs: 64, ..ElimDaSettings::tiny() };
    let session = create(Model::Eadr, &settings);
    // The logs, and 64 of 256 buckets each.
    assert_eq!(calls(&session, Cursor::default()), [0; 5]);
    let words = session.table().words().unwrap();
    let mut count = 0;
    for more in [150, 2000] {
        for key in count..count + more {
            assert!(words.insert_word(key, key).unwrap());
        }
        count += more;
        let calls = calls(&session, Cursor::default());
        assert_eq!(calls.iter().sum::<u64>(), count);
        // With all of the last bucket, or log.
        assert!(calls.iter().all(|visited| *visited < 64 + 21), "{calls:?}");
    }
}

#[test]
fn a_scan_that_began_in_logs_which_are_gone_meets_every_pair() {
    // Fails if the number of a log is taken for a place among the buckets: those before it would be
    // passed over.
    let session = create(Model::Adr, &ElimDaSettings::tiny());
    let words = session.table().words().unwrap();
    (0..20).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    for log in 0..3 {
        assert_eq!(calls(&session, Cursor(log)).iter().sum::<u64>(), 20, "log {log}");
    }
}
