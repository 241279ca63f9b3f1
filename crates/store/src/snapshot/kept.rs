//! What snapshots keep: the value of each key from before its first write.
//!
//! A snapshot begins while no write is under way. From then on every write keeps what its keys had,
//! before it changes them; so a value that a reader finds in the table is the one of the instant
//! unless something was kept for its key, and the reader looks for that afterwards.
//!
//! All snapshots share what is kept. They are numbered as they begin, and a value is kept under the
//! number of the newest one: it is what the key had at that instant, and at every one before it
//! back to the value that was kept before. So a write copies at most once, however many there are.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use everhash_index::{Result, Table};

/// How many maps share the keys, so that writers seldom wait for one another.
pub(crate) const STRIPES: usize = 64;

/// What an entry takes beside its key and value. Unit: bytes. Source: ours; three boxes, their
/// headers in the allocator, and a slot of a map that may be half empty.
const ENTRY_BYTES: usize = 160;

/// Keeps the value of a key for the snapshots there are.
pub(crate) type Save<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// All snapshots of a database.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Whether there are any. Only changes from false to true while no write is under way.
    alive: AtomicBool,
    all: RwLock<All>,
    old: Arc<OldValues>,
}

#[derive(Debug, Default)]
struct All {
    /// The number of the snapshot that began last.
    last: u64,
    /// The oldest first.
    live: Vec<Arc<Kept>>,
}

/// What is kept for one snapshot.
#[derive(Debug)]
pub(crate) struct Kept {
    number: u64,
    limit: usize,
    /// What was kept of which it needs a part, also if others need it, too.
    bytes: AtomicUsize,
    /// Whether the limit was reached: then it needs nothing any more.
    full: AtomicBool,
    old: Arc<OldValues>,
}

/// What is kept for all.
#[derive(Debug)]
struct OldValues {
    bytes: AtomicUsize,
    /// How many they were when what nobody needed was let go of the last time.
    left: AtomicUsize,
    hasher: RandomState,
    stripes: [Mutex<Map>; STRIPES],
}

/// The values that each key had, the oldest first.
type Map = HashMap<Box<[u8]>, Vec<Version>>;

/// A value that a key had.
#[derive(Debug)]
struct Version {
    /// The newest snapshot whose it is.
    number: u64,
    /// `None` if the key was absent.
    value: Option<Box<[u8]>>,
}

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
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.last += 1;
        let kept = Arc::new(Kept {
            number: all.last,
            limit,
            bytes: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            old: Arc::clone(&self.old),
        });
        all.live.push(Arc::clone(&kept));
        self.alive.store(true, Ordering::Relaxed);
        kept
    }

    /// Ends a snapshot; returns whether it was the last one.
    pub(crate) fn end(&self, kept: &Arc<Kept>) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.live.retain(|other| !Arc::ptr_eq(other, kept));
        self.alive.store(!all.live.is_empty(), Ordering::Relaxed);
        let rest = Rest::of(&all);
        drop(all);
        self.old.tidy(&rest);
        rest.live.is_empty()
    }

    /// Keeps the values of the keys that `touch` names, for every snapshot that needs them.
    #[cold]
    pub(crate) fn save(
        &self,
        table: &dyn Table,
        touch: impl FnOnce(&mut Save<'_>) -> Result<()>,
    ) -> Result<()> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        touch(&mut |key| self.old.save(&all, table, key))
    }
}

/// The snapshots that still need something.
struct Rest {
    /// Their numbers, in order.
    live: Vec<u64>,
    /// Those that begin later have greater numbers.
    last: u64,
    /// At most so much was kept that they need.
    bytes: usize,
}

impl Rest {
    fn of(all: &All) -> Rest {
        let needing = || all.live.iter().filter(|kept| !kept.is_full());
        Rest {
            live: needing().map(|kept| kept.number).collect(),
            last: all.last,
            bytes: needing().map(|kept| kept.bytes.load(Ordering::Relaxed)).sum(),
        }
    }

    /// Returns whether one of them needs the value of this number, kept behind that of another.
    fn needs(&self, before: u64, number: u64) -> bool {
        let first_behind = self.live.partition_point(|live| *live <= before);
        number > self.last || self.live.get(first_behind).is_some_and(|live| *live <= number)
    }
}

impl Default for OldValues {
    fn default() -> Self {
        OldValues {
            bytes: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            hasher: RandomState::new(),
            stripes: core::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl OldValues {
    fn stripe(&self, key: &[u8]) -> MutexGuard<'_, Map> {
        lock(&self.stripes[self.hasher.hash_one(key) as usize % STRIPES])
    }

    /// Keeps the value of a key before its first write behind a snapshot.
    fn save(&self, all: &All, table: &dyn Table, key: &[u8]) -> Result<()> {
        let mut stripe = self.stripe(key);
        let before = stripe.get(key).and_then(|versions| versions.last());
        let before = before.map_or(0, |version| version.number);
        let newer = all.live.iter().rev().take_while(|kept| kept.number > before);
        let mut needing = newer.filter(|kept| !kept.is_full()).peekable();
        let Some(newest) = needing.peek() else { return Ok(()) };
        let number = newest.number;
        let mut value = Vec::new();
        let was_there = table.get(key, &mut value)?;
        let bytes = entry_bytes(key, &value);
        let (admitted, refused): (Vec<_>, Vec<_>) = needing.partition(|kept| kept.admit(bytes));
        if !admitted.is_empty() {
            let value = was_there.then(|| value.into_boxed_slice());
            stripe.entry(key.into()).or_default().push(Version { number, value });
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        drop(stripe);
        if !refused.is_empty() {
            self.tidy(&Rest::of(all));
        }
        Ok(())
    }

    /// Lets go of what nobody needs, if that may be half of what is kept: if more than twice as
    /// much is kept as the snapshots count together, each what it shares with others, or as was
    /// left the last time.
    fn tidy(&self, rest: &Rest) {
        let needed = rest.bytes.min(self.left.load(Ordering::Relaxed));
        if self.bytes.load(Ordering::Relaxed) <= 2 * needed {
            return;
        }
        for stripe in &self.stripes {
            let (mut stripe, mut freed) = (lock(stripe), 0);
            stripe.retain(|key, versions| {
                let mut before = 0;
                versions.retain(|version| {
                    let is_needed = rest.needs(before, version.number);
                    before = version.number;
                    if !is_needed {
                        freed += entry_bytes(key, version.value.as_deref().unwrap_or_default());
                    }
                    is_needed
                });
                !versions.is_empty()
            });
            let count = stripe.len();
            stripe.shrink_to(2 * count);
            drop(stripe);
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
        self.left.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Kept {
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Counts what is kept for it, before the write; returns whether it may be. Otherwise no reader
    /// takes the value of the write for the old one: from here on all are told that it is full.
    fn admit(&self, bytes: usize) -> bool {
        let is_within = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit;
        if !is_within {
            self.full.store(true, Ordering::SeqCst);
        }
        is_within
    }

    /// Returns the value of the instant among those that were kept for a key.
    fn own<'v>(&self, versions: &'v [Version]) -> Option<&'v Version> {
        versions.get(versions.partition_point(|version| version.number < self.number))
    }

    /// Looks for a key whose value in the table was read before.
    pub(crate) fn find(&self, key: &[u8]) -> Found {
        let stripe = self.old.stripe(key);
        if self.is_full() {
            return Found::Full;
        }
        match stripe.get(key).and_then(|versions| self.own(versions)) {
            Some(version) => Found::Was(version.value.as_ref().map(|old| old.to_vec())),
            None => Found::Unchanged,
        }
    }

    /// Returns the pairs that were kept in a stripe; `None` if the limit was reached.
    pub(crate) fn pairs(&self, stripe: usize) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let stripe = lock(&self.old.stripes[stripe]);
        if self.is_full() {
            return None;
        }
        let own = stripe.iter().filter_map(|(key, versions)| {
            Some((key.to_vec(), self.own(versions)?.value.as_ref()?.to_vec()))
        });
        Some(own.collect())
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

/// The maps are whole whenever their lock is free.
fn lock(stripe: &Mutex<Map>) -> MutexGuard<'_, Map> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Db;

    /// Returns how many values are kept, and the bytes that they are said to take.
    fn kept(snapshots: &Snapshots) -> (usize, usize) {
        let versions = |stripe| lock(stripe).values().map(Vec::len).sum::<usize>();
        let count = snapshots.old.stripes.iter().map(versions).sum();
        (count, snapshots.old.bytes.load(Ordering::Relaxed))
    }

    fn save(snapshots: &Snapshots, db: &Db, key: &str) {
        let touch = |save: &mut Save<'_>| save(key.as_bytes());
        db.core().read(|table| snapshots.save(table, touch)).unwrap();
    }

    /// Makes a database of one pair.
    fn with_a_pair() -> (tempfile::TempDir, Db) {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::create(directory.path().join("pairs.ehdb")).unwrap();
        db.put("key", "value").unwrap();
        (directory, db)
    }

    #[test]
    fn a_limit_is_kept_to_the_byte_and_beyond_it_nothing_is_kept() {
        // Fails if a snapshot that is full held its memory for as long as somebody has it.
        let (_directory, db) = with_a_pair();
        let limit = 2 * ENTRY_BYTES + "key".len() + "value".len() + "new".len();
        for (limit, is_full) in [(limit, false), (limit - 1, true)] {
            let snapshots = Snapshots::default();
            let of_one = snapshots.begin(limit);
            for key in ["key", "new", "key"] {
                save(&snapshots, &db, key);
            }
            assert_eq!(matches!(of_one.find(b"key"), Found::Full), is_full, "{limit}");
            assert_eq!(kept(&snapshots), if is_full { (0, 0) } else { (2, limit) });
        }
    }

    #[test]
    fn what_many_snapshots_share_hides_nothing_that_nobody_needs() {
        // Fails if it counted for each of them: then as much as all of them together may lie there
        // though nobody needs it.
        let (_directory, db) = with_a_pair();
        let one = ENTRY_BYTES + "key".len() + "value".len();
        let snapshots = Snapshots::default();
        let _shared: Vec<_> = (0..10).map(|_| snapshots.begin(1 << 20)).collect();
        save(&snapshots, &db, "key");
        for _ in 0..20 {
            let passing = snapshots.begin(1 << 20);
            save(&snapshots, &db, "key");
            snapshots.end(&passing);
            assert!(kept(&snapshots).1 <= 2 * one, "{:?} for {one}", kept(&snapshots));
        }
    }

    #[test]
    fn a_snapshot_that_is_full_takes_nothing_from_another() {
        // Fails if what one lets go of were lost for all, or if an older one were charged for what
        // only a newer one needs.
        let (_directory, db) = with_a_pair();
        let one = ENTRY_BYTES + "key".len() + "value".len();
        let snapshots = Snapshots::default();
        let (small, large) = (snapshots.begin(one - 1), snapshots.begin(one));
        save(&snapshots, &db, "key");
        assert!(matches!(small.find(b"key"), Found::Full));
        assert!(matches!(large.find(b"key"), Found::Was(Some(value)) if value == b"value"));
        let newer = snapshots.begin(2 * one);
        save(&snapshots, &db, "key");
        assert!(matches!(large.find(b"key"), Found::Was(Some(_))), "it needs nothing more");
        assert!(matches!(newer.find(b"key"), Found::Was(Some(_))));
        assert_eq!(kept(&snapshots), (2, 2 * one));
        assert!(!snapshots.end(&newer) && !snapshots.end(&small));
        assert!(snapshots.end(&large));
        assert_eq!(kept(&snapshots), (0, 0));
    }

    #[test]
    fn a_value_is_kept_once_however_many_snapshots_need_it() {
        // Fails if each snapshot had a copy of its own: then writes beside fifty took fifty times
        // as long.
        let (_directory, db) = with_a_pair();
        let snapshots: Vec<_> = (0..50).map(|_| db.snapshot().unwrap()).collect();
        db.put("key", "new").unwrap();
        db.put("key", "newer").unwrap();
        assert_eq!(kept(db.core().snapshots()).0, 1);
        let is_old = |snapshot: &crate::Snapshot| snapshot.get("key").unwrap().unwrap() == b"value";
        assert!(snapshots.iter().all(is_old));
    }

    #[test]
    fn every_snapshot_sees_its_instant_whichever_others_begin_and_end() {
        // Fails if a value were kept under a wrong number, if the end of one took what another
        // needs, or if what nobody needs stayed.
        const KEYS: u8 = 8;
        let directory = tempfile::tempdir().unwrap();
        for seed in 0..12_u64 {
            let db = Db::create(directory.path().join(format!("{seed}.ehdb"))).unwrap();
            let (mut model, mut live) = (BTreeMap::new(), Vec::new());
            let mut random = seed;
            for step in 0..400_u64 {
                random = (random ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
                let key = vec![b'a' + (random >> 8) as u8 % KEYS];
                match random % 8 {
                    0..=3 => {
                        let value = step.to_le_bytes().to_vec();
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                    4 => {
                        db.remove(&key).unwrap();
                        model.remove(&key);
                    }
                    5 | 6 if live.len() < 12 => live.push((db.snapshot().unwrap(), model.clone())),
                    _ if !live.is_empty() => {
                        live.swap_remove((random >> 16) as usize % live.len());
                    }
                    _ => {}
                }
                for (snapshot, model) in &live {
                    for key in (b'a'..b'a' + KEYS).map(|key| vec![key]) {
                        let found = snapshot.get(&key).unwrap();
                        assert_eq!(found.as_ref(), model.get(&key), "seed {seed}, step {step}");
                    }
                }
                if let Some((snapshot, model)) = live.first().filter(|_| step % 50 == 0) {
                    let pairs: BTreeMap<_, _> = snapshot.iter().map(|pair| pair.unwrap()).collect();
                    assert_eq!(&pairs, model, "seed {seed}, step {step}");
                }
                let snapshots = db.core().snapshots();
                let rest = Rest::of(&snapshots.all.read().unwrap());
                let (count, bytes) = kept(snapshots);
                assert!(bytes <= 2 * rest.bytes, "{bytes} bytes for {}", rest.bytes);
                assert!(bytes >= count * ENTRY_BYTES);
            }
            live.clear();
            assert_eq!(kept(db.core().snapshots()), (0, 0), "seed {seed}");
        }
    }
}
