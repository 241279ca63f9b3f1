//! What snapshots keep: the value of each key from before its first write.
//!
//! A snapshot begins while no write is under way. From then on every write keeps what its keys had,
//! before it changes them; so a value that a reader finds in the table is the one of the instant
//! unless something was kept for its key, and the reader looks for that afterwards.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use everhash_index::{Result, Table};

/// How many maps share the keys, so that writers seldom wait for one another.
pub(crate) const STRIPES: usize = 64;

/// What an entry takes beside its key and value. Unit: bytes. Source: ours; two boxes, their
/// headers in the allocator, and a slot of a map that may be half empty.
const ENTRY_BYTES: usize = 128;

/// Keeps the value of a key for the snapshots there are.
pub(crate) type Save<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// All snapshots of a database.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Whether there are any. Only changes from false to true while no write is under way.
    alive: AtomicBool,
    all: RwLock<Vec<Arc<Kept>>>,
}

/// What is kept for one snapshot.
#[derive(Debug)]
pub(crate) struct Kept {
    limit: usize,
    bytes: AtomicUsize,
    /// Whether the limit was reached: then nothing is kept.
    full: AtomicBool,
    hasher: RandomState,
    stripes: [Mutex<Map>; STRIPES],
}

/// The values that keys had; `None` for a key that was absent.
type Map = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What is known of a key at the instant.
pub(crate) enum Found {
    /// Nothing was written since.
    Unchanged,
    /// It had this value.
    Was(Option<Vec<u8>>),
    /// Too much was written since.
    Full,
}

impl Snapshots {
    /// Returns whether there are any: one relaxed load, which every write makes inside the gate.
    #[inline(always)]
    pub(crate) fn are_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Begins a snapshot, while no write is under way.
    pub(crate) fn begin(&self, limit: usize) -> Arc<Kept> {
        let kept = Arc::new(Kept {
            limit,
            bytes: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            hasher: RandomState::new(),
            stripes: core::array::from_fn(|_| Mutex::default()),
        });
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&kept));
        self.alive.store(true, Ordering::Relaxed);
        kept
    }

    /// Ends a snapshot; returns whether it was the last one.
    pub(crate) fn end(&self, kept: &Arc<Kept>) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !Arc::ptr_eq(other, kept));
        self.alive.store(!all.is_empty(), Ordering::Relaxed);
        all.is_empty()
    }

    /// Keeps the values of the keys that `touch` names, for every snapshot that needs them.
    #[cold]
    pub(crate) fn save(
        &self,
        table: &dyn Table,
        touch: impl FnOnce(&mut Save<'_>) -> Result<()>,
    ) -> Result<()> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        touch(&mut |key| all.iter().try_for_each(|kept| kept.save(table, key)))
    }
}

impl Kept {
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn stripe(&self, key: &[u8]) -> MutexGuard<'_, Map> {
        lock(&self.stripes[self.hasher.hash_one(key) as usize % STRIPES])
    }

    /// Keeps the value of a key before its first write.
    fn save(&self, table: &dyn Table, key: &[u8]) -> Result<()> {
        let mut stripe = self.stripe(key);
        if self.full.load(Ordering::SeqCst) || stripe.contains_key(key) {
            return Ok(());
        }
        let mut value = Vec::new();
        let was_there = table.get(key, &mut value)?;
        let bytes = key.len() + value.len() + ENTRY_BYTES;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            // Before the write, so that no reader takes its value for the old one.
            self.full.store(true, Ordering::SeqCst);
            drop(stripe);
            for stripe in &self.stripes {
                *lock(stripe) = Map::default();
            }
            return Ok(());
        }
        stripe.insert(key.into(), was_there.then(|| value.into_boxed_slice()));
        Ok(())
    }

    /// Looks for a key whose value in the table was read before.
    pub(crate) fn find(&self, key: &[u8]) -> Found {
        let stripe = self.stripe(key);
        if self.full.load(Ordering::SeqCst) {
            return Found::Full;
        }
        match stripe.get(key) {
            Some(old) => Found::Was(old.as_ref().map(|old| old.to_vec())),
            None => Found::Unchanged,
        }
    }

    /// Returns the pairs that were kept in a stripe; `None` if the limit was reached.
    pub(crate) fn pairs(&self, stripe: usize) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let stripe = lock(&self.stripes[stripe]);
        if self.full.load(Ordering::SeqCst) {
            return None;
        }
        let pairs =
            stripe.iter().filter_map(|(key, old)| Some((key.to_vec(), old.as_ref()?.to_vec())));
        Some(pairs.collect())
    }
}

/// The maps are whole whenever their lock is free.
fn lock(stripe: &Mutex<Map>) -> MutexGuard<'_, Map> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_to_the_byte_and_beyond_it_nothing_is_kept() {
        // Fails if a snapshot that is full held its memory for as long as somebody has it.
        let directory = tempfile::tempdir().unwrap();
        let db = crate::Db::create(directory.path().join("pairs.ehdb")).unwrap();
        db.put("key", "value").unwrap();
        let limit = 2 * ENTRY_BYTES + "key".len() + "value".len() + "new".len();
        for (limit, is_full) in [(limit, false), (limit - 1, true)] {
            let kept = Snapshots::default().begin(limit);
            for key in ["key", "new", "key"] {
                db.core().read(|table| kept.save(table, key.as_bytes())).unwrap();
            }
            assert_eq!(matches!(kept.find(b"key"), Found::Full), is_full, "{limit}");
            let entries: usize = kept.stripes.iter().map(|stripe| lock(stripe).len()).sum();
            assert_eq!(entries, if is_full { 0 } else { 2 });
        }
    }
}
