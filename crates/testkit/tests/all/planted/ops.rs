//! How the table changes: every store, in the order that matters, and every way to get it wrong.

use everhash_index::{Change, Error, Result};
use everhash_pmem::{Addr, LINE, Media, Span};

use super::bug::Bug;
use super::engine::sites;
use super::layout::{Bucket, Home, ROOT, Root, SLOT_WORDS, SLOTS, Two, slot, tag, two};
use super::table::{Found, Loaded, SlotsTable, Writer, pairs};

/// The largest table. Unit: log2 of buckets. Source: ours.
const LARGEST_LOG2: u32 = 14;

impl<M: Media> SlotsTable<M> {
    /// Changes a key. A crash leaves the value before or the one after.
    pub fn write<T>(
        &self,
        key: Two,
        edit: impl FnOnce(Option<Two>) -> Result<(T, Change)>,
    ) -> Result<T> {
        if self.bug != Bug::ReadOnlyInserts {
            self.pool.check_writable()?;
        }
        let seen = super::table::home(&self.pool.access(), self.bug)?;
        let mut writer = self.lock()?;
        if self.bug == Bug::GrowthOfTwo {
            writer.home = seen;
        }
        let before = writer.count;
        let _other = match self.bug {
            Bug::Deadlock => Some(self.lock_other()?),
            _ => None,
        };
        let pm = self.pool.access();
        let hash = self.hash(key);
        let bucket = self.bucket(&pm, hash)?;
        let found = self.find(&bucket, key, hash);
        let (answer, change) = edit(found.map(|found| found.value))?;
        drop(pm);
        match (change, found) {
            (Change::Keep, _) => {}
            (Change::Put(value), Some(_))
                if self.bug == Bug::BlindPut && free(&bucket).is_some() =>
            {
                self.add(&mut writer, key, two(&value))?;
            }
            (Change::Put(value), Some(found)) if self.bug == Bug::FullLosesPair => {
                self.erase(&mut writer, hash, &bucket, found)?;
                let scratch =
                    self.space.take(4 * writer.home.buckets() * Bucket::BYTES as u64, LINE)?;
                self.space.give(scratch.span);
                self.add(&mut writer, key, two(&value))?;
            }
            (Change::Put(value), Some(found)) => {
                self.replace(&mut writer, hash, &bucket, found, two(&value))?;
            }
            (Change::Put(value), None) => self.add(&mut writer, key, two(&value))?,
            (Change::Remove, Some(found)) => self.erase(&mut writer, hash, &bucket, found)?,
            (Change::Remove, None) if self.bug == Bug::CountDrifts => {
                writer.count = writer.count.saturating_sub(1);
            }
            (Change::Remove, None) => {}
        }
        let after = writer.count;
        self.unlock(writer)?;
        self.note_count(before, after);
        Ok(answer)
    }

    /// Adds a pair: the pair and its tag are durable before the bit that makes them true.
    fn add(&self, writer: &mut Writer, key: Two, value: Two) -> Result<()> {
        let hash = self.hash(key);
        let pm = self.pool.access();
        let mut bucket = self.bucket(&pm, hash)?;
        let mut doublings = 1;
        while free(&bucket).is_none() {
            self.grow(writer, doublings)?;
            bucket = self.bucket(&pm, hash)?;
            doublings = 1;
        }
        let index = free(&bucket).expect("growing has made room");
        let at = writer.home.bucket(writer.home.index(hash));
        let pair = Span::new(slot(at, index), SLOT_WORDS as u64);
        let tags = set_tag(bucket[Bucket::TAGS], index, tag(hash));
        let valid = bucket[Bucket::VALID] | 1 << index;
        let (valid_at, tags_at) = (at, at.plus(Bucket::TAGS as u64));
        let change = self.sequence.begin()?;
        if self.bug == Bug::CommitFirst {
            pm.commit_word(valid_at, valid, sites::BIT)?;
        }
        pm.write_words(pair.start, &[key[0], key[1], value[0], value[1]])?;
        if self.bug != Bug::TagAfterBit {
            pm.store(tags_at, tags)?;
        }
        match self.bug {
            Bug::MissingFlush => pm.flush(Span::new(tags_at, 1), sites::PAIR),
            Bug::FirstLineOnly => pm.flush(Span::new(at, 8), sites::PAIR),
            Bug::FirstLineOfSlot => {
                pm.flush(Span::new(pair.start, 1), sites::PAIR);
                pm.flush(Span::new(tags_at, 1), sites::PAIR);
            }
            _ => {
                pm.flush(pair, sites::PAIR);
                pm.flush(Span::new(tags_at, 1), sites::PAIR);
            }
        }
        let one_line = pair.end_byte() <= at.byte() + LINE;
        if !(self.bug == Bug::MissingFence || self.bug == Bug::SameLineOrder && one_line) {
            pm.fence(sites::PAIR)?;
        }
        if self.bug != Bug::CommitFirst {
            pm.commit_word(valid_at, valid, sites::BIT)?;
        }
        if self.bug == Bug::TagAfterBit {
            pm.store(tags_at, tags)?;
        }
        pm.persist(Span::new(valid_at, 1), sites::BIT)?;
        change.end();
        writer.count += 1;
        Ok(())
    }

    /// Replaces a value in place. Until the journal says that it is done, the old value counts.
    fn replace(
        &self,
        writer: &mut Writer,
        hash: u64,
        bucket: &Loaded,
        found: Found,
        value: Two,
    ) -> Result<()> {
        let at = writer.home.bucket(writer.home.index(hash));
        if let (Bug::DuplicateAfterMove, Some(index)) = (self.bug, free(bucket)) {
            return self.move_pair(at, bucket, found, index, value);
        }
        if self.bug == Bug::JournalApart {
            return self.replace_apart(at, found, value);
        }
        if self.bug == Bug::Leak {
            self.space.take(LINE, LINE)?;
        }
        let pm = self.pool.access();
        let journal = ROOT.plus(Root::JOURNAL as u64);
        let old = Span::new(ROOT.plus(Root::OLD as u64), 2);
        let place = Span::new(slot(at, found.slot).plus(2), 2);
        let change = self.sequence.begin()?;
        pm.write_words(old.start, &found.value)?;
        pm.persist(old, sites::OLD)?;
        pm.commit_word(journal, place.start.byte(), sites::JOURNAL)?;
        pm.persist(Span::new(journal, 1), sites::JOURNAL)?;
        pm.write_words(place.start, &value)?;
        if self.bug != Bug::LostUpdate {
            pm.persist(place, sites::VALUE)?;
        }
        pm.commit_word(journal, 0, sites::DONE)?;
        if self.bug != Bug::StaleJournal {
            pm.persist(Span::new(journal, 1), sites::DONE)?;
        }
        change.end();
        Ok(())
    }

    /// A bug: address and old value are two lines that one fence makes durable, and nobody takes
    /// away what a crash left of the second alone.
    fn replace_apart(&self, at: Addr, found: Found, value: Two) -> Result<()> {
        let pm = self.pool.access();
        let journal = Span::new(ROOT.plus(Root::JOURNAL as u64), 1);
        let apart = Span::new(ROOT.plus(Root::APART as u64), 3);
        let place = Span::new(slot(at, found.slot).plus(2), 2);
        let change = self.sequence.begin()?;
        pm.write_words(apart.start, &found.value)?;
        pm.commit_word(apart.start.plus(2), 1, sites::OLD)?;
        pm.flush(apart, sites::OLD);
        pm.commit_word(journal.start, place.start.byte(), sites::JOURNAL)?;
        pm.persist(journal, sites::JOURNAL)?;
        pm.write_words(place.start, &value)?;
        pm.persist(place, sites::VALUE)?;
        pm.commit_word(journal.start, 0, sites::DONE)?;
        pm.persist(journal, sites::DONE)?;
        pm.write_words(apart.start, &[0; 3])?;
        pm.persist(apart, sites::DONE)?;
        change.end();
        Ok(())
    }

    /// A bug: the new copy becomes true by one store and the old one false by another.
    fn move_pair(
        &self,
        at: Addr,
        bucket: &Loaded,
        found: Found,
        index: usize,
        value: Two,
    ) -> Result<()> {
        let pm = self.pool.access();
        let change = self.sequence.begin()?;
        let pair = Span::new(slot(at, index), SLOT_WORDS as u64);
        pm.write_words(pair.start, &[found.key[0], found.key[1], value[0], value[1]])?;
        let tags = set_tag(bucket[Bucket::TAGS], index, tag(self.hash(found.key)));
        pm.store(at.plus(Bucket::TAGS as u64), tags)?;
        pm.flush(Span::new(at, 2), sites::PAIR);
        pm.persist(pair, sites::PAIR)?;
        let both = bucket[Bucket::VALID] | 1 << index;
        pm.commit_word(at, both, sites::BIT)?;
        pm.persist(Span::new(at, 1), sites::BIT)?;
        pm.commit_word(at, both & !(1 << found.slot), sites::REMOVE)?;
        pm.persist(Span::new(at, 1), sites::REMOVE)?;
        change.end();
        Ok(())
    }

    fn erase(&self, writer: &mut Writer, hash: u64, bucket: &Loaded, found: Found) -> Result<()> {
        let at = writer.home.bucket(writer.home.index(hash));
        let pm = self.pool.access();
        let change = self.sequence.begin()?;
        pm.commit_word(at, bucket[Bucket::VALID] & !(1 << found.slot), sites::REMOVE)?;
        if self.bug != Bug::LostRemove {
            pm.persist(Span::new(at, 1), sites::REMOVE)?;
        }
        change.end();
        writer.count -= 1;
        Ok(())
    }

    /// Rebuilds the table twice as large, or larger. The old buckets stay until the root that
    /// names the new ones is durable.
    fn grow(&self, writer: &mut Writer, doublings: u32) -> Result<()> {
        let old = writer.home;
        let log2 = old.log2 + doublings;
        if log2 > LARGEST_LOG2 {
            return Err(Error::Full { needed: Bucket::BYTES as u64 });
        }
        let Some(words) = self.rebuilt(old, log2)? else {
            return self.grow(writer, doublings + 1);
        };
        let bytes = words.len() as u64 * 8;
        if self.bug == Bug::FullForEver && writer.refused {
            return Err(Error::Full { needed: bytes });
        }
        let scratch = match self.bug {
            Bug::FullLeaks => Some(self.space.take(2 * bytes, LINE)?),
            _ => None,
        };
        let taken = self.space.take(bytes, Bucket::BYTES as u64);
        writer.refused |= taken.is_err();
        let taken = taken?;
        if let Some(scratch) = scratch {
            self.space.give(scratch.span);
        }
        let new = Home { start: taken.span.start, log2 };
        let pm = self.pool.access();
        let change = self.sequence.begin()?;
        if self.bug == Bug::RootBeforeTable {
            self.switch(new)?;
        }
        pm.write_words(new.start, &words)?;
        pm.persist(taken.span, sites::BUCKETS)?;
        let before = Span::new(old.start, old.buckets() * Bucket::WORDS as u64);
        if self.bug == Bug::ScrubbedTooEarly {
            pm.write_words(before.start, &vec![0; before.words as usize])?;
            pm.flush(before, sites::BUCKETS);
        }
        if self.bug == Bug::GivenTooEarly {
            pm.commit_word(ROOT.plus(Root::TABLE as u64), new.word(), sites::ROOT)?;
            self.space.give(before);
        }
        self.switch(new)?;
        change.end();
        writer.home = new;
        if !matches!(self.bug, Bug::DoubleHandOut | Bug::GivenTooEarly) {
            self.space.give(before);
        }
        Ok(())
    }

    fn switch(&self, new: Home) -> Result<()> {
        let pm = self.pool.access();
        let root = ROOT.plus(Root::TABLE as u64);
        pm.commit_word(root, new.word(), sites::ROOT)?;
        if self.bug == Bug::TornRoot {
            let log2 = ROOT.plus(Root::LOG2 as u64);
            pm.store(log2, u64::from(new.log2))?;
            pm.flush(Span::new(log2, 1), sites::ROOT);
        }
        if self.bug != Bug::RootNotDurable {
            pm.persist(Span::new(root, 1), sites::ROOT)?;
        }
        Ok(())
    }

    /// Returns all pairs in buckets of another number, or `None` if one overflows.
    fn rebuilt(&self, old: Home, log2: u32) -> Result<Option<Vec<u64>>> {
        let new = Home { start: Addr::NULL, log2 };
        let mut words = vec![0u64; (new.buckets() * Bucket::WORDS as u64) as usize];
        let pm = self.pool.access();
        for index in 0..old.buckets() {
            let mut bucket = [0; Bucket::WORDS];
            pm.read_words(old.bucket(index), &mut bucket)?;
            for Found { key, value, .. } in pairs(&bucket) {
                let hash = self.hash(key);
                let first = new.index(hash) as usize * Bucket::WORDS;
                let target = &mut words[first..][..Bucket::WORDS];
                let free = target[Bucket::VALID].trailing_ones() as usize;
                if free == SLOTS {
                    return Ok(None);
                }
                target[Bucket::VALID] |= 1 << free;
                target[Bucket::TAGS] = set_tag(target[Bucket::TAGS], free, tag(hash));
                target[Bucket::PAIRS + free * SLOT_WORDS..][..SLOT_WORDS]
                    .copy_from_slice(&[key[0], key[1], value[0], value[1]]);
            }
        }
        Ok(Some(words))
    }

    /// Removes every pair, bucket by bucket.
    pub fn wipe(&self) -> Result<()> {
        if self.bug != Bug::ReadOnlyClears {
            self.pool.check_writable()?;
        }
        let pm = self.pool.access();
        let before = super::table::home(&pm, self.bug)?;
        let mut writer = self.lock()?;
        let home = if self.bug == Bug::ClearBesideGrowth { before } else { writer.home };
        for index in 0..home.buckets() {
            let at = home.bucket(index);
            let valid = pm.load(at)?;
            if valid == 0 {
                continue;
            }
            let change = self.sequence.begin()?;
            pm.commit_word(at, 0, sites::REMOVE)?;
            if self.bug != Bug::ClearNotDurable {
                pm.persist(Span::new(at, 1), sites::REMOVE)?;
            }
            change.end();
            writer.count = writer.count.saturating_sub(u64::from(valid.count_ones()));
        }
        drop(pm);
        self.unlock(writer)
    }
}

/// Returns the first free slot of a bucket.
fn free(bucket: &Loaded) -> Option<usize> {
    let index = bucket[Bucket::VALID].trailing_ones() as usize;
    (index < SLOTS).then_some(index)
}

fn set_tag(tags: u64, slot: usize, tag: u8) -> u64 {
    tags & !(0xff << (8 * slot)) | u64::from(tag) << (8 * slot)
}
