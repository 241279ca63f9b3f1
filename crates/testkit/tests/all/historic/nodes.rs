//! Historic bugs of tree nodes.

use everhash_pmem::crash::Model;

use super::stage::{Case, Pm, Reader, holds};

/// FAST&FAIR: a sorted node removes a key by shifting the keys behind it, one store each. A crash
/// leaves two equal neighbours, of which readers skip one. The next removal of that key takes out
/// only one of them, and the key comes back.
///
/// The cure: whoever writes to a node first closes such a gap.
pub fn fast_fair_shift() -> Case {
    const KEYS: u64 = 5;
    fn setup(pm: &Pm<'_>) {
        (0..KEYS).for_each(|n| pm.store(6, n, 10 + n));
    }
    fn run(pm: &Pm<'_>, _bug: bool) {
        // Removes the first key.
        pm.operation(0, || {
            (1..=KEYS).for_each(|n| pm.store(6, n - 1, pm.load(6, n)));
            pm.persist(6);
        });
    }
    fn remove(pm: &Reader<'_>, key: u64) {
        if let Some(n) = (0..KEYS).find(|n| pm.load(6, *n) == key) {
            (n..KEYS).for_each(|n| pm.store(6, n, pm.load(6, n + 1)));
        }
    }
    fn promise(pm: &Reader<'_>, _returned: u32, bug: bool) -> Result<(), String> {
        let twin = (1..KEYS).find(|n| pm.load(6, *n) == pm.load(6, n - 1) && pm.load(6, *n) != 0);
        if let (Some(n), false) = (twin, bug) {
            (n..KEYS).for_each(|n| pm.store(6, n, pm.load(6, n + 1)));
        }
        for key in 11..10 + KEYS {
            let there = |pm: &Reader<'_>| (0..KEYS).any(|n| pm.load(6, n) == key);
            holds(there(pm), format!("key {key} is lost"))?;
            remove(pm, key);
            holds(!there(pm), format!("key {key} was removed and is back"))?;
        }
        Ok(())
    }
    Case { name: "fast_fair_shift", model: Model::Adr, setup, run, promise }
}

/// FAST&FAIR: a root splits; its upper half moves to a sibling that only the new root knows, and
/// is cut off before the new root counts.
///
/// The cure: the left half names its sibling, in the store that cuts the upper half off.
pub fn fast_fair_split() -> Case {
    const LEFT: u64 = 7;
    const RIGHT: u64 = 8;
    const ROOT: u64 = 9;
    /// Below it are counts, above it the sibling's line: count and sibling change as one word.
    const SIBLING: u64 = 1 << 32;
    fn setup(pm: &Pm<'_>) {
        (0..4).for_each(|n| pm.store(LEFT, 1 + n, 10 + n));
        pm.store(LEFT, 0, 4);
        pm.store(0, 0, LEFT);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(RIGHT, 1, 12);
            pm.store(RIGHT, 2, 13);
            pm.store(RIGHT, 0, 2);
            pm.persist(RIGHT);
            pm.store(LEFT, 0, if bug { 2 } else { 2 + RIGHT * SIBLING });
            pm.persist(LEFT);
            pm.store(ROOT, 1, LEFT);
            pm.store(ROOT, 2, RIGHT);
            pm.persist(ROOT);
            pm.store(0, 0, ROOT);
            pm.persist(0);
        });
    }
    fn keys(pm: &Reader<'_>, node: u64) -> Vec<u64> {
        let head = pm.load(node, 0);
        let mut keys: Vec<u64> = (0..head % SIBLING).map(|n| pm.load(node, 1 + n)).collect();
        let sibling = head / SIBLING;
        if sibling != 0 {
            keys.extend((0..pm.load(sibling, 0)).map(|n| pm.load(sibling, 1 + n)));
        }
        keys
    }
    fn promise(pm: &Reader<'_>, _returned: u32, _bug: bool) -> Result<(), String> {
        let root = pm.load(0, 0);
        let mut found = match root {
            ROOT => [keys(pm, pm.load(ROOT, 1)), keys(pm, pm.load(ROOT, 2))].concat(),
            node => keys(pm, node),
        };
        found.sort_unstable();
        found.dedup();
        holds(found == [10, 11, 12, 13], format!("the tree holds {found:?}"))
    }
    Case { name: "fast_fair_split", model: Model::Adr, setup, run, promise }
}

/// P-ART: a node has entries and a count of them, in different lines; the entry is durable first
/// in the source, and nothing makes it so.
///
/// The cure: a fence between the two.
pub fn art_counter() -> Case {
    fn setup(pm: &Pm<'_>) {
        pm.store(14, 0, 21);
        pm.store(13, 0, 1);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(14, 1, 22);
            pm.flush(14);
            if !bug {
                pm.fence();
            }
            pm.store(13, 0, 2);
            pm.persist(13);
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, _bug: bool) -> Result<(), String> {
        let count = pm.load(13, 0);
        holds(returned == 0 || count == 2, "the entry is not counted")?;
        holds((0..count).all(|n| pm.load(14, n) != 0), "an entry that is counted is empty")
    }
    Case { name: "art_counter", model: Model::Adr, setup, run, promise }
}

/// P-HOT: where the node should be flushed, the word that points to it is.
pub fn hot_pointee() -> Case {
    fn setup(pm: &Pm<'_>) {
        pm.store(16, 0, 31);
        pm.store(15, 0, 16);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(17, 0, 31);
            pm.store(17, 1, 32);
            pm.persist(if bug { 15 } else { 17 });
            pm.store(15, 0, 17);
            pm.persist(15);
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, _bug: bool) -> Result<(), String> {
        let node = pm.load(15, 0);
        holds(pm.load(node, 0) == 31, "the node has lost its first key")?;
        holds(returned == 0 || pm.load(node, 1) == 32, "the node has lost what was added")
    }
    Case { name: "hot_pointee", model: Model::Adr, setup, run, promise }
}
