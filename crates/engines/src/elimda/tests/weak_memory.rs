//! A collecting log under loom: appends and readers in any order of a few steps, and on weak memory
//! too.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use everhash_index::Error;
use everhash_pmem::{Access, Addr, Primitives, Region, Site};
use everhash_testkit::primitives::{Loom, LoomMedium, read_beside, without_fences};

use crate::elimda::collecting_log::CollectingLog;
use crate::elimda::layout::{CollectingLog as Log, Control};

/// Where the only log lies.
const HERE: Addr = Addr::new(256);

/// Its slots.
const SLOTS: u64 = 2;

/// Makes an empty log, of which loom explores every word.
fn medium() -> Region<LoomMedium<Loom>> {
    let words = Log::ITEMS as u64 + 2 * SLOTS;
    Region::new(LoomMedium::new((0..words).map(|word| (HERE.plus(word), 0)), []))
}

/// Makes a log that holds key 1.
fn medium_of_one() -> Region<LoomMedium<Loom>> {
    let region = medium();
    assert!(insert(&region, 1));
    region
}

fn log<'a>(pm: &'a Access<'a, LoomMedium<Loom>>) -> CollectingLog<'a, LoomMedium<Loom>> {
    CollectingLog { pm, at: HERE, slots: SLOTS, item_words: 2 }
}

/// The keys with their values that are live; a value is ten times its key.
fn contents(region: &Region<LoomMedium<Loom>>) -> Vec<u64> {
    let pm = region.access();
    let items = log(&pm).read().unwrap();
    let keys = items.slots().map(|slot| {
        let [key, value, ..] = items.item(slot);
        assert!(key != 0 && value == 10 * key, "torn: {key} {value}");
        key
    });
    keys.collect()
}

/// Looks for a key, as a search does; returns whether it is there.
fn holds(region: &Region<LoomMedium<Loom>>, key: u64) -> bool {
    let pm = region.access();
    let found = log(&pm).find(key, |_| Ok(true)).unwrap();
    assert!(found.is_none_or(|(_, item)| item[..2] == [key, 10 * key]), "torn: {found:?}");
    found.is_some()
}

/// Inserts a key if it is absent, as the engine does; returns whether it was.
fn insert(region: &Region<LoomMedium<Loom>>, key: u64) -> bool {
    let pm = region.access();
    let log = log(&pm);
    for attempt in 0.. {
        let seen = log.look().unwrap();
        if holds(region, key) {
            return false;
        }
        if !seen.control.is_pending()
            && seen.control.reserved < SLOTS
            && let Some(slot) = log.reserve(&seen).unwrap()
        {
            log.fill(slot, &[key, 10 * key, 0, 0]).unwrap();
            return true;
        }
        <Loom>::pause(attempt);
    }
    unreachable!("the loop ends with an insert")
}

/// Ends what is in slot 0, empties the log, and writes key 3 into that slot.
fn reuse(region: &Region<LoomMedium<Loom>>) {
    let pm = region.access();
    let log = log(&pm);
    log.end(0).unwrap();
    let control: Control = log.look().unwrap().control;
    let emptied = control.emptied().unwrap().seal(HERE);
    pm.commit_word(HERE, emptied, Site::new("elimda/test/emptied")).unwrap();
    assert!(insert(region, 3));
}

/// Inserts two keys beside one another, in every schedule with up to two preemptions; returns
/// what the inserts returned, and what the log held then.
fn insert_both(first: u64, second: u64) -> BTreeSet<(bool, bool, Vec<u64>)> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&outcomes);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let region = medium();
        let other = region.clone();
        let thread = loom::thread::spawn(move || insert(&other, second));
        let one = insert(&region, first);
        let two = thread.join().unwrap();
        let mut keys = contents(&region);
        keys.sort_unstable();
        all.lock().unwrap().insert((one, two, keys));
    });
    outcomes.lock().unwrap().clone()
}

#[test]
fn of_two_inserts_of_one_key_one_succeeds() {
    // Fails if an insert does not notice another that came between its search and its slot.
    let outcomes = insert_both(1, 1);
    assert_eq!(outcomes, BTreeSet::from([(true, false, vec![1]), (false, true, vec![1])]));
}

#[test]
fn inserts_of_two_keys_lose_neither() {
    // Fails if the bit of one slot is lost to that of the other.
    assert_eq!(insert_both(1, 2), BTreeSet::from([(true, true, vec![1, 2])]));
}

/// Reads a log that holds key 1 beside its reuse for key 3.
fn read_beside_reuse() -> BTreeSet<Vec<u64>> {
    read_beside(2, medium_of_one, contents, reuse, None)
}

/// As [`read_beside_reuse`], of one key and of the other.
fn search_beside_reuse() -> [BTreeSet<bool>; 2] {
    let searches: [fn(&_) -> bool; 2] = [|region| holds(region, 1), |region| holds(region, 3)];
    searches.map(|search| read_beside(2, medium_of_one, search, reuse, None))
}

#[test]
fn a_reader_sees_whole_items_of_one_generation() {
    // Fails if a reader takes a slot for written too early, or reads the next generation of a log
    // with the control word of this one.
    let seen = read_beside_reuse();
    assert_eq!(seen, BTreeSet::from([vec![], vec![1], vec![3]]));
}

#[test]
fn a_search_finds_whole_items_of_one_generation() {
    // As the test above: fails if a search does.
    assert_eq!(search_beside_reuse(), [1, 3].map(|_| BTreeSet::from([false, true])));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the models above are too small to show what the fence is for.
    let is_caught = |model: &dyn Fn()| without_fences(|order| order == Ordering::Release, model);
    assert!(is_caught(&|| drop(read_beside_reuse())).is_err());
    assert!(is_caught(&|| drop(search_beside_reuse())).is_err());
}

#[test]
fn a_damaged_control_word_ends_the_waiting() {
    // Fails if a log whose control word is damaged is waited for.
    loom::model(|| {
        let region = medium();
        let pm = region.access();
        pm.store(HERE, 12345).unwrap();
        assert!(matches!(log(&pm).look(), Err(Error::Corrupt { .. })));
    });
}
