//! The ways to ask a damaged pool for what it holds, each judged by itself.

use std::collections::BTreeSet;

use everhash_index::{Cursor, Error, Table};

use super::Judged;
use super::victim::Victim;
use crate::Failure;
use crate::failure::show;
use crate::model::Pairs;

/// How many pairs a scan may visit before it counts as endless.
const ENDLESS: u32 = 1 << 20;

/// What a pool answered.
#[derive(Default)]
pub(super) struct Told {
    /// Answers that were errors.
    pub errors: u64,
    /// An error that names no damage.
    pub other: Option<String>,
    /// Keys of the pool about which something wrong was said, and not as an error.
    pub wrong: BTreeSet<Vec<u8>>,
    /// Keys that the pool does not hold, and that were said to be there.
    pub strangers: BTreeSet<Vec<u8>>,
    /// By how much the number of pairs was wrong.
    pub miscounted: u64,
    /// The first wrong answer.
    pub story: Option<String>,
}

impl Told {
    /// Counts an error. After the first one a table may refuse everything.
    pub fn note(&mut self, error: &Error) {
        let refuses = self.errors > 0 && matches!(error, Error::Poisoned);
        if !refuses && !matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. }) {
            self.other.get_or_insert_with(|| error.to_string());
        }
        self.errors += 1;
    }

    /// Writes down a wrong answer about a key.
    fn accuse(&mut self, victim: &Victim, way: &str, key: &[u8], found: &str) {
        let keys = match victim.pairs.contains_key(key) {
            true => &mut self.wrong,
            false => &mut self.strangers,
        };
        keys.insert(key.to_vec());
        self.story.get_or_insert_with(|| {
            let right = victim.pairs.get(key).map_or("none".into(), |value| show(value));
            format!("{way} of {} returned {found}; right is {right}, or an error", show(key))
        });
    }
}

/// A way to ask: from some key on, in an open table.
pub(super) type Way = fn(&Victim, &dyn Table, usize, &mut Told) -> Judged<()>;

/// Every way.
pub(super) const ALL: [Way; 5] = [get, contains, get_many, scan, len];

/// Returns the keys that the pool may hold and as many that it lacks, beginning with one of them.
fn keys(victim: &Victim, first: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (0..2 * victim.numbers).map(|n| victim.shape.key(n)).collect();
    let count = keys.len().max(1);
    keys.rotate_left(first % count);
    keys
}

fn get(victim: &Victim, table: &dyn Table, first: usize, told: &mut Told) -> Judged<()> {
    let mut value = Vec::new();
    for key in keys(victim, first) {
        match table.get(&key, &mut value) {
            Ok(there) if there.then_some(&value) == victim.pairs.get(&key) => {}
            Ok(there) => {
                let found = if there { show(&value) } else { "none".into() };
                told.accuse(victim, "get", &key, &found);
            }
            Err(error) => told.note(&error),
        }
    }
    Ok(())
}

fn contains(victim: &Victim, table: &dyn Table, first: usize, told: &mut Told) -> Judged<()> {
    for key in keys(victim, first) {
        match table.contains(&key) {
            Ok(there) if there == victim.pairs.contains_key(&key) => {}
            Ok(there) => told.accuse(victim, "contains", &key, &there.to_string()),
            Err(error) => told.note(&error),
        }
    }
    Ok(())
}

/// Answers that come before an error count: the caller has them.
fn get_many(victim: &Victim, table: &dyn Table, first: usize, told: &mut Told) -> Judged<()> {
    let keys = keys(victim, first);
    // A few at a time, so that one error does not excuse all that follows.
    for keys in keys.chunks(7) {
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let outcome = table.get_many(&slices, &mut |position, value| {
            let key = &keys[position];
            if value != victim.pairs.get(key).map(Vec::as_slice) {
                let found = value.map_or("none".into(), show);
                told.accuse(victim, "get_many", key, &found);
            }
        });
        outcome.unwrap_or_else(|error| told.note(&error));
    }
    Ok(())
}

/// An endless scan is a failure whatever the pool holds.
pub(super) fn scan(victim: &Victim, table: &dyn Table, _: usize, told: &mut Told) -> Judged<()> {
    let (mut found, mut visits, mut next) = (Pairs::new(), 0, Some(Cursor::default()));
    let mut whole = true;
    while let Some(cursor) = next {
        let mut part = Vec::new();
        let outcome = table.scan(cursor, &mut |key, value| {
            visits += 1;
            part.push((key.to_vec(), value.to_vec()));
        });
        found.extend(part);
        let outcome = outcome.or_else(|error| {
            told.note(&error);
            whole = false;
            match error {
                Error::Corrupt { .. } => table.scan_past(cursor),
                _ => Ok(None),
            }
        });
        next = outcome.unwrap_or_else(|error| {
            told.note(&error);
            None
        });
        visits += 1;
        if visits > ENDLESS {
            return Err(Failure::new("a scan does not end"));
        }
    }
    for (key, value) in &found {
        match victim.pairs.get(key) {
            Some(right) if right == value => {}
            _ => told.accuse(victim, "scan", key, &show(value)),
        }
    }
    // Only a scan that came to its end says that something is absent.
    for key in victim.pairs.keys().filter(|key| whole && !found.contains_key(*key)) {
        told.accuse(victim, "scan", key, "none");
    }
    Ok(())
}

fn len(victim: &Victim, table: &dyn Table, _: usize, told: &mut Told) -> Judged<()> {
    let right = victim.pairs.len() as u64;
    match table.len() {
        Ok(count) if count == right || !victim.design.capabilities.exact_len => {}
        Ok(count) => {
            told.miscounted = count.abs_diff(right);
            let what = || format!("len returned {count}; right is {right}, or an error");
            told.story.get_or_insert_with(what);
        }
        Err(error) => told.note(&error),
    }
    Ok(())
}
