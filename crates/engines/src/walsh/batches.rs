//! Many keys at a time: interleaved lookups with software prefetch (AMAC). This is ours; 3.3.1
//! reads one key after the other.
//!
//! A lookup has the steps of a single read: directory, an object, the object behind it, and so on.
//! Each step prefetches what the next one reads. When a lookup ends, the one for the next key takes
//! its place; its directory was prefetched some keys before. A lookup that meets a rehash, or ends
//! after the view of its area changed, is repeated on its own.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, Lock, Media, prefetch_for_store, word_of};

use super::concurrency::View;
use super::directory::Slot;
use super::layout::{AreaRecord, Directory, Link, WordObject};
use super::state::Walsh;
use crate::common::edit::Edit;

/// Searches that run interleaved.
///
/// Unit: searches. Source: ours; about as many cache misses as a current core can have outstanding.
const TOGETHER: usize = 16;

/// Keys whose directories are prefetched before their searches begin.
///
/// Unit: keys. Source: ours; more than the cache misses that a current core can have outstanding.
const AHEAD: usize = 32;

/// Pairs that are looked up together before they are written one by one.
///
/// Unit: pairs. Source: ours; their objects fit into the first-level cache.
const WRITES: usize = 32;

/// The longest chain that an interleaved search follows; a longer one is searched on its own.
///
/// Unit: objects. Source: ours; a few times the longest usual chain.
const STEPS: u32 = 32;

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The key is present; the object that was compared last is its object.
    Present,
    /// The key is absent.
    Absent,
    /// The key has to be looked up on its own.
    Unknown,
}

impl Ending {
    /// Returns how a search ends that found the newest object of its key.
    fn of(newest: Link) -> Ending {
        if newest.kind.is_live() { Ending::Present } else { Ending::Absent }
    }
}

/// The keys of a batch, by position.
pub trait Batch {
    /// Returns the hash of the key at a position.
    fn hash(&self, place: usize) -> u64;

    /// Compares the object at an address with the key at a position, which has the given hash, and
    /// keeps the value of a match; returns how the search ended, or the next address.
    fn probe(&mut self, key: (usize, u64), at: Addr) -> core::result::Result<Addr, Ending>;

    /// Receives the answer for the key at a position.
    ///
    /// # Errors
    /// Those of a search on its own.
    fn end(&mut self, place: usize, ending: Ending) -> Result<()>;
}

/// A key whose directory is being prefetched.
struct Begun<'w, M: Media> {
    hash: u64,
    view: View,
    slot: Option<Slot<'w, M::Sync>>,
}

/// A running search: the position of its key, its start, and its next object, with that object's
/// position in the chain.
#[derive(Clone, Copy, Default)]
struct Search {
    place: usize,
    hash: u64,
    view: View,
    at: Addr,
    step: u32,
}

/// The keys of a batch whose searches have not begun.
struct Waiting<'w, M: Media> {
    /// By position, modulo their number.
    ahead: [Begun<'w, M>; AHEAD],
    /// Positions of the keys whose directories are being prefetched.
    places: core::ops::Range<usize>,
    count: usize,
}

impl<M: Media> Walsh<M> {
    /// Looks up the first `count` keys of a batch, and passes on how each search ends.
    ///
    /// # Errors
    /// Those of [`Batch::end`].
    pub(super) fn search_together(
        &self,
        pm: &Access<'_, M>,
        count: usize,
        batch: &mut impl Batch,
    ) -> Result<()> {
        self.alive()?;
        let ahead = core::array::from_fn(|_| Begun { hash: 0, view: View::default(), slot: None });
        let mut waiting = Waiting { ahead, places: 0..0, count };
        for _ in 0..AHEAD {
            self.fetch_next(&mut waiting, batch);
        }
        let mut searches = [Search::default(); TOGETHER];
        let mut under_way = 0;
        while under_way < TOGETHER
            && let Some(search) = self.begin_next(pm, &mut waiting, batch)?
        {
            searches[under_way] = search;
            under_way += 1;
        }
        // Ends: each round advances every search by one object, at most `STEPS` times.
        while under_way > 0 {
            let mut index = 0;
            while index < under_way {
                let search = &mut searches[index];
                match batch.probe((search.place, search.hash), search.at) {
                    Ok(at) if search.step < STEPS => {
                        fetch_object(pm, at);
                        (search.at, search.step) = (at, search.step + 1);
                        index += 1;
                        continue;
                    }
                    Ok(_) => batch.end(search.place, Ending::Unknown)?,
                    Err(ending) => self.end_search(search, ending, batch)?,
                }
                match self.begin_next(pm, &mut waiting, batch)? {
                    Some(next) => {
                        *search = next;
                        index += 1;
                    }
                    None => {
                        under_way -= 1;
                        searches[index] = searches[under_way];
                    }
                }
            }
        }
        Ok(())
    }

    /// Prefetches the directory of the next key, if there is one.
    #[inline(always)]
    fn fetch_next<'w>(&'w self, waiting: &mut Waiting<'w, M>, batch: &impl Batch) {
        let place = waiting.places.end;
        if place < waiting.count {
            let hash = batch.hash(place);
            let area = self.area(hash);
            let view = area.view.latest();
            let slot = self.slot(area, hash, view);
            slot.iter().for_each(|slot| slot.prefetch());
            waiting.ahead[place % AHEAD] = Begun { hash, view, slot };
            waiting.places.end += 1;
        }
    }

    /// Begins the next search that has an object to look at; ends those before it that have none.
    #[inline(always)]
    fn begin_next<'w>(
        &'w self,
        pm: &Access<'_, M>,
        waiting: &mut Waiting<'w, M>,
        batch: &mut impl Batch,
    ) -> Result<Option<Search>> {
        while let Some(place) = waiting.places.next() {
            let Begun { hash, view, slot } = waiting.ahead[place % AHEAD];
            self.fetch_next(waiting, batch);
            let directory = slot.map_or_else(Directory::default, Slot::read);
            pm.dram(1);
            let search = Search { place, hash, view, at: directory.start(hash), step: 1 };
            if !view.is_plain() {
                batch.end(place, Ending::Unknown)?;
            } else if search.at.is_null() {
                self.end_search(&search, Ending::Absent, batch)?;
            } else {
                fetch_object(pm, search.at);
                return Ok(Some(search));
            }
        }
        Ok(None)
    }

    /// Ends a search with its result if the view of its area is unchanged.
    #[inline(always)]
    fn end_search(&self, search: &Search, ending: Ending, batch: &mut impl Batch) -> Result<()> {
        let is_current = self.area(search.hash).view.shows(search.view);
        batch.end(search.place, if is_current { ending } else { Ending::Unknown })
    }

    /// Writes many pairs in order, with `word` in a pool of words and with `bytes` in all others;
    /// returns how many pairs were added.
    ///
    /// Interleaved lookups come first, so that each write finds its objects in the cache. The ends
    /// of the logs are prefetched as well, since other processors may have changed them.
    ///
    /// # Errors
    /// Those of a write on its own; the pairs before it are written.
    pub(super) fn write_each(
        &self,
        pairs: &[(&[u8], &[u8])],
        word: impl Fn(&Self, (u64, u64), u64) -> Result<bool>,
        bytes: impl Fn(&Self, (u64, &[u8]), &[u8]) -> Result<bool>,
    ) -> Result<u64> {
        let pm = self.pool.access();
        let mut added = 0;
        for pairs in pairs.chunks(WRITES) {
            let hashes = self.look_ahead(&pm, pairs)?;
            for (hash, (key, value)) in hashes.iter().zip(pairs) {
                admit(self.form, key, value)?;
                let is_new = match self.form {
                    Form::WORDS => word(self, (*hash, word_of(key)), word_of(value))?,
                    _ => bytes(self, (*hash, key), value)?,
                };
                added += u64::from(is_new);
            }
        }
        Ok(added)
    }

    /// Removes many keys, in order; returns how many were there. As [`Walsh::write_each`].
    ///
    /// # Errors
    /// Those of a removal on its own; the keys before it are removed.
    pub(super) fn remove_each(&self, keys: &[&[u8]]) -> Result<u64> {
        let pm = self.pool.access();
        let mut removed = 0;
        for keys in keys.chunks(WRITES) {
            let mut pairs = [(&[][..], &[][..]); WRITES];
            let mut count = 0;
            for key in keys.iter().filter(|key| self.may_hold(key)) {
                pairs[count].0 = key;
                count += 1;
            }
            let hashes = self.look_ahead(&pm, &pairs[..count])?;
            for (hash, (key, _)) in hashes.iter().zip(&pairs[..count]) {
                removed += u64::from(match self.form {
                    Form::WORDS => self.edit_word((*hash, word_of(key)), Edit::Remove)?,
                    _ => self.edit_bytes((*hash, key), Edit::Remove)?,
                });
            }
        }
        Ok(removed)
    }

    /// Prefetches what the writes of up to [`WRITES`] pairs will read; returns their hashes.
    #[inline(always)]
    fn look_ahead(&self, pm: &Access<'_, M>, pairs: &[(&[u8], &[u8])]) -> Result<[u64; WRITES]> {
        let mut hashes = [0; WRITES];
        for (hash, (key, _)) in hashes.iter_mut().zip(pairs) {
            *hash = self.hash(key);
        }
        hashes[..pairs.len()].iter().for_each(|hash| self.prefetch_area(pm, *hash));
        let mut ahead = Ahead { table: self, pm, pairs, hashes: &hashes, key_there: Vec::new() };
        self.search_together(pm, pairs.len(), &mut ahead)?;
        for hash in &hashes[..pairs.len()] {
            if let Some(state) = self.area(*hash).state.try_lock()? {
                self.prefetch_ends(pm, &state);
            }
        }
        Ok(hashes)
    }

    /// Prefetches the area of a hash for a write.
    #[inline(always)]
    fn prefetch_area(&self, pm: &Access<'_, M>, hash: u64) {
        let area = self.area(hash);
        prefetch_for_store(&area.state);
        pm.prefetch_for_store(area.record.plus(AreaRecord::VISIBLE_TAIL as u64));
    }
}

/// Prefetches an object, with the next line: there lie key or value of one object in four.
#[inline(always)]
fn fetch_object<M: Media>(pm: &Access<'_, M>, at: Addr) {
    pm.prefetch(at);
    pm.prefetch(at.plus(WordObject::WORDS as u64 - 1));
}

/// A batch of pairs that will be written: it prefetches what the writes will read.
struct Ahead<'b, 'a, M: Media> {
    table: &'b Walsh<M>,
    pm: &'b Access<'a, M>,
    pairs: &'b [(&'b [u8], &'b [u8])],
    hashes: &'b [u64],
    /// The key of the object that was compared last.
    key_there: Vec<u8>,
}

impl<M: Media> Batch for Ahead<'_, '_, M> {
    #[inline(always)]
    fn hash(&self, place: usize) -> u64 {
        self.hashes[place]
    }

    #[inline(always)]
    fn probe(
        &mut self,
        (place, hash): (usize, u64),
        at: Addr,
    ) -> core::result::Result<Addr, Ending> {
        let key = self.pairs[place].0;
        let is_over = |equal| if equal { Err(Ending::Present) } else { Ok(()) };
        if self.table.form == Form::WORDS {
            let pair = self.table.objects.try_read_word(self.pm, at).ok_or(Ending::Unknown)?;
            is_over(pair.key.to_le_bytes() == key)?;
            return Some(pair.next()).filter(|next| !next.is_null()).ok_or(Ending::Absent);
        }
        let probe = self.table.objects.probe_key(self.pm, at, (hash, key), &mut self.key_there);
        let (found, equal) = probe.map_err(|_| Ending::Unknown)?;
        is_over(equal)?;
        Some(found.link.next).filter(|next| !next.is_null()).ok_or(Ending::Absent)
    }

    #[inline(always)]
    fn end(&mut self, _place: usize, _ending: Ending) -> Result<()> {
        Ok(())
    }
}

/// A batch of words.
pub struct WordBatch<'b, 'a, M: Media> {
    pub(super) table: &'b Walsh<M>,
    pub(super) pm: &'b Access<'a, M>,
    pub(super) keys: &'b [u64],
    pub(super) values: &'b mut [Option<u64>],
    /// The value of the object that was compared last.
    pub(super) value: u64,
}

impl<M: Media> Batch for WordBatch<'_, '_, M> {
    #[inline(always)]
    fn hash(&self, place: usize) -> u64 {
        self.table.hasher.word(self.keys[place])
    }

    #[inline(always)]
    fn probe(&mut self, (place, _): (usize, u64), at: Addr) -> core::result::Result<Addr, Ending> {
        // An object that cannot be read may have been freed meanwhile.
        let (link, pair) = self.table.objects.try_open_word(self.pm, at).ok_or(Ending::Unknown)?;
        if pair.key != self.keys[place] {
            return Some(link.next).filter(|next| !next.is_null()).ok_or(Ending::Absent);
        }
        self.value = pair.value;
        Err(Ending::of(link))
    }

    #[inline(always)]
    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        self.values[place] = match ending {
            Ending::Present => Some(self.value),
            Ending::Absent => None,
            Ending::Unknown => self.table.get_word_retrying(self.keys[place])?,
        };
        Ok(())
    }
}

/// A batch of byte strings; answers come in the order in which searches end.
pub struct BytesBatch<'b, 'a, M: Media, F: FnMut(usize, Option<&[u8]>)> {
    pub(super) table: &'b Walsh<M>,
    pub(super) pm: &'b Access<'a, M>,
    pub(super) keys: &'b [&'b [u8]],
    pub(super) value: Vec<u8>,
    pub(super) found: F,
}

impl<M: Media, F: FnMut(usize, Option<&[u8]>)> Batch for BytesBatch<'_, '_, M, F> {
    fn hash(&self, place: usize) -> u64 {
        self.table.hash(self.keys[place])
    }

    fn probe(
        &mut self,
        (place, hash): (usize, u64),
        at: Addr,
    ) -> core::result::Result<Addr, Ending> {
        let key = (hash, self.keys[place]);
        match self.table.objects.probe(self.pm, at, key, &mut self.value) {
            Ok((found, true)) => Err(Ending::of(found.link)),
            Ok((found, false)) if found.link.next.is_null() => Err(Ending::Absent),
            Ok((found, false)) => Ok(found.link.next),
            Err(_) => Err(Ending::Unknown),
        }
    }

    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        let is_present = match ending {
            Ending::Present => true,
            Ending::Absent => false,
            Ending::Unknown => {
                let (hash, key) = (self.hash(place), self.keys[place]);
                self.table.get_hashed(self.pm, hash, key, &mut self.value)?
            }
        };
        (self.found)(place, is_present.then_some(self.value.as_slice()));
        Ok(())
    }
}
