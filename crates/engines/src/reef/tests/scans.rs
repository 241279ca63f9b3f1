//! Scans: how much one call does, and what becomes of damage.

use std::collections::BTreeSet;

use everhash_index::{Cursor, Error, Form, Inline, Table, Upkeep, WordTable, open_read_only};
use everhash_pmem::{Image, Lock};
use everhash_testkit::session::Session;

use crate::reef::layout::SegmentHead;
use crate::reef::{Reef, ReefSettings};

/// Returns how many pairs each call of a scan visits.
fn visited(table: &dyn Table) -> Vec<usize> {
    let (mut calls, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(next) = cursor {
        let mut visited = 0;
        cursor = table.scan(next, &mut |_, _| visited += 1).unwrap();
        calls.push(visited);
    }
    calls
}

#[test]
fn a_call_of_a_scan_holds_up_writers_for_no_more_than_some_pairs() {
    // Fails if one call copies a whole shard of long values, or looks at all of an empty one.
    let settings = ReefSettings { streams: 1, shards: 1, buckets: 1 << 14, ..ReefSettings::tiny() };
    // A directory is no longer than the medium.
    let medium = Image::new(2 << 20, 4 << 20);
    let session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    let empty = visited(session.table()).len() as u64;
    assert!(empty >= settings.buckets / 2 / 256, "{empty} calls");
    let few = ReefSettings { buckets: 16, ..settings };
    let session = Session::<Reef>::create(Image::new(0, 4 << 20), Form::Variable, &few).unwrap();
    (0..200u8).for_each(|key| assert!(!session.table().put(&[key], &[7; 2000]).unwrap()));
    let calls = visited(session.table());
    assert_eq!(calls.iter().sum::<usize>(), 200);
    // 16 KiB, and the rest of a home.
    assert!(calls.iter().all(|count| *count < 9 + 20), "{calls:?}");
}

#[test]
fn a_scan_that_passes_over_damage_visits_all_other_pairs_and_tells_it_once() {
    // Fails if damage is told before the scan has come to its home, and so again and again, or if
    // a pair beside it is passed over.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, pm) = (session.table(), session.region().access());
    (0..100u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    let mut damaged = Vec::new();
    for stream in &table.streams {
        let stream = stream.0.lock().unwrap();
        for segment in stream.sealed.values() {
            let at = segment.span.start.plus(SegmentHead::WORDS as u64);
            let key = pm.load(at.plus(1)).unwrap();
            pm.store(at, pm.load(at).unwrap() ^ 1 << 40).unwrap();
            damaged.push((at.byte(), key));
        }
    }
    let (mut visited, mut told) = (BTreeSet::new(), Vec::new());
    let mut cursor = Some(Cursor::default());
    while let Some(next) = cursor {
        let visit = &mut |key: &[u8], _: &[u8]| {
            visited.insert(u64::from_le_bytes(key.try_into().unwrap()));
        };
        cursor = match table.scan(next, visit) {
            Err(Error::Corrupt { at, .. }) => {
                told.push(at);
                table.scan_past(next).unwrap()
            }
            next => next.unwrap(),
        };
    }
    assert!(told.len() > 3 && told.iter().all(|at| damaged.iter().any(|(it, _)| it == at)));
    let distinct: BTreeSet<_> = told.iter().collect();
    assert_eq!(distinct.len(), told.len(), "{told:?}");
    for key in 0..100 {
        let is_damaged = damaged.iter().any(|(_, it)| *it == key);
        assert_eq!(visited.contains(&key), !is_damaged, "{key}");
    }
}

#[test]
fn upkeep_where_only_reading_is_allowed_changes_nothing() {
    // Fails if it collects, or ends an epoch.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    (0..300u64).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    (0..300u64).step_by(2).for_each(|key| assert!(session.table().put_word(key, 2).unwrap()));
    session.close().unwrap();
    let before = session.region().media().words();
    let table = open_read_only::<Reef, _>(session.region().clone(), &Inline).unwrap();
    for seconds in [10, 20, 30] {
        let upkeep = table.maintain(core::time::Duration::from_secs(seconds), 1000).unwrap();
        assert_eq!(upkeep, Upkeep::default());
    }
    drop(table);
    assert_eq!(session.region().media().words(), before);
}
