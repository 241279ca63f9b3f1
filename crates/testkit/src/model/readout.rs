//! Reading everything out of a table, in every way there is.

use std::collections::btree_map::Entry;

use everhash_index::{Cursor, Engine, Table};
use everhash_pmem::{Media, Region};

use super::{Pairs, outcome};
use crate::Complaint;
use crate::complaint::{ensure, show};
use crate::session::batches;

/// How many calls of `scan` may be needed for one table before the cursor counts as going round.
///
/// Source: ours; judged tables have fewer buckets than this by far.
const SCAN_CALLS: u32 = 10_000_000;

/// Scans a table while nothing is written to it.
///
/// # Errors
/// A complaint about an error, about a cursor that never ends, and about a key that is shown with
/// two values.
pub fn scan_all(table: &dyn Table) -> Result<Pairs, Complaint> {
    let mut pairs = Pairs::new();
    let mut complaint = None;
    let mut cursor = Some(Cursor::default());
    let mut calls = 0;
    while let Some(from) = cursor {
        calls += 1;
        ensure!(calls < SCAN_CALLS, "the scan did not end after {calls} calls");
        cursor = table.scan(from, &mut |key, value| {
            complaint = complaint.take().or_else(|| note(&mut pairs, key, value, false).err());
        })?;
    }
    complaint.map_or(Ok(pairs), Err)
}

/// Reads a pool with [`Engine::check`], which shares no code with the table.
///
/// # Errors
/// A complaint about a broken invariant, and about a key that is shown twice.
pub fn check_pool<E: Engine, M: Media>(region: &Region<M>) -> Result<Pairs, Complaint> {
    let mut pairs = Pairs::new();
    let mut complaint = None;
    let checked = E::check(region, &mut |key, value| {
        complaint = complaint.take().or_else(|| note(&mut pairs, key, value, true).err());
    })?;
    if let Some(complaint) = complaint {
        return Err(complaint.at("check of the pool"));
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
/// A complaint about the first difference.
pub fn read_out<E: Engine, M: Media>(
    table: &E::Table<M>,
    region: &Region<M>,
    expected: &Pairs,
    keys: &[Vec<u8>],
) -> Result<(), Complaint> {
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
    let (count, exact) = (expected.len() as u64, E::CAPABILITIES.exact_len);
    let (length, checked) = (table.len()?, table.check()?);
    ensure!(!exact || length == count, "len returned {length}; there are {count} pairs");
    ensure!(!exact || table.is_empty()? == (count == 0), "is_empty is wrong for {count} pairs");
    if batches::<E>() {
        // The pool at rest has what was synced.
        table.sync()?;
    }
    ensure!(checked.items == count, "check counted {} pairs; there are {count}", checked.items);
    compare("the check of the pool", &check_pool::<E, M>(region)?, expected)
}

/// Compares pairs that were found in one way with those that should be there.
pub(crate) fn compare(way: &str, found: &Pairs, expected: &Pairs) -> Result<(), Complaint> {
    for (key, value) in expected {
        match found.get(key) {
            Some(there) if there == value => {}
            Some(there) => {
                let (key, there, value) = (show(key), show(there), show(value));
                return Err(Complaint::new(format!("{way} has {key} = {there}, not {value}")));
            }
            None => return Err(Complaint::new(format!("{way} has no {}", show(key)))),
        }
    }
    let extra = found.keys().find(|key| !expected.contains_key(*key));
    ensure!(extra.is_none(), "{way} has {}, which is absent", extra.map_or("".into(), |k| show(k)));
    Ok(())
}

fn note(pairs: &mut Pairs, key: &[u8], value: &[u8], once: bool) -> Result<(), Complaint> {
    match pairs.entry(key.to_vec()) {
        Entry::Vacant(place) => {
            place.insert(value.to_vec());
        }
        Entry::Occupied(_) if once => {
            return Err(Complaint::new(format!("{} was visited twice", show(key))));
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
