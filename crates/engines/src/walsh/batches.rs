//! Many keys at a time: what the next step of each search needs is on its way from memory while the
//! others do theirs (ours; 3.3.1 reads one key after the other).
//!
//! The steps are those of a single read: directory, newest object, the object behind it, and so
//! on. A search that meets a rehash, or ends while the view of its area changes, begins anew on
//! its own.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Access, Addr, Lock, Media, prefetch_for_store, word_of};

use super::concurrency::View;
use super::directory::directory_of;
use super::layout::AreaRecord;
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
    /// Compares the object at an address with the key at a place, and keeps its value if it is of
    /// that key; returns how the search ended, or where it goes on.
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending>;

    /// Takes the answer for the key at a place.
    ///
    /// # Errors
    /// Those of a search on its own.
    fn end(&mut self, place: usize, ending: Ending) -> Result<()>;
}

/// A search under way.
#[derive(Clone, Copy, Default)]
struct Search {
    place: usize,
    view: View,
    at: Addr,
}

impl<M: Media> Walsh<M> {
    /// Looks for at most [`TOGETHER`] keys, by their hashes; says how each search ends.
    ///
    /// # Errors
    /// Those of [`Batch::end`].
    pub(super) fn search_together(
        &self,
        pm: &Access<'_, M>,
        hashes: &[u64],
        batch: &mut impl Batch,
    ) -> Result<()> {
        self.alive()?;
        debug_assert!(hashes.len() <= TOGETHER, "there is a place for each search");
        let mut searches = [Search::default(); TOGETHER];
        let mut count = self.begin_searches(pm, hashes, &mut searches, batch)?;
        for _ in 0..STEPS {
            if count == 0 {
                return Ok(());
            }
            let mut left = 0;
            for index in 0..count {
                let search = searches[index];
                match batch.probe(search.place, search.at) {
                    Ok(at) => {
                        pm.prefetch(at);
                        searches[left] = Search { at, ..search };
                        left += 1;
                    }
                    Err(ending) => self.end_search(hashes, search, ending, batch)?,
                }
            }
            count = left;
        }
        searches[..count].iter().try_for_each(|search| batch.end(search.place, Ending::Unknown))
    }

    /// Writes many pairs, in order, by `word` those of a pool of words and by `bytes` the others;
    /// returns how often these said that they added one.
    ///
    /// The keys are looked for together first: each write then looks in the cache. What it stores to
    /// is fetched too, because other processors may have changed it.
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
            let hashes = &hashes[..pairs.len()];
            hashes.iter().for_each(|hash| self.prefetch_area(&pm, *hash));
            self.search_together(&pm, hashes, &mut Ahead { table: self, pm: &pm, pairs })?;
            for hash in hashes {
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

    /// Reads the directories of all keys; returns how many searches have an object to look at.
    fn begin_searches(
        &self,
        pm: &Access<'_, M>,
        hashes: &[u64],
        searches: &mut [Search; TOGETHER],
        batch: &mut impl Batch,
    ) -> Result<usize> {
        for hash in hashes {
            self.prefetch_directory(*hash);
        }
        let mut count = 0;
        for (place, hash) in hashes.iter().enumerate().take(TOGETHER) {
            let area = self.area(*hash);
            let view = area.view.latest();
            let search = Search { place, view, at: Addr::NULL };
            if !view.is_plain() {
                batch.end(place, Ending::Unknown)?;
                continue;
            }
            let side = &area.sides[view.side()];
            let directory = self.blocks.read(side, directory_of(*hash, view.level()));
            pm.dram(1);
            if directory.head.is_null() || !directory.may_hold(*hash) {
                self.end_search(hashes, search, Ending::Absent, batch)?;
                continue;
            }
            pm.prefetch(directory.head);
            searches[count] = Search { at: directory.head, ..search };
            count += 1;
        }
        Ok(count)
    }

    /// Ends a search as it seems to have ended, if the view of its area has not changed.
    fn end_search(
        &self,
        hashes: &[u64],
        search: Search,
        ending: Ending,
        batch: &mut impl Batch,
    ) -> Result<()> {
        let is_current = self.area(hashes[search.place]).view.shows(search.view);
        batch.end(search.place, if is_current { ending } else { Ending::Unknown })
    }
}

/// A batch of pairs that will be written: what their writes will look at is fetched.
struct Ahead<'b, 'a, M: Media> {
    table: &'b Walsh<M>,
    pm: &'b Access<'a, M>,
    pairs: &'b [(&'b [u8], &'b [u8])],
}

impl<M: Media> Batch for Ahead<'_, '_, M> {
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
    pub(super) hashes: &'b [u64],
    pub(super) values: &'b mut [Option<u64>],
    /// The value of the object that was compared last.
    pub(super) value: u64,
}

impl<M: Media> Batch for WordBatch<'_, '_, M> {
    /// Looks at the check of the key's object only, as a search on its own does.
    #[inline(always)]
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending> {
        // What cannot be read is perhaps not an object any more.
        let pair = self.table.objects.read_word(self.pm, at).map_err(|_| Ending::Unknown)?;
        if pair.key != self.keys[place] {
            return pair.next().ok_or(Ending::Unknown);
        }
        self.value = pair.value;
        Err(self.table.objects.open_word(&pair).map_or(Ending::Unknown, Ending::of))
    }

    #[inline(always)]
    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        let (table, hash, key) = (self.table, self.hashes[place], self.keys[place]);
        self.values[place] = match ending {
            Ending::Present => Some(self.value),
            Ending::Absent => None,
            Ending::Unknown => table.get_word_patiently(self.pm, hash, key)?,
        };
        Ok(())
    }
}

/// A batch of byte strings; answers are handed out in the order in which searches end.
pub struct BytesBatch<'b, 'a, M: Media, F: FnMut(usize, Option<&[u8]>)> {
    pub(super) table: &'b Walsh<M>,
    pub(super) pm: &'b Access<'a, M>,
    pub(super) keys: &'b [&'b [u8]],
    pub(super) hashes: &'b [u64],
    pub(super) value: Vec<u8>,
    pub(super) found: F,
}

impl<M: Media, F: FnMut(usize, Option<&[u8]>)> Batch for BytesBatch<'_, '_, M, F> {
    fn probe(&mut self, place: usize, at: Addr) -> core::result::Result<Addr, Ending> {
        match self.table.objects.probe(self.pm, at, self.keys[place], &mut self.value) {
            Ok((found, true)) => Err(Ending::of(found)),
            Ok((found, false)) if found.link.next.is_null() => Err(Ending::Absent),
            Ok((found, false)) => Ok(found.link.next),
            Err(_) => Err(Ending::Unknown),
        }
    }

    fn end(&mut self, place: usize, ending: Ending) -> Result<()> {
        let (hash, key) = (self.hashes[place], self.keys[place]);
        let is_present = match ending {
            Ending::Present => true,
            Ending::Absent => false,
            Ending::Unknown => self.table.get_hashed(self.pm, hash, key, &mut self.value)?,
        };
        (self.found)(place, is_present.then_some(self.value.as_slice()));
        Ok(())
    }
}
