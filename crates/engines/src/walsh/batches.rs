//! Many keys at a time: interleaved lookups with software prefetch (AMAC). This is ours; 3.3.1
//! reads one key after the other.
//!
//! A lookup has the steps of a single read: directory, newest object, the object behind it, and so
//! on. Each step prefetches what the next one reads. When a lookup ends, the one for the next key
//! takes its place; its directory was prefetched some keys before. A lookup that meets a rehash, or
//! ends after the view of its area changed, is repeated on its own.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, Lock, Media, prefetch_for_store, word_of};

use super::concurrency::View;
use super::directory::{Directory, Slot};
use super::layout::{AreaRecord, Link, WordObject};
use super::state::Walsh;

/// Searches that are under way together.
///
/// Unit: searches. Source: ours; about as many cache misses can a present core have outstanding.
const TOGETHER: usize = 16;

/// Keys whose directories are prefetched before their searches begin.
///
/// Unit: keys. Source: ours; more than a present core can have cache misses outstanding.
const AHEAD: usize = 32;

/// Pairs that are looked for together before they are written one by one.
///
/// Unit: pairs. Source: ours; what they need fits into the first cache.
const WRITES: usize = 32;

/// The longest chain that an interleaved search follows; a longer one is searched on its own.
///
/// Unit: objects. Source: ours; some times the longest chain that is usual.
const STEPS: u32 = 32;

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The key is present, and what it was compared with last was its object.
    Present,
    /// The key is absent.
    Absent,
    /// It is to be looked for on its own.
    Unknown,
}

impl Ending {
    /// Returns how a search ends that found the newest object of its key.
    fn of(newest: Link) -> Ending {
        if newest.kind.is_live() { Ending::Present } else { Ending::Absent }
    }
}

/// What a batch is about: keys by their places in it.
pub trait Batch {
    /// Returns the hash of the key at a place.
    fn hash(&self, place: usize) -> u64;

    /// Compares the object at an address with the key at a place, and keeps its value if it is of
    /// that key; returns how the search ended, or where it goes on.
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending>;

    /// Takes the answer for the key at a place.
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

/// A search under way: for the key at which place, how it began, and which object it looks at
/// next, as which of its chain.
#[derive(Clone, Copy, Default)]
struct Search {
    place: usize,
    hash: u64,
    view: View,
    at: Addr,
    step: u32,
}

/// The keys of a batch that no search looks for yet.
struct Waiting<'w, M: Media> {
    /// By place, modulo their number.
    ahead: [Begun<'w, M>; AHEAD],
    /// Places of keys that are ahead: the directories of others are not fetched yet, or read.
    places: core::ops::Range<usize>,
    count: usize,
}

impl<M: Media> Walsh<M> {
    /// Looks for the keys at the first `count` places of a batch; says how each search ends.
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
        // Ends: each round brings every search one object further, at most `STEPS` of them.
        while under_way > 0 {
            let mut index = 0;
            while index < under_way {
                let search = &mut searches[index];
                match batch.probe(search.place, search.at) {
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

    /// Fetches the directory of one more key, if there is one.
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
            let search = Search { place, hash, view, at: directory.head, step: 1 };
            if !view.is_plain() {
                batch.end(place, Ending::Unknown)?;
            } else if directory.head.is_null() || !directory.may_hold(hash) {
                self.end_search(&search, Ending::Absent, batch)?;
            } else {
                fetch_object(pm, directory.head);
                return Ok(Some(search));
            }
        }
        Ok(None)
    }

    /// Ends a search as it seems to have ended, if the view of its area has not changed.
    #[inline(always)]
    fn end_search(&self, search: &Search, ending: Ending, batch: &mut impl Batch) -> Result<()> {
        let is_current = self.area(search.hash).view.shows(search.view);
        batch.end(search.place, if is_current { ending } else { Ending::Unknown })
    }

    /// Writes many pairs, in order, by `word` those of a pool of words and by `bytes` the others;
    /// returns how often these said that they added one.
    ///
    /// The keys are looked for together first: each write then looks in the cache. What it stores
    /// to is fetched too, because other processors may have changed it.
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
            let mut hashes = [0; WRITES];
            for (hash, (key, _)) in hashes.iter_mut().zip(pairs) {
                *hash = self.hash(key);
            }
            hashes[..pairs.len()].iter().for_each(|hash| self.prefetch_area(&pm, *hash));
            let mut ahead =
                Ahead { table: self, pm: &pm, pairs, hashes: &hashes, key_there: Vec::new() };
            self.search_together(&pm, pairs.len(), &mut ahead)?;
            for hash in &hashes[..pairs.len()] {
                if let Some(state) = self.area(*hash).state.try_lock()? {
                    self.prefetch_ends(&pm, &state);
                }
            }
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

    /// Says that the area of a hash will be written to soon.
    #[inline(always)]
    fn prefetch_area(&self, pm: &Access<'_, M>, hash: u64) {
        let area = self.area(hash);
        prefetch_for_store(&area.state);
        pm.prefetch_for_store(area.record.plus(AreaRecord::VISIBLE_TAIL as u64));
    }
}

/// Says that an object will be read soon: of one in four, key or value lie in the next line.
#[inline(always)]
fn fetch_object<M: Media>(pm: &Access<'_, M>, at: Addr) {
    pm.prefetch(at);
    pm.prefetch(at.plus(WordObject::WORDS as u64 - 1));
}

/// A batch of pairs that will be written: what their writes will look at is fetched.
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
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending> {
        let key = self.pairs[place].0;
        let is_over = |equal| if equal { Err(Ending::Present) } else { Ok(()) };
        if self.table.form == Form::WORDS {
            let pair = self.table.objects.read_word(self.pm, at).map_err(|_| Ending::Unknown)?;
            is_over(pair.key.to_le_bytes() == key)?;
            return pair.next().ok_or(Ending::Absent);
        }
        let probe = self.table.objects.probe_key(self.pm, at, key, &mut self.key_there);
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

    /// Looks at the check of the key's object only, as a search on its own does.
    #[inline(always)]
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending> {
        // What cannot be read is perhaps not an object any more.
        let read = self.table.objects.read_word(self.pm, at).map_err(|_| Ending::Unknown)?;
        if read.key != self.keys[place] {
            return read.next().ok_or(Ending::Unknown);
        }
        let checked = self.table.objects.checked(self.pm, &read);
        let (link, value) = checked.ok_or(Ending::Unknown)?;
        self.value = value;
        Err(Ending::of(link))
    }

    #[inline(always)]
    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        self.values[place] = match ending {
            Ending::Present => Some(self.value),
            Ending::Absent => None,
            Ending::Unknown => {
                let (hash, key) = (self.hash(place), self.keys[place]);
                self.table.get_word_retrying(self.pm, hash, key)?
            }
        };
        Ok(())
    }
}

/// A batch of byte strings; answers are handed out in the order in which searches end.
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

    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending> {
        match self.table.objects.probe(self.pm, at, self.keys[place], &mut self.value) {
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
