//! Many keys at a time: what the next step of each search needs is on its way from memory while the
//! others do theirs (ours; 3.3.1 reads one key after the other).
//!
//! The steps are those of a single read: directory, newest object, the object behind it, and so
//! on. A search that meets a rehash, or ends while the view of its area changes, begins anew on
//! its own.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, Lock, Media, prefetch_for_store, word_of};

use super::concurrency::View;
use super::directory::{Directory, Slot};
use super::layout::{AreaRecord, WordObject};
use super::object::Found;
use super::state::Walsh;

/// Keys whose searches are under way together.
///
/// Unit: keys. Source: ours; twelve lines can be on the way to a core of the present, and some
/// searches end early.
pub const TOGETHER: usize = 32;

/// Objects of a chain that are looked at together with other searches; who needs more goes on
/// alone.
///
/// Unit: objects. Source: ours; some times the longest chain that is usual.
const STEPS: usize = 32;

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
    fn of(found: Found) -> Ending {
        if found.link.kind.is_live() { Ending::Present } else { Ending::Absent }
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

/// How the search for a key began.
#[derive(Clone, Copy, Default)]
struct Begun {
    hash: u64,
    view: View,
}

/// A search under way: for the key at which place, and the object that is looked at next.
#[derive(Clone, Copy, Default)]
struct Search {
    place: usize,
    at: Addr,
}

impl<M: Media> Walsh<M> {
    /// Looks for the keys at the first `count` places of a batch, at most [`TOGETHER`]; says how
    /// each search ends.
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
        let mut begun = [Begun::default(); TOGETHER];
        let begun = &mut begun[..count];
        let mut searches = [Search::default(); TOGETHER];
        let mut left = self.begin_searches(pm, begun, &mut searches, batch)?;
        for _ in 0..STEPS {
            if left == 0 {
                return Ok(());
            }
            left = self.step_searches(pm, begun, &mut searches, left, batch)?;
        }
        searches[..left].iter().try_for_each(|search| batch.end(search.place, Ending::Unknown))
    }

    /// Reads the directories of all keys; returns how many searches have an object to look at.
    #[inline(always)]
    fn begin_searches(
        &self,
        pm: &Access<'_, M>,
        begun: &mut [Begun],
        searches: &mut [Search; TOGETHER],
        batch: &mut impl Batch,
    ) -> Result<usize> {
        let mut slots = [None; TOGETHER];
        for (place, (begun, slot)) in begun.iter_mut().zip(&mut slots).enumerate() {
            let hash = batch.hash(place);
            // One is on its way while the next key is hashed.
            let area = self.area(hash);
            let view = area.view.latest();
            *slot = self.slot(area, hash, view);
            slot.iter().for_each(|slot| slot.prefetch());
            *begun = Begun { hash, view };
        }
        let mut left = 0;
        for (place, (begun, slot)) in begun.iter().zip(slots).enumerate() {
            if !begun.view.is_plain() {
                batch.end(place, Ending::Unknown)?;
                continue;
            }
            let directory = slot.map_or_else(Directory::default, Slot::read);
            pm.dram(1);
            if directory.head.is_null() || !directory.may_hold(begun.hash) {
                self.end_search(*begun, place, Ending::Absent, batch)?;
                continue;
            }
            fetch_object(pm, directory.head);
            searches[left] = Search { place, at: directory.head };
            left += 1;
        }
        Ok(left)
    }

    /// Lets the first `count` searches look at an object each; returns how many go on.
    #[inline(always)]
    fn step_searches(
        &self,
        pm: &Access<'_, M>,
        begun: &[Begun],
        searches: &mut [Search; TOGETHER],
        count: usize,
        batch: &mut impl Batch,
    ) -> Result<usize> {
        let mut left = 0;
        for index in 0..count {
            let Search { place, at } = searches[index];
            match batch.probe(place, at) {
                Ok(at) => {
                    fetch_object(pm, at);
                    searches[left] = Search { place, at };
                    left += 1;
                }
                Err(ending) => self.end_search(begun[place], place, ending, batch)?,
            }
        }
        Ok(left)
    }

    /// Ends a search as it seems to have ended, if the view of its area has not changed.
    #[inline(always)]
    fn end_search(
        &self,
        begun: Begun,
        place: usize,
        ending: Ending,
        batch: &mut impl Batch,
    ) -> Result<()> {
        let is_current = self.area(begun.hash).view.shows(begun.view);
        batch.end(place, if is_current { ending } else { Ending::Unknown })
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
        for pairs in pairs.chunks(TOGETHER) {
            let mut hashes = [0; TOGETHER];
            for (hash, (key, _)) in hashes.iter_mut().zip(pairs) {
                *hash = self.hash(key);
            }
            hashes[..pairs.len()].iter().for_each(|hash| self.prefetch_area(&pm, *hash));
            let mut ahead = Ahead { table: self, pm: &pm, pairs, hashes: &hashes };
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
        pm.prefetch_for_store(area.record.plus(AreaRecord::LIVE as u64));
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
        let probe = self.table.objects.probe(self.pm, at, key, &mut Vec::new());
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
        let opened = self.table.objects.open_word(self.pm, &read);
        let (found, value) = opened.map_err(|_| Ending::Unknown)?;
        self.value = value;
        Err(Ending::of(found))
    }

    #[inline(always)]
    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        self.values[place] = match ending {
            Ending::Present => Some(self.value),
            Ending::Absent => None,
            Ending::Unknown => {
                let (hash, key) = (self.hash(place), self.keys[place]);
                self.table.get_word_patiently(self.pm, hash, key)?
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
            Ok((found, true)) => Err(Ending::of(found)),
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
