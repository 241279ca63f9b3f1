//! What is left of an area that is damaged.
//!
//! The newest object of a key counts, so that a hole in a log matters: an older object of the key
//! that was in it would be an answer of the past. The directory log has the hash of each object. If
//! its sum matches, the older objects of that hash do not count, and all others do. If nothing says
//! whose object it was, nothing older than the hole counts.

use std::collections::HashMap;

use everhash_index::{Error, Form, Result};
use everhash_pmem::{Media, WORD};

use super::judge::{Judge, Log, Moment};
use super::objects::Object;
use crate::common::check::corrupt;
use crate::walsh::layout::{
    self, AREA_HASH, Checkpoint, Kind, LogHead, MOST_ENTRIES, ObjectHead, RECORD_HASH,
    RECORD_OFFSET, Tag, WordObject,
};

/// How much of a damaged log is read, in lengths of it.
///
/// Source: ours; the records of a forged one may all name objects as long as it is.
const READ: u64 = 64;

/// What was read of a damaged area.
#[derive(Default)]
pub struct Remains {
    /// What is broken.
    pub damages: Vec<Error>,
    /// The newest object of each key, `None` for a tombstone, and its number; the next is higher.
    newest: HashMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    /// The hashes of objects that are damaged, as records have them, each with the highest number.
    holes: HashMap<u64, u64>,
    /// Objects before this one do not count.
    first: u64,
    /// The number of the next object.
    number: u64,
}

impl Remains {
    /// Visits the pairs whose newest object was read.
    pub fn visit(&self, hash: impl Fn(&[u8]) -> u64, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for (key, (number, value)) in &self.newest {
            let hole = self.holes.get(&RECORD_HASH.get(hash(key)));
            if let Some(value) = value
                && *number >= self.first
                && hole.is_none_or(|hole| hole < number)
            {
                visit(key, value);
            }
        }
    }

    fn add(&mut self, object: Object) {
        let value = (object.link.kind != Kind::Removed).then_some(object.value);
        self.newest.insert(object.key, (self.number, value));
        self.number += 1;
    }

    /// Notes a damaged object, of a key with this hash if that is known.
    fn pass_over(&mut self, damage: Error, hash: Option<u64>) {
        self.damages.push(damage);
        if let Some(hash) = hash {
            self.holes.insert(hash, self.number);
        }
        self.number += 1;
        if hash.is_none() {
            self.first = self.number;
        }
    }
}

impl<M: Media> Judge<'_, M> {
    /// Reads what is whole of an area. `is_closed` says whether the pool was closed: then the
    /// directory log of its newest log has a sum, too.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if nothing leads to its logs.
    pub fn remains(&mut self, area: u64, moment: Moment, is_closed: bool) -> Result<Remains> {
        let end = self.end(area, moment)?;
        let (mut remains, mut logs) = (Remains::default(), Vec::new());
        match self.follow(area, &end, &mut logs) {
            // What lies behind a damaged head is older than all that was reached.
            Err(damage @ Error::Corrupt { .. }) => remains.damages.push(damage),
            followed => followed?,
        }
        logs.reverse();
        let saved = is_closed.then(|| self.checkpoint_head(area, &end).ok().flatten()).flatten();
        let saved = saved.map(|(_, head)| head[Checkpoint::RECORDS_SUM]);
        for (position, log) in logs.iter().enumerate() {
            let after = logs.get(position + 1).map(|after| after.head[LogHead::PREVIOUS_SUM]);
            let is_newest = after.is_none();
            let sum = after.or(saved.filter(|_| is_newest));
            let fill = self.gather(area, log, sum, &mut remains)?;
            if is_newest && moment == Moment::Durable && self.seal_words > 0 {
                self.gather_behind(area, log, fill, &mut remains)?;
            }
        }
        Ok(remains)
    }

    /// Reads what is whole of a log, whose directory log has this sum if that is known. Returns
    /// where its objects end, in words from its start, unless the last is damaged.
    fn gather(
        &self,
        area: u64,
        log: &Log,
        sum: Option<u64>,
        remains: &mut Remains,
    ) -> Result<Option<u64>> {
        let mut records = vec![0; log.count as usize];
        self.pm.read_words(log.at.plus(LogHead::WORDS as u64), &mut records)?;
        let is_vouched = sum == Some(layout::sum(&records, self.seed));
        if sum.is_some() && !is_vouched {
            remains.damages.push(corrupt(log.at, "the checksum of a directory log matches"));
        }
        let mut fill = Some(layout::objects_offset(log.entries()));
        let mut budget = READ * log.span().words;
        for record in records {
            let place = fill.unwrap_or(RECORD_OFFSET.get(record));
            let broken =
                || corrupt(log.at.plus(place), "a directory record says where its object is");
            let found = match budget {
                0 => Err(broken()),
                _ => self.whole_object(area, log, place),
            };
            // One that is damaged may say that it reaches to the end of the log.
            let rest = log.span().words.saturating_sub(place);
            budget = budget.saturating_sub(found.as_ref().map_or(rest, |(object, _)| object.words));
            let read = match found {
                Ok((object, hash)) => {
                    let agrees = record == RECORD_OFFSET.set(RECORD_HASH.get(hash), place);
                    // Behind a whole object lies the next one, whatever its record says.
                    match agrees || !is_vouched && fill.is_some() {
                        true => Ok((object, agrees)),
                        false => Err(broken()),
                    }
                }
                Err(damage) => Err(damage),
            };
            match read {
                Ok((object, agrees)) => {
                    remains.damages.extend((!agrees).then(broken));
                    fill = Some(place + object.words);
                    remains.add(object);
                }
                Err(damage @ Error::Corrupt { .. }) => {
                    let is_known = is_vouched || budget > 0 && self.is_key_of(record, log, place);
                    remains.pass_over(damage, is_known.then_some(RECORD_HASH.get(record)));
                    fill = fill.and(self.object_words()).map(|words| place + words);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(fill)
    }

    /// Reads the sealed objects behind those that the tail covers.
    fn gather_behind(
        &self,
        area: u64,
        log: &Log,
        fill: Option<u64>,
        remains: &mut Remains,
    ) -> Result<()> {
        let Some(mut fill) = fill else {
            // What follows is not found, and newer than all that was read.
            remains.first = remains.number;
            return Ok(());
        };
        for _ in log.count..log.entries().min(MOST_ENTRIES) {
            match self.whole_object(area, log, fill) {
                Ok((object, _)) => {
                    fill += object.words;
                    remains.add(object);
                }
                Err(Error::Corrupt { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Reads the object that lies `place` words behind the start of its log; returns the hash of
    /// its key, too.
    fn whole_object(&self, area: u64, log: &Log, place: u64) -> Result<(Object, u64)> {
        let at = log.at.plus(place);
        if !(layout::objects_offset(log.entries())..log.span().words).contains(&place) {
            return Err(corrupt(at, "the objects of a log lie inside it"));
        }
        let object = self.object(at, log)?;
        let hash = self.hasher.bytes(&object.key);
        match AREA_HASH.get(hash) & (self.areas - 1) == area && object.link.tag == Tag::of(hash) {
            true => Ok((object, hash)),
            false => Err(corrupt(at, "an object has the tag of its key")),
        }
    }

    /// Returns the length of every object, if they are of one length. Unit: words.
    fn object_words(&self) -> Option<u64> {
        match self.form {
            Form::Variable => None,
            Form::Fixed { key_bytes, value_bytes } => {
                let pair = u64::from(key_bytes) + u64::from(value_bytes);
                Some(1 + pair / WORD + self.seal_words)
            }
        }
    }

    /// Returns whether a damaged object lies where its record says, with a key that has its hash:
    /// what is damaged is the rest of it.
    fn is_key_of(&self, record: u64, log: &Log, place: u64) -> bool {
        let at = log.at.plus(place);
        let (key_at, key_bytes) = match self.form {
            Form::Fixed { key_bytes, .. } => (at.plus(WordObject::KEY as u64), key_bytes.into()),
            Form::Variable => {
                let lengths = self.pm.load(at.plus(ObjectHead::LENGTHS as u64)).unwrap_or(0);
                (at.plus(ObjectHead::WORDS as u64), lengths & u64::from(u32::MAX))
            }
        };
        let mut key = Vec::new();
        let ends = key_at.byte() + key_bytes <= log.span().end_byte();
        ends && RECORD_OFFSET.get(record) == place
            && self.pm.read_bytes(key_at, key_bytes, &mut key).is_ok()
            && RECORD_HASH.get(self.hasher.bytes(&key)) == RECORD_HASH.get(record)
    }
}
