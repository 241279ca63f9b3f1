//! The objects of a log, in the order of their writes.

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Addr, Media, WORD};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chains::Generation;
use super::judge::{Judge, Log};
use crate::common::check::corrupt;
use crate::walsh::layout::{
    self, Kind, Link, LogHead, MOST_ENTRIES, ObjectHead, RECORD_HASH, RECORD_OFFSET, Tag, mix,
};

/// What came of reading a log's objects.
#[derive(Clone, Copy, Default)]
pub struct Replayed {
    /// The change of live pairs.
    pub changes: i64,
    /// Where the next object would begin. Unit: words from the start of the log.
    pub fill: u64,
    /// The sum of the directory log.
    pub sum: u64,
    /// How many objects were read.
    pub count: u64,
}

pub struct Object {
    pub link: Link,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The object, and its seal.
    pub words: u64,
}

impl<M: Media> Judge<'_, M> {
    /// Reads a log's objects. `after` is the next log; of the newest one, `goes_on` says whether
    /// objects count that lie behind its tail and have their seal.
    pub fn replay(
        &self,
        area: u64,
        log: &Log,
        (after, goes_on): (Option<&Log>, bool),
        generation: &mut Generation,
    ) -> Result<Replayed> {
        let mut records = vec![0; log.count as usize];
        self.pm.read_words(log.at.plus(LogHead::WORDS as u64), &mut records)?;
        let sum = layout::sum(&records, self.seed);
        if after.is_some_and(|after| after.head[LogHead::PREVIOUS_SUM] != sum) {
            return Err(corrupt(log.at, "the checksum of a directory log matches"));
        }
        let goes_on = goes_on && after.is_none();
        let most = if goes_on { log.entries().min(MOST_ENTRIES) } else { log.count };
        let fill = layout::objects_offset(log.entries());
        let mut replayed = Replayed { fill, sum, ..Replayed::default() };
        for number in 0..most {
            let at = log.at.plus(replayed.fill);
            let object = match self.object(at, log) {
                // The newest object was not whole yet.
                Err(Error::Corrupt { .. }) if number >= log.count => break,
                object => object?,
            };
            let hash = self.hasher.bytes(&object.key);
            let record = RECORD_OFFSET.set(RECORD_HASH.get(hash), replayed.fill);
            if records.get(number as usize).is_some_and(|there| *there != record) {
                return Err(corrupt(at, "a directory record says where its object is"));
            }
            if layout::AREA_HASH.get(hash) & (self.areas - 1) != area {
                return Err(corrupt(at, "a key lies in its area"));
            }
            if object.link.tag != Tag::of(hash) {
                return Err(corrupt(at, "an object has the tag of its key"));
            }
            replayed.fill += object.words;
            replayed.count += 1;
            replayed.changes += object.link.kind.items();
            generation.chain(at, hash, &object)?;
            let value = (object.link.kind != Kind::Removed).then_some(object.value);
            generation.newest.insert(object.key, value);
        }
        Ok(replayed)
    }

    /// Reads the object at `at`, which lies in `log`.
    pub fn object(&self, at: Addr, log: &Log) -> Result<Object> {
        let (head_words, lengths) = match self.form {
            Form::Fixed { key_bytes, value_bytes } => (
                1 + (key_bytes as usize + value_bytes as usize) / WORD as usize,
                (key_bytes.into(), value_bytes.into()),
            ),
            Form::Variable => {
                let word = self.pm.load(at.plus(ObjectHead::LENGTHS as u64))?;
                (ObjectHead::WORDS, (word & u64::from(u32::MAX), word >> 32))
            }
        };
        let (key_bytes, value_bytes) = lengths;
        let is_variable = self.form == Form::Variable;
        let key_at = at.plus(if is_variable { ObjectHead::WORDS as u64 } else { 1 });
        let value_at = key_at.plus(key_bytes.div_ceil(WORD));
        let seal_at = value_at.plus(value_bytes.div_ceil(WORD));
        let end = seal_at.plus(self.seal_words);
        // Before it is read: a short log must not have objects as long as the medium.
        if end.byte() > log.span().end_byte() {
            return Err(corrupt(at, "the objects of a log lie inside it"));
        }
        let mut head = vec![0; head_words];
        self.pm.read_words(at, &mut head)?;
        let place = mix(self.seed, at.byte());
        let bound = head[1..].iter().fold(place, |bound, word| mix(bound, *word));
        let Some(link) = Link::decode(head[ObjectHead::LINK], bound) else {
            return Err(corrupt(at, "the check of an object matches"));
        };
        let seal = || layout::seal_object(log.head[LogHead::CHECKSUM], at, &head);
        if self.seal_words > 0 && self.pm.load(seal_at)? != seal() {
            return Err(corrupt(seal_at, "the seal of an object matches"));
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.pm.read_bytes(key_at, key_bytes, &mut key)?;
        self.pm.read_bytes(value_at, value_bytes, &mut value)?;
        if is_variable {
            let whole = [key.as_slice(), value.as_slice()].concat();
            let seed = mix(place, value_bytes << 32 | key_bytes);
            if xxh3_64_with_seed(&whole, seed) != head[ObjectHead::CHECKSUM] {
                return Err(corrupt(at, "the check of an object matches"));
            }
        }
        Ok(Object { link, key, value, words: end.word() - at.word() })
    }
}
