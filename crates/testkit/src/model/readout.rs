//! Reading everything out of a table, in every way there is.

use std::collections::btree_map::Entry;

use everhash_index::{Cursor, Design, Table};
use everhash_pmem::{Media, Region};

use super::{Pairs, outcome};
use crate::Failure;
use crate::failure::{ensure, show};

/// After how many calls of `scan` a cursor counts as endless.
///
/// Source: ours; judged tables have fewer buckets than this by far.
const SCAN_CALLS: u32 = 10_000_000;

/// Scans a table while nothing is written to it.
///
/// # Errors
/// A failure for an error, for a cursor that never ends, and for a key with two values.
pub fn scan_all(table: &dyn Table) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::new();
    let mut failure = None;
    let mut cursor = Some(Cursor::default());
    let mut calls = 0;
    while let Some(from) = cursor {
        calls += 1;
        ensure!(calls < SCAN_CALLS, "the scan did not end after {calls} calls");
        cursor = table.scan(from, &mut |key, value| {
            failure = failure.take().or_else(|| note(&mut pairs, key, value, false).err());
        })?;
    }
    failure.map_or(Ok(pairs), Err)
}

/// Reads a pool with [`Design::check`], which shares no code with the table.
///
/// # Errors
/// A failure for a broken invariant, and for a key that is visited twice.
pub fn check_pool<M: Media>(design: &Design<M>, region: &Region<M>) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::new();
    let mut failure = None;
    let checked = design.check(region, &mut |key, value| {
        failure = failure.take().or_else(|| note(&mut pairs, key, value, true).err());
    })?;
    if let Some(failure) = failure {
        return Err(failure.at("check of the pool"));
    }
    let (items, visited) = (checked.items, pairs.len());
    ensure!(items == visited as u64, "check counted {items} pairs and visited {visited}");
    let (reachable, bytes) = (checked.reachable_bytes, region.media().bytes());
    ensure!(reachable <= bytes, "check reached {reachable} bytes of a pool of {bytes}");
    Ok(pairs)
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
    compare("the scan", &scan_all(table)?, expected)?;
    for key in keys {
        let (found, value) = (outcome::get(table, key)?, expected.get(key));
        ensure!(
            found.as_ref() == value,
            "get of {} returned {}; it should return {}",
            show(key),
            found.as_deref().map_or("none".into(), show),
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
    compare("the check of the pool", &check_pool(design, region)?, expected)
}

/// Compares pairs that were found in one way with those that should be there.
pub(crate) fn compare(way: &str, found: &Pairs, expected: &Pairs) -> Result<(), Failure> {
    for (key, value) in expected {
        match found.get(key) {
            Some(there) if there == value => {}
            Some(there) => {
                let (key, there, value) = (show(key), show(there), show(value));
                return Err(Failure::new(format!("{way} has {key} = {there}, not {value}")));
            }
            None => return Err(Failure::new(format!("{way} has no {}", show(key)))),
        }
    }
    let extra = found.keys().find(|key| !expected.contains_key(*key));
    ensure!(extra.is_none(), "{way} has {}, which is absent", extra.map_or("".into(), |k| show(k)));
    Ok(())
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
