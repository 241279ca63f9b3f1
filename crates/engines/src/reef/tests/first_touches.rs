//! Leaves that only a checkpoint has: whoever comes first loads them, and what becomes of the
//! checkpoint then is no matter.

use std::collections::BTreeMap;
use std::sync::Barrier;

use everhash_index::{AtomicTable, Change, Cursor, Error, Form, Table, WordTable};
use everhash_pmem::{Image, Media};
use everhash_testkit::session::Session;

use super::checkpoints::checkpoint;
use crate::reef::directory::Shard;
use crate::reef::layout::{CheckpointHead, CheckpointShard};
use crate::reef::{Reef, ReefTable};

/// How many pairs [`reopened`] has.
const PAIRS: u64 = 600;

/// Returns a table that was opened with a checkpoint of all its pairs: of each even number, half of
/// it.
fn reopened() -> Session<Reef> {
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..PAIRS).for_each(|key| assert!(table.insert_word(2 * key, key).unwrap()));
    checkpoint(table);
    session.reopen().unwrap();
    assert_eq!(saved(session.table()), leaves(session.table()));
    session
}

fn pairs() -> BTreeMap<u64, u64> {
    (0..PAIRS).map(|key| (2 * key, key)).collect()
}

/// Returns how many leaves there are.
fn leaves<M: Media>(table: &ReefTable<M>) -> usize {
    table.shards.all().iter().map(|shard| shard.parts().unwrap().len()).sum()
}

/// Returns how many of them are not loaded.
fn saved<M: Media>(table: &ReefTable<M>) -> usize {
    let of = |shard: &Shard<M::Sync>| {
        let parts = shard.parts().unwrap();
        parts.iter().filter(|part| shard.is_saved(part.index)).count()
    };
    table.shards.all().iter().map(of).sum()
}

fn holds(table: &ReefTable<Image>, pairs: &BTreeMap<u64, u64>) {
    assert_eq!(table.len().unwrap(), pairs.len() as u64);
    for key in 0..2 * PAIRS {
        assert_eq!(table.get_word(key).unwrap(), pairs.get(&key).copied(), "key {key}");
    }
    table.check().unwrap();
}

#[test]
fn every_operation_may_be_the_first_to_touch_a_leaf() {
    // Fails if an operation looks at a leaf that is not there, takes its pairs for absent, or loads
    // more leaves than that of its key.
    type Operation = fn(&ReefTable<Image>, u64, &mut BTreeMap<u64, u64>);
    let operations: [(&str, Operation); 11] = [
        ("get", |table, key, pairs| {
            assert_eq!(table.get_word(key).unwrap(), pairs.get(&key).copied());
        }),
        ("get bytes", |table, key, pairs| {
            let found = Table::get(table, &key.to_le_bytes(), &mut Vec::new()).unwrap();
            assert_eq!(found, pairs.contains_key(&key));
        }),
        ("contains", |table, key, pairs| {
            let found = Table::contains(table, &key.to_le_bytes()).unwrap();
            assert_eq!(found, pairs.contains_key(&key));
        }),
        ("get words", |table, key, pairs| {
            let mut values = [None];
            table.get_words(&[key], &mut values).unwrap();
            assert_eq!(values, [pairs.get(&key).copied()]);
        }),
        ("get many", |table, key, pairs| {
            let mut found = None;
            let mut take = |_, value: Option<&[u8]>| found = value.map(<[u8]>::to_vec);
            table.get_many(&[&key.to_le_bytes()], &mut take).unwrap();
            assert_eq!(found.is_some(), pairs.contains_key(&key));
        }),
        ("insert", |table, key, pairs| {
            assert_eq!(table.insert_word(key, 9).unwrap(), !pairs.contains_key(&key));
            pairs.entry(key).or_insert(9);
        }),
        ("put", |table, key, pairs| {
            assert_eq!(table.put_word(key, 9).unwrap(), pairs.insert(key, 9).is_some());
        }),
        ("put many", |table, key, pairs| {
            let bytes = key.to_le_bytes();
            let there = table.put_many(&[(&bytes, &9u64.to_le_bytes())]).unwrap();
            assert_eq!(there == 0, pairs.insert(key, 9).is_some());
        }),
        ("remove", |table, key, pairs| {
            assert_eq!(table.remove_word(key).unwrap(), pairs.remove(&key).is_some());
        }),
        ("modify", |table, key, pairs| {
            let mut change = |present: Option<&[u8]>| {
                assert_eq!(present.is_some(), pairs.contains_key(&key));
                Change::Put(vec![7; 8])
            };
            table.modify(&key.to_le_bytes(), &mut change).unwrap();
            pairs.insert(key, u64::from_le_bytes([7; 8]));
        }),
        ("batch", |table, key, pairs| {
            let (bytes, value) = (key.to_le_bytes(), 9u64.to_le_bytes());
            table.write_all(&[(&bytes, Some(&value[..]))]).unwrap();
            pairs.insert(key, 9);
        }),
    ];
    for (name, operation) in operations {
        for key in [4, 5] {
            let (session, mut pairs) = (reopened(), pairs());
            let table = session.table();
            operation(table, key, &mut pairs);
            let loaded = leaves(table) - saved(table);
            // A leaf that was full is two now.
            assert!((1..=2).contains(&loaded), "{name}: {loaded} leaves were loaded");
            holds(table, &pairs);
            assert_eq!(saved(table), 0);
        }
    }
}

#[test]
fn a_scan_loads_the_leaves_that_it_visits() {
    // Fails if a scan passes over a leaf that is not loaded, or loads all for its first call.
    let session = reopened();
    let (table, mut seen) = (session.table(), BTreeMap::new());
    let (mut next, mut calls) = (Some(Cursor::default()), 0);
    while let Some(cursor) = next {
        let mut visit = |key: &[u8], value: &[u8]| {
            let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.as_array().unwrap());
            seen.insert(word(key), word(value));
        };
        next = table.scan(cursor, &mut visit).unwrap();
        calls += 1;
        assert!(calls > 1 || saved(table) > 0);
    }
    assert_eq!((seen, saved(table)), (pairs(), 0));
    let session = reopened();
    let (table, mut next) = (session.table(), Some(Cursor::default()));
    while let Some(cursor) = next {
        next = table.scan_past(cursor).unwrap();
    }
    holds(table, &pairs());
}

#[test]
fn an_opening_and_what_asks_for_no_key_load_nothing() {
    // Fails if an opening takes the memory of pairs that nobody asks for.
    let session = reopened();
    let table = session.table();
    let before = table.stats().unwrap().dram_bytes;
    assert_eq!(table.len().unwrap(), PAIRS);
    table.sync().unwrap();
    table.maintain(core::time::Duration::from_secs(1), 1000).unwrap();
    assert_eq!((saved(table), table.stats().unwrap().dram_bytes), (leaves(table), before));
    holds(table, &pairs());
    assert!(table.stats().unwrap().dram_bytes > before + 8 * PAIRS);
}

#[test]
fn a_clear_needs_no_leaf() {
    // Fails if what was cleared is loaded by a later look-up.
    let mut session = reopened();
    session.table().clear().unwrap();
    holds(session.table(), &BTreeMap::new());
    assert!(!session.table().put_word(3, 4).unwrap());
    session.reopen().unwrap();
    holds(session.table(), &BTreeMap::from([(3, 4)]));
}

/// Overwrites all free room of a table with pairs that are removed again.
fn churn(table: &ReefTable<Image>) {
    for round in 0..60 {
        let fresh = 10_000 * (round + 1);
        let count = (fresh..fresh + 400).take_while(|key| table.put_word(*key, 1).is_ok()).count();
        for key in fresh..fresh + count as u64 {
            assert!(table.remove_word(key).unwrap());
        }
    }
}

#[test]
fn a_checkpoint_that_is_replaced_or_given_up_leaves_all_its_leaves() {
    // Fails if a leaf is looked for in room that has another use by now, or saved when it is not
    // loaded.
    let (session, mut pairs) = (reopened(), pairs());
    let table = session.table();
    assert!(table.put_word(4, 44).unwrap());
    pairs.insert(4, 44);
    (0..3).for_each(|_| checkpoint(table));
    churn(table);
    holds(table, &pairs);

    let session = reopened();
    let table = session.table();
    assert!(table.give_up_checkpoint().unwrap());
    churn(table);
    holds(table, &self::pairs());
}

#[test]
fn collection_loads_what_it_moves() {
    // Fails if a pair that only a checkpoint knows is lost with the segment that it lies in: here
    // two of three pairs in each are overwritten, all of other leaves.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    let is_odd = |key: &u64| table.hash(&key.to_le_bytes()) & 1 == 1;
    let (odd, even): (Vec<u64>, Vec<u64>) = (0..2 * PAIRS).partition(is_odd);
    let mut pairs = BTreeMap::new();
    for (odd, even) in odd.iter().zip(even.chunks_exact(2)) {
        for key in [odd, &even[0], &even[1]] {
            assert!(table.insert_word(*key, 1).unwrap());
            pairs.insert(*key, 1);
        }
    }
    checkpoint(table);
    session.reopen().unwrap();
    let table = session.table();
    let before = saved(table);
    for key in even.iter().filter(|key| pairs.contains_key(key)) {
        assert!(table.put_word(*key, 2).unwrap());
    }
    pairs.iter_mut().for_each(|(key, value)| *value += u64::from(even.contains(key)));
    (1..9).for_each(|second| {
        table.maintain(core::time::Duration::from_secs(second), 10_000).unwrap();
    });
    let after = saved(table);
    // What was put touches half of them.
    assert!(before > 8 && after < before / 4, "of {before} leaves {after} were not touched");
    holds(table, &pairs);
}

#[test]
fn what_a_killed_process_wrote_behind_a_checkpoint_loads_its_leaves_only() {
    // Fails if an opening replays into leaves that are not loaded, or loads all for a short log.
    let (mut session, mut pairs) = (reopened(), pairs());
    assert!(session.table().put_word(4, 44).unwrap());
    assert!(session.table().remove_word(6).unwrap());
    assert!(session.table().insert_word(7, 77).unwrap());
    pairs.extend([(4, 44), (7, 77)]);
    pairs.remove(&6);
    session.kill_unsynced().unwrap();
    let loaded = leaves(session.table()) - saved(session.table());
    assert!((1..=4).contains(&loaded), "{loaded} leaves were loaded");
    holds(session.table(), &pairs);
}

#[test]
fn damage_of_a_checkpoint_since_the_opening_is_told_of_and_takes_no_more_than_its_leaf() {
    // Fails if words that changed after they were verified are believed, or spoil other keys, or if
    // each attempt to write the next checkpoint takes room for good.
    let mut session = reopened();
    let checkpoint = session.table().epochs.lock().unwrap().checkpoint.clone().unwrap();
    // Behind the head and the index: it says which hashes the first leaf of the first shard has.
    let shards = session.table().shards.all().len();
    let before = CheckpointHead::WORDS + CheckpointShard::WORDS * shards;
    let first = checkpoint.span.start.plus(before as u64);
    let pm = session.region().access();
    pm.store(first, !pm.load(first).unwrap()).unwrap();
    let table = session.table();
    let outcomes: Vec<_> = (0..PAIRS).map(|key| table.get_word(2 * key)).collect();
    let damaged = outcomes.iter().filter(|it| matches!(it, Err(Error::Corrupt { .. }))).count();
    let right =
        (0..).zip(&outcomes).filter(|(key, it)| matches!(it, Ok(Some(value)) if value == key));
    let right = right.count();
    assert!(
        damaged > 0 && damaged < 200 && damaged + right == PAIRS as usize,
        "{damaged}, {right}"
    );
    // Nor is it written into the next one, for which upkeep asks as often as it comes.
    let used = || table.space.usage().unwrap().used_bytes;
    let before = used();
    for _ in 0..3 {
        let ends = table.ends(&[]).unwrap();
        let replaced = table.replace_checkpoint(table.checkpoint_bytes().unwrap(), ends);
        assert!(matches!(replaced, Err(Error::Corrupt { .. })), "{replaced:?}");
    }
    assert!(matches!(table.give_up_checkpoint(), Err(Error::Corrupt { .. })));
    assert_eq!(used(), before);
    // Without the checkpoint, the log has all of it.
    session.kill_unsynced().unwrap();
    holds(session.table(), &pairs());
}

#[test]
fn threads_that_touch_one_leaf_at_the_same_time_load_it_once() {
    // Fails if two readers, or a reader and a writer, load a leaf twice: what is written to one of
    // the two is lost.
    for round in 0..20 {
        let session = reopened();
        let (table, barrier) = (session.table(), Barrier::new(3));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    for key in 0..PAIRS {
                        match (key + thread) % 3 {
                            0 if key % 3 == 0 => drop(table.put_word(2 * key, !key).unwrap()),
                            _ => drop(table.get_word(2 * key).unwrap().unwrap()),
                        }
                    }
                });
            }
        });
        let expected = |key: u64| if key.is_multiple_of(3) { !key } else { key };
        let expected = (0..PAIRS).map(|key| (2 * key, expected(key))).collect();
        holds(table, &expected);
        assert_eq!(saved(table), 0, "round {round}");
    }
}
