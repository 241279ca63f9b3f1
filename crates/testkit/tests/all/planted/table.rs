//! The open table: opening, reading, and the operations of the contract.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{
    Change, Checked, Cursor, Error, Form, Result, Stats, Table, Upkeep, WordTable, admit,
};
use everhash_pmem::{
    Access, AtomicWord, LINE, Lock, Media, Pool, Primitives, Sequence, Shutdown, Space, Span, pool,
    word_of,
};

use super::bug::Bug;
use super::check;
use super::engine::sites;
use super::layout::{Bucket, Home, ROOT, Root, SLOT_WORDS, SLOTS, Two, bytes, hash, tag, two};

type MutexOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;

/// The proof that the writer's lock is held.
pub type Guard<'a, M> = <MutexOf<M, Writer> as Lock<Writer>>::Guard<'a>;

/// An open table.
pub struct SlotsTable<M: Media> {
    pub pool: Pool<M>,
    pub bug: Bug,
    pub space: Space<M>,
    /// Odd while a change is visible and not durable.
    pub sequence: Sequence<M::Sync>,
    key_bytes: usize,
    value_bytes: usize,
    form: Form,
    writer: MutexOf<M, Writer>,
    /// The number of pairs, kept beside the lock; only a bug looks at it.
    beside: <M::Sync as Primitives>::AtomicU64,
    /// A second lock, for the bug that takes two in two orders.
    other: MutexOf<M, ()>,
}

/// What writers share.
pub struct Writer {
    /// The buckets.
    pub home: Home,
    /// The number of pairs.
    pub count: u64,
    /// Whether a growth found no room; only a bug looks at it.
    pub refused: bool,
}

/// A bucket, loaded.
pub type Loaded = [u64; Bucket::WORDS];

/// A pair of a bucket.
#[derive(Clone, Copy)]
pub struct Found {
    pub slot: usize,
    pub key: Two,
    pub value: Two,
}

/// Returns the pairs of a bucket.
pub fn pairs(bucket: &Loaded) -> impl Iterator<Item = Found> + '_ {
    (0..SLOTS).filter(|slot| bucket[Bucket::VALID] >> slot & 1 != 0).map(|slot| {
        let words = &bucket[Bucket::PAIRS + slot * SLOT_WORDS..][..SLOT_WORDS];
        Found { slot, key: [words[0], words[1]], value: [words[2], words[3]] }
    })
}

impl<M: Media> SlotsTable<M> {
    /// Opens and recovers.
    pub fn open(pool: Pool<M>, bug: Bug) -> Result<Self> {
        let form = Form::from_code(pool.identity().form);
        let Form::Fixed { key_bytes, value_bytes } = form else {
            return Err(Error::Corrupt { at: 0, broken: "the form is a fixed one" });
        };
        pool.begin_writes()?;
        let clean = pool.previous_shutdown() == Shutdown::Clean;
        let bug = match bug {
            Bug::LeakOfRecovered if !clean => Bug::Leak,
            bug => bug,
        };
        let pm = pool.access();
        if !clean && bug == Bug::JournalApart {
            restore_apart(&pm)?;
        } else if !clean && bug != Bug::RecoverySkipped {
            restore(&pm, bug)?;
        }
        if bug == Bug::ReadOnlyWrites {
            pm.store(ROOT.plus(Root::SPARE as u64), pm.load(ROOT.plus(Root::SPARE as u64))? + 1)?;
        }
        let home = home(&pm, bug)?;
        let space = Space::new(pool.region().clone(), pool::DATA);
        if bug == Bug::LostHole {
            space.claim(Span::new(pool::DATA, home.start.word() - pool::DATA.word()))?;
        }
        if bug != Bug::DoubleHandOut {
            space.claim(Span::new(home.start, home.buckets() * Bucket::WORDS as u64))?;
        }
        let mut count = 0;
        for index in 0..home.buckets() {
            count += u64::from(pm.load(home.bucket(index))?.count_ones());
        }
        if clean || bug == Bug::StaleCount {
            count = pm.load(ROOT.plus(Root::COUNT as u64))?;
        }
        if !clean && bug != Bug::NotRepersisted {
            pm.sync(sites::RECOVERED)?;
        }
        drop(pm);
        pool.recovered()?;
        Ok(SlotsTable {
            pool,
            bug,
            space,
            sequence: Sequence::new(),
            key_bytes: key_bytes as usize,
            value_bytes: value_bytes as usize,
            form,
            writer: Lock::new(Writer { home, count, refused: false }),
            beside: AtomicWord::new(count),
            other: Lock::new(()),
        })
    }

    /// Takes the writer's lock.
    pub fn lock(&self) -> Result<Guard<'_, M>> {
        let guard = self.writer.lock()?;
        self.sequence.read()?;
        if self.bug == Bug::LockOnMedium {
            let pm = self.pool.access();
            let lock = ROOT.plus(Root::LOCK as u64);
            if pm.load(lock)? != 0 {
                return Err(Error::Poisoned);
            }
            pm.commit_word(lock, 1, sites::LOCK)?;
            pm.persist(Span::new(lock, 1), sites::LOCK)?;
        }
        Ok(guard)
    }

    /// Notes that the number of pairs changed, beside the lock.
    pub fn note_count(&self, before: u64, after: u64) {
        let count = self.beside.load(Ordering::Acquire);
        self.beside.store(count.wrapping_add(after).wrapping_sub(before), Ordering::Release);
    }

    /// Takes the second lock, which only bugs need.
    pub fn lock_other(&self) -> Result<impl Sized + '_> {
        Ok(self.other.lock()?)
    }

    /// Gives the writer's lock back.
    pub fn unlock(&self, guard: Guard<'_, M>) -> Result<()> {
        if self.bug == Bug::LockOnMedium {
            let pm = self.pool.access();
            let lock = ROOT.plus(Root::LOCK as u64);
            pm.commit_word(lock, 0, sites::LOCK)?;
            pm.persist(Span::new(lock, 1), sites::LOCK)?;
        }
        drop(guard);
        Ok(())
    }

    /// Returns the hash of a key.
    pub fn hash(&self, key: Two) -> u64 {
        hash(key, self.pool.identity().hash_key)
    }

    /// Reads the bucket of a hash, as it is now.
    pub fn bucket(&self, pm: &Access<'_, M>, hash: u64) -> everhash_pmem::Result<Loaded> {
        let home = home(pm, self.bug)?;
        let mut bucket = [0; Bucket::WORDS];
        pm.read_words(home.bucket(home.index(hash)), &mut bucket)?;
        Ok(bucket)
    }

    /// Finds a key in a bucket.
    pub fn find(&self, bucket: &Loaded, key: Two, hash: u64) -> Option<Found> {
        pairs(bucket).find(|found| {
            let tags = (bucket[Bucket::TAGS] >> (8 * found.slot)) as u8 == tag(hash);
            match self.bug {
                Bug::TagOnly => tags,
                Bug::HalfKey => found.key[0] == key[0],
                _ => tags && found.key == key,
            }
        })
    }

    /// Reads under the sequence: what is returned belongs together and is durable.
    fn read<R>(&self, mut read: impl FnMut() -> everhash_pmem::Result<R>) -> Result<R> {
        match self.bug {
            Bug::EarlyRead => Ok(read()?),
            Bug::TornRead | Bug::ParityOnly => loop {
                if self.sequence.read()?.is_some() {
                    let found = read()?;
                    if self.bug == Bug::TornRead || self.sequence.read()?.is_some() {
                        return Ok(found);
                    }
                }
                <M::Sync as Primitives>::pause(0);
            },
            _ => Ok(self.sequence.read_with(read)?),
        }
    }

    /// Looks a key up without a lock.
    fn look_up(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if key.len() != self.key_bytes {
            return Ok(None);
        }
        let (key, pm) = (two(key), self.pool.access());
        let hash = self.hash(key);
        let found =
            self.read(|| Ok(self.find(&self.bucket(&pm, hash)?, key, hash).map(|it| it.value)))?;
        Ok(found.map(|value| bytes(value, self.value_bytes)))
    }

    fn admit(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let answer = admit(self.form, key, value);
        if answer.is_err() && self.bug == Bug::ErrorShowsKey {
            let what = format!("the key {}", String::from_utf8_lossy(key));
            return Err(Error::Unsupported { what });
        }
        answer
    }

    /// Changes a key by its value's bytes.
    fn edit<T>(
        &self,
        key: &[u8],
        edit: impl FnOnce(Option<&[u8]>) -> Result<(T, Change)>,
    ) -> Result<T> {
        let length = self.value_bytes;
        self.write(two(key), |value| {
            let value = value.map(|value| bytes(value, length));
            let (answer, change) = edit(value.as_deref())?;
            if let Change::Put(value) = &change {
                self.admit(key, value)?;
            }
            Ok((answer, change))
        })
    }
}

/// Returns the buckets that the root names.
pub fn home<M: Media>(pm: &Access<'_, M>, bug: Bug) -> everhash_pmem::Result<Home> {
    let mut home = Home::of(pm.load(ROOT.plus(Root::TABLE as u64))?);
    if bug == Bug::TornRoot {
        home.log2 = pm.load(ROOT.plus(Root::LOG2 as u64))? as u32;
    }
    Ok(home)
}

/// Restores the value of an update that did not end.
fn restore<M: Media>(pm: &Access<'_, M>, bug: Bug) -> Result<()> {
    let journal = ROOT.plus(Root::JOURNAL as u64);
    let Some(value) = everhash_pmem::Addr::from_medium(pm.load(journal)?) else {
        return Err(Error::Corrupt { at: journal.byte(), broken: "the journal names a value" });
    };
    if value.is_null() {
        return Ok(());
    }
    if bug == Bug::JournalClearedFirst {
        pm.commit_word(journal, 0, sites::DONE)?;
        pm.persist(Span::new(journal, 1), sites::DONE)?;
    }
    let mut old = [0; 2];
    pm.read_words(ROOT.plus(Root::OLD as u64), &mut old)?;
    pm.write_words(value, &old)?;
    pm.persist(Span::new(value, 2), sites::RESTORE)?;
    pm.commit_word(journal, 0, sites::DONE)?;
    pm.persist(Span::new(journal, 1), sites::DONE)?;
    Ok(())
}

/// As [`restore`], of a journal in two lines: only both together count.
fn restore_apart<M: Media>(pm: &Access<'_, M>) -> Result<()> {
    let journal = ROOT.plus(Root::JOURNAL as u64);
    let apart = Span::new(ROOT.plus(Root::APART as u64), 3);
    let mut old = [0; 3];
    pm.read_words(apart.start, &mut old)?;
    let value = pm.load(journal)?;
    if value == 0 {
        // The bug: what lies apart stays there.
        return Ok(());
    }
    if old[2] == 1 {
        let value = everhash_pmem::Addr::new(value);
        pm.write_words(value, &old[..2])?;
        pm.persist(Span::new(value, 2), sites::RESTORE)?;
    }
    pm.commit_word(journal, 0, sites::DONE)?;
    pm.persist(Span::new(journal, 1), sites::DONE)?;
    pm.write_words(apart.start, &[0; 3])?;
    pm.persist(apart, sites::DONE)?;
    Ok(())
}

impl<M: Media> SlotsTable<M> {
    /// Changes the value of some pair, for the bug whose clear does.
    fn change_one(&self) -> Result<()> {
        let (mut some, mut next) = (None, Some(Cursor::default()));
        while let Some(cursor) = next.filter(|_| some.is_none()) {
            next =
                self.scan(cursor, &mut |key, value| some = Some((key.to_vec(), value.to_vec())))?;
        }
        let Some((key, mut value)) = some else { return Ok(()) };
        value[0] ^= 1;
        self.update(&key, &value).map(drop)
    }
}

impl<M: Media> Table for SlotsTable<M> {
    fn form(&self) -> Form {
        self.form
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit(key, value)?;
        if self.bug == Bug::EarlyExists {
            let (key, pm) = (two(key), self.pool.access());
            let hash = self.hash(key);
            if self.find(&self.bucket(&pm, hash)?, key, hash).is_some() {
                return Ok(false);
            }
        }
        let replaces = self.bug == Bug::InsertReplaces;
        self.edit(key, |found| match found {
            Some(_) if !replaces => Ok((false, Change::Keep)),
            found => Ok((found.is_none(), Change::Put(value.to_vec()))),
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit(key, value)?;
        self.edit(key, |found| Ok((found.is_some(), Change::Put(value.to_vec()))))
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.admit(key, value)?;
        self.edit(key, |found| match found {
            Some(_) => Ok((true, Change::Put(value.to_vec()))),
            None => Ok((false, Change::Keep)),
        })
    }

    fn modify(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        if key.len() != self.key_bytes {
            // The function decides whether there is a pair to refuse.
            return match change(None) {
                Change::Put(value) => self.admit(key, &value),
                _ => Ok(()),
            };
        }
        match self.bug {
            Bug::ModifyUnlocked => {
                let decided = change(self.look_up(key)?.as_deref());
                self.edit(key, |_| Ok(((), decided)))
            }
            Bug::PanicPublishes => {
                let before = self.look_up(key)?;
                self.remove(key)?;
                let decided = match (change(before.as_deref()), before) {
                    (Change::Keep, Some(value)) => Change::Put(value),
                    (other, _) => other,
                };
                self.edit(key, |_| Ok(((), decided)))
            }
            Bug::FullModifySucceeds => match self.edit(key, |found| Ok(((), change(found)))) {
                Err(Error::Full { .. }) => Ok(()),
                outcome => outcome,
            },
            _ => self.edit(key, |found| Ok(((), change(found)))),
        }
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<u64> {
        let mut new = 0;
        for (key, value) in pairs {
            match self.put(key, value) {
                Err(Error::Full { .. }) if self.bug == Bug::FullBatchSucceeds => break,
                outcome => new += u64::from(!outcome?),
            }
        }
        Ok(new)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.look_up(key)?;
        value.extend(found.iter().flatten());
        Ok(found.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        if key.len() != self.key_bytes {
            return Ok(false);
        }
        self.edit(key, |found| Ok((found.is_some(), Change::Remove)))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.look_up(key)?.is_some())
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let pm = self.pool.access();
        let before = home(&pm, self.bug)?;
        for (position, key) in keys.iter().enumerate() {
            let value = match self.bug == Bug::BatchBesideGrowth && key.len() == self.key_bytes {
                true => {
                    let (key, hash) = (two(key), self.hash(two(key)));
                    let found = self.read(|| {
                        let mut bucket = [0; Bucket::WORDS];
                        pm.read_words(before.bucket(before.index(hash)), &mut bucket)?;
                        Ok(self.find(&bucket, key, hash).map(|it| it.value))
                    })?;
                    found.map(|value| bytes(value, self.value_bytes))
                }
                false => self.look_up(key)?,
            };
            found(position, value.as_deref());
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let writer = self.writer.lock()?;
        Ok(writer.count)
    }

    fn scan(&self, cursor: Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<Cursor>> {
        let pm = self.pool.access();
        let by_index = self.bug == Bug::ScanByIndex;
        let before = home(&pm, self.bug)?;
        let (found, next) = self.read(|| {
            let home = match self.bug {
                Bug::ScanBesideGrowth => before,
                _ => home(&pm, self.bug)?,
            };
            let index = match cursor.0 {
                0 if by_index => home.buckets() - 1,
                number if by_index => number - 1,
                hash => home.index(hash),
            };
            let mut bucket = [0; Bucket::WORDS];
            pm.read_words(home.bucket(index), &mut bucket)?;
            let next = match by_index {
                true => (index > 0).then_some(index),
                false => (index + 1 < home.buckets()).then(|| (index + 1) << (64 - home.log2)),
            };
            Ok((pairs(&bucket).collect::<Vec<Found>>(), next))
        })?;
        if self.bug == Bug::Deadlock {
            let _first = self.other.lock()?;
            let _second = self.writer.lock()?;
        }
        for Found { key, value, .. } in found {
            visit(&bytes(key, self.key_bytes), &bytes(value, self.value_bytes));
        }
        Ok(next.map(Cursor))
    }

    fn clear(&self) -> Result<()> {
        if self.bug == Bug::FullClearStops {
            let Ok(scratch) = self.space.take(LINE, LINE) else { return Ok(()) };
            self.space.give(scratch.span);
        }
        if self.bug == Bug::FullClearChanges {
            match self.space.take(LINE, LINE) {
                Ok(scratch) => self.space.give(scratch.span),
                Err(error) => return self.change_one().and(Err(error.into())),
            }
        }
        self.wipe()
    }

    fn sync(&self) -> Result<()> {
        self.sequence.read()?;
        Ok(())
    }

    fn maintain(&self, _now: Duration, _budget: u32) -> Result<Upkeep> {
        Ok(Upkeep { more: self.bug == Bug::EndlessUpkeep, ..Upkeep::default() })
    }

    fn check(&self) -> Result<Checked> {
        let _writer = self.writer.lock()?;
        check::check(self.pool.region(), self.bug, &mut |_, _| {})
    }

    fn stats(&self) -> Result<Stats> {
        let usage = self.space.usage()?;
        let writer = self.writer.lock()?;
        Ok(Stats {
            items: writer.count,
            slots: writer.home.buckets() * SLOTS as u64,
            device_bytes: self.pool.region().media().bytes(),
            used_bytes: pool::DATA.byte() + usage.used_bytes,
            growth_steps: usage.growth_steps,
            ..Stats::default()
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let count = match self.bug {
            Bug::CountOutsideLock => self.beside.load(Ordering::Acquire),
            _ => self.lock()?.count,
        };
        if self.bug == Bug::CleanBeforeCount {
            let count_at = Span::new(ROOT.plus(Root::COUNT as u64), 1);
            let region = self.pool.region().clone();
            self.pool.close()?;
            let pm = region.access();
            pm.store(count_at.start, count)?;
            pm.persist(count_at, sites::COUNT)?;
            return Ok(());
        }
        if self.pool.access().load(ROOT.plus(Root::COUNT as u64))? != count {
            let pm = self.pool.access();
            pm.store(ROOT.plus(Root::COUNT as u64), count)?;
            pm.persist(Span::new(ROOT.plus(Root::COUNT as u64), 1), sites::COUNT)?;
        }
        Ok(self.pool.close()?)
    }

    fn words(&self) -> Option<&dyn WordTable> {
        (self.form == Form::WORDS).then_some(self)
    }
}

impl<M: Media> WordTable for SlotsTable<M> {
    fn insert_word(&self, key: u64, value: u64) -> Result<bool> {
        self.insert(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn put_word(&self, key: u64, value: u64) -> Result<bool> {
        self.put(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn update_word(&self, key: u64, value: u64) -> Result<bool> {
        self.update(&key.to_le_bytes(), &value.to_le_bytes())
    }

    fn get_word(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.look_up(&key.to_le_bytes())?.map(|value| word_of(&value)))
    }

    fn remove_word(&self, key: u64) -> Result<bool> {
        self.remove(&key.to_le_bytes())
    }
}
