//! Reading everything out of a table, in every way there is.

use std::collections::btree_map::Entry;

use everhash_index::{Cursor, Design, Table};
use everhash_pmem::{Boot, Media, Region};

use super::Pairs;
use crate::Failure;
use crate::failure::{ensure, show};

/// After how many calls of `scan` a cursor counts as endless.
///
/// Source: ours; judged tables have fewer buckets than this by far.
const SCAN_CALLS: u32 = 10_000_000;

/// What a buffer holds before a value is read into it.
pub(super) const LEFT_FROM_BEFORE: &[u8] = b"left from before";

/// Scans a table while nothing is written to it.
///
/// # Errors
/// A failure for an error, for a cursor that never ends, and for a key with two values.
pub fn scan_all(table: &dyn Table) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::new();
    let mut failure = None;
    scan_each(table, &mut |key, value| {
        failure = failure.take().or_else(|| note(&mut pairs, key, value, false).err());
    })?;
    failure.map_or(Ok(pairs), Err)
}

fn scan_each(table: &dyn Table, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Failure> {
    let mut cursor = Some(Cursor::default());
    let mut calls = 0;
    while let Some(from) = cursor {
        calls += 1;
        ensure!(calls < SCAN_CALLS, "the scan did not end after {calls} calls");
        cursor = table.scan(from, visit)?;
    }
    Ok(())
}

/// Reads a pool with [`Design::check`], which shares no code with the table. Nothing counts but
/// what power loss would leave.
///
/// # Errors
/// A failure for a broken invariant, and for a key that is visited twice.
pub fn check_pool<M: Media>(design: &Design<M>, region: &Region<M>) -> Result<Pairs, Failure> {
    check_left_pool(design, region, Boot::default())
}

/// As [`check_pool`], in a boot of the machine: if it is that of the process which had the pool,
/// everything counts that was stored.
pub(crate) fn check_left_pool<M: Media>(
    design: &Design<M>,
    region: &Region<M>,
    boot: Boot,
) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::new();
    let mut failure = None;
    check_each(design, region, boot, &mut |key, value| {
        failure = failure.take().or_else(|| note(&mut pairs, key, value, true).err());
    })?;
    failure.map_or(Ok(pairs), |failure| Err(failure.at("check of the pool")))
}

fn check_each<M: Media>(
    design: &Design<M>,
    region: &Region<M>,
    boot: Boot,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<(), Failure> {
    let mut visited = 0_u64;
    let checked = design.check(region, boot, &mut |key, value| {
        visited += 1;
        visit(key, value);
    })?;
    let items = checked.items;
    ensure!(items == visited, "check counted {items} pairs and visited {visited}");
    let (reachable, bytes) = (checked.reachable_bytes, region.media().bytes());
    ensure!(reachable <= bytes, "check reached {reachable} bytes of a pool of {bytes}");
    Ok(())
}

/// Compares a table at rest with the pairs that it should hold: by scan, by reading every key that
/// it may know, by count, and by both checks.
///
/// # Errors
/// A failure for the first difference.
pub fn read_out<M: Media>(
    design: &Design<M>,
    table: &dyn Table,
    region: &Region<M>,
    expected: &Pairs,
    keys: &[Vec<u8>],
) -> Result<(), Failure> {
    let mut scan = Comparison::new("the scan", expected);
    scan_each(table, &mut |key, value| scan.meet(key, value))?;
    scan.end(false)?;
    let mut buffer = Vec::new();
    for key in keys {
        buffer.clear();
        buffer.extend_from_slice(LEFT_FROM_BEFORE);
        let found = table.get(key, &mut buffer)?.then_some(&buffer);
        let value = expected.get(key);
        ensure!(
            found == value,
            "get of {} returned {}; it should return {}",
            show(key),
            found.map_or("none".into(), |value| show(value)),
            value.map_or("none".into(), |value| show(value)),
        );
        ensure!(
            table.contains(key)? == value.is_some(),
            "contains of {} is not {}",
            show(key),
            value.is_some()
        );
    }
    let (count, exact) = (expected.len() as u64, design.capabilities.exact_len);
    let (length, checked) = (table.len()?, table.check()?);
    ensure!(!exact || length == count, "len returned {length}; there are {count} pairs");
    ensure!(!exact || table.is_empty()? == (count == 0), "is_empty is wrong for {count} pairs");
    if design.batches() {
        // The pool at rest has what was synced.
        table.sync()?;
    }
    ensure!(checked.items == count, "check counted {} pairs; there are {count}", checked.items);
    let mut check = Comparison::new("the check of the pool", expected);
    check_each(design, region, Boot::default(), &mut |key, value| check.meet(key, value))?;
    check.end(true)
}

/// Compares pairs that were found in one way with those that should be there.
pub(crate) fn compare(way: &'static str, found: &Pairs, expected: &Pairs) -> Result<(), Failure> {
    let mut comparison = Comparison::new(way, expected);
    found.iter().for_each(|(key, value)| comparison.meet(key, value));
    comparison.end(true)
}

/// Compares pairs with those that should be there, as they are found. Copies none of them: a judge
/// does this several times for each of a hundred thousand crash states.
struct Comparison<'a> {
    /// The way in which they are found.
    way: &'static str,
    expected: &'a Pairs,
    /// Which of the expected keys were found.
    met: Vec<&'a Vec<u8>>,
    wrong: Option<Failure>,
}

impl<'a> Comparison<'a> {
    fn new(way: &'static str, expected: &'a Pairs) -> Comparison<'a> {
        Comparison { way, expected, met: Vec::with_capacity(expected.len()), wrong: None }
    }

    /// Takes a pair that was found.
    fn meet(&mut self, key: &[u8], value: &[u8]) {
        match self.expected.get_key_value(key) {
            Some((key, expected)) if expected == value => self.met.push(key),
            _ if self.wrong.is_some() => {}
            Some((key, expected)) => {
                let (key, found, value) = (show(key), show(value), show(expected));
                self.wrong =
                    Some(Failure::new(format!("{} has {key} = {found}, not {value}", self.way)));
            }
            None => {
                let key = show(key);
                self.wrong = Some(Failure::new(format!("{} has {key}, which is absent", self.way)));
            }
        }
    }

    /// Takes that this is all. Whether a pair may be found `once` only.
    fn end(mut self, once: bool) -> Result<(), Failure> {
        self.wrong.map_or(Ok(()), Err)?;
        // Where a key lies says which it is, in less time than its bytes.
        let place = |key: &&Vec<u8>| core::ptr::from_ref(*key);
        self.met.sort_unstable_by_key(place);
        let way = self.way;
        let twice = self.met.windows(2).find(|keys| place(&keys[0]) == place(&keys[1]));
        if let Some(twice) = twice.filter(|_| once) {
            return Err(Failure::new(format!("{way} visited {} twice", show(twice[0]))));
        }
        let is_met = |key: &&Vec<u8>| self.met.binary_search_by_key(&place(key), place).is_ok();
        let missing = self.expected.keys().find(|key| !is_met(key));
        missing.map_or(Ok(()), |key| Err(Failure::new(format!("{way} has no {}", show(key)))))
    }
}

fn note(pairs: &mut Pairs, key: &[u8], value: &[u8], once: bool) -> Result<(), Failure> {
    match pairs.entry(key.to_vec()) {
        Entry::Vacant(place) => {
            place.insert(value.to_vec());
        }
        Entry::Occupied(_) if once => {
            return Err(Failure::new(format!("{} was visited twice", show(key))));
        }
        Entry::Occupied(place) => ensure!(
            place.get() == value,
            "the scan showed {} with two values, {} and {}",
            show(key),
            show(place.get()),
            show(value)
        ),
    }
    Ok(())
}
