//! Visiting pairs from any place on.

use std::collections::BTreeSet;

use everhash_index::{Cursor, Form, Table, WordTable};
use everhash_pmem::Image;
use everhash_testkit::session::Session;

use crate::walsh::layout::{DIRECTORY_HASH, MOST_LEVEL};
use crate::walsh::{Walsh, WalshSettings};

#[test]
fn a_scan_from_any_place_visits_what_lies_at_it_or_behind() {
    // Fails if a scan that begins inside a directory, as after a clear that made directories
    // larger, visits again what lies before that place, or passes over a pair behind it; or if a
    // scan past damage passes over more than the rest of that directory. While an area doubles, and
    // while it does not.
    let settings = WalshSettings { areas: 1, ..WalshSettings::tiny() };
    let image = Image::new(0, 1 << 20);
    let session = Session::<Walsh>::create(image, Form::WORDS, &settings).unwrap();
    let table = session.table();
    let mut judged = [false; 2];
    for key in 0..120u64 {
        assert!(table.insert_word(key, key).unwrap());
        let view = table.lock(&table.areas[0]).unwrap().view;
        if key < 60 || std::mem::replace(&mut judged[usize::from(view.old().is_some())], true) {
            continue;
        }
        let width = 1 << (MOST_LEVEL - view.old().unwrap_or(view.level()));
        let place = |key: &u64| DIRECTORY_HASH.get(table.hasher.word(*key));
        for first in (0..=key).map(|key| place(&key)).flat_map(|place| [place, place + 1]) {
            let (mut found, mut next) = (BTreeSet::new(), Some(Cursor(first)));
            while let Some(cursor) = next {
                let visit = &mut |key: &[u8], _: &[u8]| {
                    assert!(found.insert(u64::from_le_bytes(key.try_into().unwrap())), "twice");
                };
                next = table.scan(cursor, visit).unwrap();
            }
            let expected = (0..=key).filter(|key| place(key) >= first).collect();
            assert_eq!(found, expected, "from {first:#x}");
            let behind = (first / width + 1) * width;
            let behind = (behind < 1 << MOST_LEVEL).then_some(Cursor(behind));
            assert_eq!(table.scan_past(Cursor(first)).unwrap(), behind);
        }
    }
    assert_eq!(judged, [true; 2], "an area was doubled, and was not");
}
