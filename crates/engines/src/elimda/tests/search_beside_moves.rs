//! The reversed search under loom, in a whole table: beside an insert that moves the key from its
//! D-bucket to a unit of the device, in any order of a few steps, and on weak memory too.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use everhash_index::{Inline, Opening, Result, WordTable, create_pool};
use everhash_pmem::{Addr, Region};
use everhash_testkit::primitives::{
    Loom, LoomMedium, RehearsedWord, read_beside_rehearsed, without_fences,
};

use crate::common::edit::Edit;
use crate::common::slot_codec::{SlotCodec, Words};
use crate::common::slot_table::SlotTable;
use crate::elimda::form::Form;
use crate::elimda::layout;
use crate::elimda::reversed_search::Wanted;
use crate::elimda::state::ElimDa as Open;
use crate::elimda::{ElimDa, ElimDaSettings, recovery};

type Table = Open<LoomMedium<Loom<RehearsedWord>>, Words>;

/// The key that is looked for, and its value; others.
const KEY: u64 = 1;
const VALUE: u64 = 10;
const OTHERS: [u64; 3] = [2, 3, 4];

/// Words of the medium: of the pool's own, of a segment and of a block of the log, and to spare.
const WORDS: u64 = 2048;

/// How many preemptions a schedule has, at most.
const PREEMPTIONS: usize = 2;

/// The same for the search that is not the one of words: both keep to one protocol, and one more
/// preemption takes half a minute.
const FEWER_PREEMPTIONS: usize = 1;

/// Makes a table of one bucket, whose D-bucket has room for two pairs.
fn empty() -> Table {
    let settings = ElimDaSettings {
        unit_slots: 2,
        buckets: 1,
        segment_units: 4,
        bucket_units: 4,
        lanes: 1,
        collecting_logs: 0,
        ..ElimDaSettings::tiny()
    };
    let region = Region::new(LoomMedium::rehearsed(WORDS));
    let pool = create_pool::<ElimDa, _>(region, &Opening::default(), &settings).unwrap();
    // For words alone: the whole engine is compiled for loom's primitives.
    recovery::open(pool, &Inline, |_, _| unreachable!("nothing is checked")).unwrap()
}

fn insert(table: &Table, key: u64, value: u64) {
    assert!(table.write(key, Edit::Insert(value)).unwrap());
}

/// A table whose D-bucket is full, and holds the key.
fn full() -> Table {
    let table = empty();
    insert(&table, KEY, VALUE);
    insert(&table, OTHERS[0], 0);
    table
}

/// A table that holds the key in a unit, and again, with another value, in its full D-bucket.
fn twice() -> Table {
    let table = full();
    insert(&table, OTHERS[1], 0);
    table.insert_blind(KEY, VALUE + 1).unwrap();
    table
}

/// Inserts another key, for which the D-bucket has no room.
fn relocate(table: &Table) {
    insert(table, OTHERS[2], 0);
}

thread_local! {
    /// The wrong answer that ended a model. All threads of one run on one thread of the system.
    static WRONG: Cell<Option<Option<u64>>> = const { Cell::new(None) };
}

/// Ends the model with a wrong answer.
fn checked(found: Option<u64>) -> Option<u64> {
    if found != Some(VALUE) {
        WRONG.set(Some(found));
        panic!("the search found {found:?}");
    }
    found
}

/// Looks for the key.
fn find(table: &Table) -> Option<u64> {
    checked(table.find(KEY, &mut Vec::new()).unwrap().map(|pair| pair[1]))
}

/// As [`find`], by the code for words alone.
fn find_word(table: &Table) -> Option<u64> {
    checked(table.get_word(KEY).unwrap())
}

fn wanted(table: &Table) -> Wanted<'static, Words> {
    Wanted { hash: Words::hash(&table.hasher, KEY), key: KEY }
}

/// As [`find`], without a look at what was changed meanwhile.
fn find_once(table: &Table) -> Option<u64> {
    let (pm, wanted) = (table.pool.access(), wanted(table));
    let at = table.locate(wanted.hash);
    let found = table.search(&pm, &at.segment, &at.bucket, wanted, &mut Vec::new()).unwrap();
    checked(found.map(|found| found.item[1]))
}

/// As [`find`], but in the order in which pairs move: first in the D-bucket.
fn find_forward(table: &Table) -> Option<u64> {
    let (pm, wanted) = (table.pool.access(), wanted(table));
    let at = table.locate(wanted.hash);
    let lock = at.segment.lock(at.index);
    let search = || -> Result<Option<u64>> {
        let candidates = at.bucket.dram_candidates(0, layout::fingerprint(wanted.hash));
        for index in (0..32).filter(|index| candidates >> index & 1 == 1) {
            let (item, _) = at.bucket.item(index);
            if Words::matches(&pm, &item, Addr::NULL, (wanted.hash, KEY), &mut Vec::new())? {
                return Ok(Some(item[1]));
            }
        }
        let found = table.search(&pm, &at.segment, &at.bucket, wanted, &mut Vec::new())?;
        Ok(found.map(|found| found.item[1]))
    };
    let mut attempt = 0;
    loop {
        let stamp = lock.stamp(&mut attempt).unwrap();
        let found = search();
        if lock.accepts(stamp) {
            return checked(found.unwrap());
        }
    }
}

/// Looks for the key beside the insert that moves it.
///
/// # Panics
/// If another value is found, or none.
fn find_beside(preemptions: usize, make: fn() -> Table, find: fn(&Table) -> Option<u64>) {
    WRONG.set(None);
    read_beside_rehearsed(preemptions, make, find, relocate);
}

/// As [`find_beside`], with a mistake; returns the first wrong answer.
fn wrong_beside(
    left_out: fn(Ordering) -> bool,
    make: fn() -> Table,
    find: fn(&Table) -> Option<u64>,
) -> Option<Option<u64>> {
    let beside = without_fences(left_out, || find_beside(PREEMPTIONS, make, find));
    WRONG.take().filter(|_| beside.is_err())
}

#[test]
fn a_search_finds_the_pair_that_moves_to_the_device() {
    // Fails if a pair that leaves the D-bucket is in neither layer for a reader.
    find_beside(FEWER_PREEMPTIONS, full, find);
    find_beside(PREEMPTIONS, full, find_word);
}

#[test]
fn a_search_finds_the_first_of_two_pairs_while_the_second_moves() {
    // Fails if a reader looks into the D-bucket before the device.
    find_beside(FEWER_PREEMPTIONS, twice, find);
    find_beside(PREEMPTIONS, twice, find_word);
}

#[test]
fn a_search_in_the_order_of_moves_is_caught() {
    // Fails if the model would not show which of two pairs a search finds.
    let wrong = wrong_beside(|_| false, twice, find_forward);
    assert_eq!(wrong, Some(Some(VALUE + 1)));
}

#[test]
fn a_search_that_does_not_validate_is_caught() {
    // Fails if the model never reaches the moments in which the pair is in neither layer.
    assert!(wrong_beside(|_| false, full, find_once).is_some());
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the model is too small to show what the fences of reader and writer are for.
    for left_out in [|order| order == Ordering::Acquire, |order| order == Ordering::Release] {
        for find in [find, find_word] {
            assert!(wrong_beside(left_out, full, find).is_some());
        }
    }
}
