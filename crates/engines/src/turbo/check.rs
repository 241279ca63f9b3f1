//! Verifies a pool at rest: reads its pairs, or reports the invariant that is broken.
//!
//! Shares the ruler with the code that serves the table, and nothing else.

use std::collections::BTreeSet;

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, Media, Pool, Region, Span, pool};

use super::layout::{
    self, BUCKET_WORDS, Bucket, Descriptor, KeyedHash, MOST_SHARDS, Meta, Place, ROOT, Root, SLOTS,
    VERSION,
};
use crate::common::check::{
    Budget, corrupt, reachable_bytes, read_record, record_span, verify_root,
};

/// What was read of a pool.
struct Checker<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    shards: u64,
    scope: u64,
    bucket_slots: u32,
    directory: Addr,
    /// What is in use.
    spans: Vec<Span>,
    /// What may still be read of buckets and records.
    budget: Budget,
}

/// A shard, as it was read.
struct Shard {
    index: u64,
    place: Place,
    /// `None` is one that cannot be read.
    buckets: Vec<Option<(Meta, [u64; BUCKET_WORDS])>>,
}

impl Shard {
    /// Returns every slot that holds a pair, with the index of its bucket.
    fn live(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let slots = |meta: &Meta| {
            let live = meta.live();
            (0..SLOTS).filter(move |slot| live >> slot & 1 == 1)
        };
        let buckets = self.buckets.iter().enumerate();
        let read = buckets.filter_map(|(index, bucket)| Some((index, &bucket.as_ref()?.0)));
        read.flat_map(move |(index, meta)| slots(meta).map(move |slot| (index, slot)))
    }
}

/// Visits every pair once.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let mut checker = Checker::new(region)?;
    let mut items = 0;
    for index in 0..checker.shards {
        let shard = checker.read_shard(index, &mut Err)?;
        items += checker.pairs(&shard, visit)?;
    }
    let reachable_bytes = reachable_bytes(checker.spans, region.media().bytes())?;
    Ok(Checked { items, reachable_bytes })
}

/// As [`check`], but skips the pairs that are damaged, and the buckets whose META is.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut checker = Checker::new(region)?;
    for index in 0..checker.shards {
        let damaged = &mut |damage| pass_over::<()>(Err(damage), report);
        let shard = match checker.read_shard(index, damaged) {
            Ok(shard) => shard,
            Err(error) => {
                pass_over::<()>(Err(error), report)?;
                continue;
            }
        };
        let mut keys = BTreeSet::new();
        for (bucket, slot) in shard.live() {
            pass_over(checker.slot(&shard, (bucket, slot), &mut keys, visit), report)?;
        }
    }
    Ok(())
}

impl<'a, M: Media> Checker<'a, M> {
    fn new(region: &'a Region<M>) -> Result<Self> {
        let identity = Pool::inspect(region)?;
        let pm = region.access();
        let mut root = [0; Root::CHECKSUM + 1];
        pm.read_words(ROOT, &mut root)?;
        verify_root(&root, "turbo", VERSION)?;
        let (shards, lanes) = (root[Root::SHARDS], root[Root::LANES]);
        let in_range = (1..=MOST_SHARDS).contains(&shards)
            && (2..=SLOTS as u64).contains(&root[Root::BUCKET_SLOTS])
            && lanes <= 1024;
        if !in_range {
            return Err(corrupt(ROOT, "the settings of a table are in range"));
        }
        let directory = Addr::from_medium(root[Root::DIRECTORY])
            .ok_or(corrupt(ROOT.plus(Root::DIRECTORY as u64), "an address is one of a word"))?;
        let head = Span::of_bytes(Addr::NULL, pool::DATA.byte());
        let spans = vec![head, Span::of_bytes(directory, layout::directory_bytes(shards, lanes))];
        Ok(Checker {
            pm,
            form: Form::from_code(identity.form),
            hasher: KeyedHash::of(&identity)?,
            shards,
            scope: root[Root::SCOPE],
            bucket_slots: root[Root::BUCKET_SLOTS] as u32,
            directory,
            spans,
            budget: Budget::of(region.media().bytes()),
        })
    }

    /// Reads where a shard lies, and its buckets. Those that it cannot read are missing in it if
    /// `damaged` takes the error.
    fn read_shard(
        &mut self,
        index: u64,
        damaged: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Shard> {
        let at = layout::descriptor_at(self.directory, index);
        let mut words = [0; Descriptor::WORDS];
        self.pm.read_words(at, &mut words)?;
        let version = layout::decode_version(words[Descriptor::VERSION], at)
            .ok_or(corrupt(at, "the version of a descriptor matches its check"))?;
        let set = layout::set_at(at, version);
        let place = Place::decode(words[Descriptor::SETS + version as usize % 2], set)
            .ok_or(corrupt(set, "the set in use of a descriptor matches its check"))?;
        let end = place.start.byte().saturating_add(place.bytes());
        if end > self.pm.media().bytes() {
            return Err(corrupt(set, "the buckets of a shard lie inside the pool"));
        }
        let span = Span::of_bytes(place.start, place.bytes());
        self.budget.take(span)?;
        self.spans.push(span);
        let buckets =
            (0..place.buckets()).map(|bucket| match self.read_bucket(place.bucket(bucket)) {
                Ok(read) => Ok(Some(read)),
                Err(error) => damaged(error).map(|()| None),
            });
        Ok(Shard { index, place, buckets: buckets.collect::<Result<_>>()? })
    }

    fn read_bucket(&self, at: Addr) -> Result<(Meta, [u64; BUCKET_WORDS])> {
        let mut words = [0; BUCKET_WORDS];
        self.pm.read_words(at, &mut words)?;
        let tags = [words[Bucket::TAGS], words[Bucket::TAGS + 1]];
        let meta = Meta::decode(words[Bucket::META], tags, at)
            .ok_or(corrupt(at, "a META word matches its check"))?;
        if meta.valid() >> self.bucket_slots != 0 || meta.filled() >= self.bucket_slots {
            return Err(corrupt(at, "one slot of every bucket is empty"));
        }
        Ok((meta, words))
    }

    /// Visits the pairs of a shard; returns how many there are.
    fn pairs(&mut self, shard: &Shard, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut keys = BTreeSet::new();
        for place in shard.live() {
            self.slot(shard, place, &mut keys, visit)?;
        }
        Ok(keys.len() as u64)
    }

    /// Visits the pair in a slot of a bucket of a shard, in which there were `keys` before.
    fn slot(
        &mut self,
        shard: &Shard,
        (index, slot): (usize, usize),
        keys: &mut BTreeSet<Vec<u8>>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let (_, words) = shard.buckets[index].as_ref().expect("a pair was found in it");
        let at = shard.place.bucket(index as u64);
        let (key, value) = self.pair(words, at, slot)?;
        let hash = self.hasher.bytes(&key);
        let tags = [words[Bucket::TAGS], words[Bucket::TAGS + 1], 0];
        if layout::slot_tag(tags, slot) != layout::tag_of(hash) {
            return Err(corrupt(at, "a tag is that of its key"));
        }
        if !self.on_path(shard, hash, index as u64) {
            return Err(corrupt(at, "a key lies on its path"));
        }
        visit(&key, &value);
        match keys.insert(key) {
            true => Ok(()),
            false => Err(corrupt(at, "a key is there once")),
        }
    }

    /// Returns whether a search for `hash` gets as far as bucket `index`.
    fn on_path(&self, shard: &Shard, hash: u64, index: u64) -> bool {
        let last = shard.place.buckets() - 1;
        let home = layout::home_of(hash, shard.place.log);
        let steps = index.wrapping_sub(home) & last;
        // One that cannot be read may have been full: what lies behind it is not lost with it.
        let is_full = |step: u64| {
            let bucket = shard.buckets[((home + step) & last) as usize].as_ref();
            bucket.is_none_or(|(meta, _)| meta.filled() + 1 >= self.bucket_slots)
        };
        layout::shard_of(hash, self.shards) == shard.index
            && steps < self.scope
            && (0..steps).all(is_full)
    }

    /// Reads a slot, and the record that it leads to.
    fn pair(
        &mut self,
        words: &[u64; BUCKET_WORDS],
        at: Addr,
        slot: usize,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let first = Bucket::SLOTS + 2 * slot;
        let pair = [words[first], words[first + 1]];
        let checks = [words[Bucket::TAGS], words[Bucket::TAGS + 1], words[Bucket::CHECKS]];
        if layout::check_of(pair, at, slot) != layout::slot_check(checks, slot) {
            return Err(corrupt(at, "the check of a slot matches"));
        }
        if self.form == Form::WORDS {
            return Ok((pair[0].to_le_bytes().to_vec(), pair[1].to_le_bytes().to_vec()));
        }
        let at = at.plus(first as u64 + 1);
        self.budget.take(record_span(pair, at)?)?;
        let (key, value, span) = read_record(&self.pm, &self.hasher, pair, at)?;
        self.spans.push(span);
        Ok((key, value))
    }
}
