//! What lies above the bucket that an open reads. Each bucket is read once for all that lies below
//! it, and not once for each slot: the overflow lines of a forged pool may be as many as it has.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media};

use crate::tiered::bucket::{Lines, PairCodec, Words};
use crate::tiered::layers::View;
use crate::tiered::layout;

/// The buckets above one bucket, the topmost first.
#[derive(Default)]
pub(super) struct Above {
    buckets: Vec<Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// Its index in its layer, once it was read.
    index: Option<u64>,
    /// The slots that can be read, in the order of their words: these, where the last of them lies,
    /// and whether the slot belongs to the second hash function.
    slots: Vec<(Words, Addr, bool)>,
    /// Of hashes that were asked for, the keys of records; `None` if one of them is damaged.
    keys: BTreeMap<u64, Option<BTreeSet<Vec<u8>>>>,
}

impl Above {
    /// Reads what lies above a bucket of a layer, as far as it is not known yet.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn look<M: Media>(
        &mut self,
        pm: &Access<'_, M>,
        view: &View,
        (rank, index): (usize, u64),
    ) -> Result<()> {
        self.buckets.resize_with(rank, Bucket::default);
        let log = view.place(rank).log();
        for (bucket, place) in self.buckets.iter_mut().zip(view.all()) {
            let above = index >> (log - place.log());
            if bucket.index != Some(above) {
                bucket.read(pm, place.bucket(above))?;
                bucket.index = Some(above);
            }
        }
        Ok(())
    }

    /// Returns whether a slot above has these words, under this hash function.
    pub fn leads(&self, words: Words, second: bool) -> bool {
        let equal = |bucket: &Bucket| bucket.equal(words).iter().any(|slot| slot.2 == second);
        self.buckets.iter().any(equal)
    }

    /// Returns whether a slot above has the key of a slot with these words, the last of them at
    /// this place; as [`Same`](crate::tiered::bucket::Same) has it.
    ///
    /// # Errors
    /// As the medium.
    pub fn has_key<M: Media, C: PairCodec>(
        &mut self,
        pm: &Access<'_, M>,
        slot: (Words, Addr),
    ) -> Result<bool> {
        for bucket in &mut self.buckets {
            if bucket.has_key::<M, C>(pm, slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Bucket {
    fn read<M: Media>(&mut self, pm: &Access<'_, M>, home: Addr) -> Result<()> {
        self.index = None;
        self.slots.clear();
        self.keys.clear();
        let mut lines = Lines::of(pm, home);
        while let Some((line, _)) = lines.advance()? {
            for slot in line.readable() {
                let (state, (words, at)) = line.slot(slot);
                self.slots.push((words, at, layout::is_second(state)));
            }
        }
        self.slots.sort_unstable();
        Ok(())
    }

    /// Returns the slots with these words.
    fn equal(&self, words: Words) -> &[(Words, Addr, bool)] {
        let first = self.slots.partition_point(|slot| slot.0 < words);
        let end = self.slots.partition_point(|slot| slot.0 <= words);
        &self.slots[first..end]
    }

    fn has_key<M: Media, C: PairCodec>(
        &mut self,
        pm: &Access<'_, M>,
        (words, at): (Words, Addr),
    ) -> Result<bool> {
        let first = self.slots.partition_point(|slot| slot.0[0] < words[0]);
        let end = self.slots.partition_point(|slot| slot.0[0] <= words[0]);
        if first == end || !C::RECORDS || !self.equal(words).is_empty() {
            return Ok(first < end);
        }
        // Two records with one hash: nearly always an older and a newer value of one key.
        let Bucket { slots, keys, .. } = self;
        let keys = match keys.entry(words[0]) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut read = Some(BTreeSet::new());
                for (words, at, _) in &slots[first..end] {
                    let key = key_of::<M, C>(pm, (*words, *at))?;
                    read = read.zip(key).map(|(mut all, key)| {
                        all.insert(key);
                        all
                    });
                }
                unknown.insert(read)
            }
        };
        let (Some(keys), Some(key)) = (keys, key_of::<M, C>(pm, (words, at))?) else {
            return Ok(true);
        };
        Ok(keys.contains(&key))
    }
}

/// Returns the key of a record, or `None` if it is damaged.
fn key_of<M: Media, C: PairCodec>(
    pm: &Access<'_, M>,
    (words, at): (Words, Addr),
) -> Result<Option<Vec<u8>>> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let read = C::decode(words, at).and_then(|pair| C::read(pm, pair, &mut key, &mut value));
    match read {
        Ok(()) => Ok(Some(key)),
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}
