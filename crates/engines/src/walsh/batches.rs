//! Many keys at a time: what the next step of each search needs is on its way from memory while the
//! others do theirs (ours; 3.3.1 reads one key after the other).
//!
//! The steps are those of a single read: directory, newest object, the object behind it, and so
//! on. A search that meets a rehash, or ends while the view of its area changes, begins anew on
//! its own.

use everhash_index::{Result, Table};
use everhash_pmem::{Access, Addr, Media};

use super::concurrency::View;
use super::directory::directory_of;
use super::layout::Kind;
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

/// What a batch is about: keys by their places in it.
pub trait Batch {
    /// Compares the object at an address with the key at a place, and keeps its value if it is of
    /// that key.
    ///
    /// # Errors
    /// As [`Objects::probe`](super::object::Objects::probe).
    fn probe(&mut self, place: usize, at: Addr) -> Result<(Found, bool)>;

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
                let next = match batch.probe(search.place, search.at) {
                    Ok((found, true)) => Err(match found.link.kind {
                        Kind::Removed => Ending::Absent,
                        _ => Ending::Present,
                    }),
                    Ok((found, false)) if found.link.next.is_null() => Err(Ending::Absent),
                    Ok((found, false)) => Ok(found.link.next),
                    // Perhaps not an object any more.
                    Err(_) => Err(Ending::Unknown),
                };
                match next {
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

    /// Does `write` with each of many pairs, in order; returns how often it said that it added one.
    ///
    /// The keys are looked for together first: each write then looks in the cache.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn write_each(
        &self,
        pairs: &[(&[u8], &[u8])],
        write: impl Fn(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<u64> {
        let mut added = 0;
        let mut keys = Vec::with_capacity(TOGETHER);
        for pairs in pairs.chunks(TOGETHER) {
            keys.clear();
            keys.extend(pairs.iter().map(|(key, _)| *key));
            Table::get_many(self, &keys, &mut |_, _| {})?;
            for (key, value) in pairs {
                added += u64::from(write(key, value)?);
            }
        }
        Ok(added)
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
            let area = self.area(*hash);
            let view = area.view.latest();
            let side = &area.sides[view.side()];
            self.blocks.prefetch(side, directory_of(*hash, view.level()));
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
    #[inline(always)]
    fn probe(&mut self, place: usize, at: Addr) -> Result<(Found, bool)> {
        self.table.objects.probe_word(self.pm, at, self.keys[place], &mut self.value)
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
    fn probe(&mut self, place: usize, at: Addr) -> Result<(Found, bool)> {
        self.table.objects.probe(self.pm, at, self.keys[place], &mut self.value)
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
