//! Scans of every engine beside damage.

use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Choice, Cursor, Error, Form, Inline, Opening, Sizing, Table};
use everhash_pmem::{Addr, Image, Region};

use crate::designs;

/// Pairs of a table.
const PAIRS: u64 = 2000;

/// How far a medium can grow. Unit: bytes.
const CAPACITY_BYTES: u64 = 128 << 20;

/// Words of a value, all of which say whose it is.
const VALUE_WORDS: usize = 32;

fn tag(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Changes a word of every copy of a value.
fn damage(media: &Arc<Image>, number: u64) {
    let region = Region::<Image>::new(Arc::clone(media));
    let words = media.words();
    let copies = words.windows(VALUE_WORDS).enumerate();
    let copies = copies.filter(|(_, copy)| copy.iter().all(|word| *word == tag(number)));
    let pm = region.access();
    for (word, _) in copies {
        pm.store(Addr::NULL.plus(word as u64), 0).unwrap();
    }
}

/// Visits all pairs, past what is damaged; returns their keys, and how often a scan failed.
fn visited(table: &dyn Table) -> (BTreeSet<Vec<u8>>, usize) {
    let (mut keys, mut failures, mut next) = (BTreeSet::new(), 0, Some(Cursor::default()));
    let mut calls = 0;
    while let Some(cursor) = next {
        let scanned = table.scan(cursor, &mut |key, _| {
            keys.insert(key.to_vec());
        });
        next = match scanned {
            Err(Error::Corrupt { .. }) => {
                failures += 1;
                table.scan_past(cursor).unwrap()
            }
            scanned => scanned.unwrap(),
        };
        calls += 1;
        assert!(calls < 1 << 20, "a scan does not end");
    }
    (keys, failures)
}

#[test]
fn a_scan_of_any_engine_goes_on_behind_damage() {
    // Fails if damage of one pair hides more than a few others from a scan, or
    // if a scan of a sound table fails.
    for design in designs::<Image>() {
        let media = Arc::new(Image::new(0, CAPACITY_BYTES));
        let opening = Opening { form: Form::Variable, ..Opening::default() };
        let choice = Choice { sizing: Sizing::Pairs(PAIRS), changes: &[] };
        let region = Region::new(Arc::clone(&media));
        let table = design.create(region, &opening, choice, &Inline).unwrap();
        for number in 0..PAIRS {
            let value = [tag(number); VALUE_WORDS].map(u64::to_le_bytes).concat();
            assert!(table.insert(&number.to_le_bytes(), &value).unwrap(), "{}", design.name);
        }
        table.sync().unwrap();
        assert_eq!(visited(&*table).1, 0, "{}", design.name);
        let damaged: Vec<u64> = (0..PAIRS).step_by(500).collect();
        damaged.iter().for_each(|number| damage(&media, *number));
        let (seen, failures) = visited(&*table);
        let name = design.name;
        println!("{name}: {} of {PAIRS} pairs beside {failures} places with damage", seen.len());
        assert!((1..=damaged.len()).contains(&failures), "{name}: {failures}");
        assert!(seen.len() as u64 >= PAIRS - 20, "{name}: {}", seen.len());
        assert!(damaged.iter().all(|number| !seen.contains(&number.to_le_bytes()[..])), "{name}");
    }
}
