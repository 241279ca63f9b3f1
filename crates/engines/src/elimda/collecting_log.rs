//! Insert-ahead logging into one collecting log (ElimDA 3.3): appends without a lock.
//!
//! An append hands out a slot by an exchange of the control word, writes the item, and sets the bit
//! of the slot by another exchange. Where caches are durable, nothing is flushed: the item is
//! durable when its bit is set, which is also when others see it.
//!
//! A log is one access unit. It is emptied as a whole, by one store that raises its generation.
//! Whoever read it meanwhile reads it again; an exchange that was prepared before fails.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Block, Media, Primitives, Span};

use super::form::{Item, corrupt};
use super::layout::{CollectingLog as Log, Control, Ended, LINE_WORDS};

/// Where a collecting log stores the words that matter.
pub mod sites {
    everhash_pmem::sites! {
        /// A slot that is handed out.
        RESERVE = "elimda/collect/reserve";
        /// The bit of a slot that makes its item true.
        WRITTEN = "elimda/collect/written";
        /// The bit of a slot whose item has moved or ended.
        ENDED = "elimda/collect/ended";
    }
}

/// A collecting log, for one operation.
#[derive(Clone, Copy)]
pub struct CollectingLog<'a, M: Media> {
    /// The operation's access.
    pub pm: &'a Access<'a, M>,
    /// Where it lies.
    pub at: Addr,
    /// How many slots it has.
    pub slots: u64,
    /// Words of an item.
    pub item_words: usize,
}

/// A collecting log as an append found it.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Where it lies.
    pub at: Addr,
    word: u64,
    /// What its control word says.
    pub control: Control,
}

/// The items of a collecting log at one moment of one generation.
pub struct Items {
    words: [u64; Log::WORDS],
    item_words: usize,
    /// Bit i: the item of slot i is live.
    pub live: u64,
    /// The generation of the log.
    pub generation: u64,
}

impl Items {
    /// Returns the item of a slot.
    #[inline(always)]
    pub fn item(&self, slot: u64) -> Item {
        let first = Log::ITEMS + slot as usize * self.item_words;
        let mut item = [0; 4];
        item[..self.item_words].copy_from_slice(&self.words[first..first + self.item_words]);
        item
    }

    /// Returns the live slots.
    pub fn slots(&self) -> impl Iterator<Item = u64> + use<> {
        let mut live = self.live;
        core::iter::from_fn(move || {
            let slot = u64::from(live.trailing_zeros());
            live &= live.wrapping_sub(1);
            (slot < u64::from(u64::BITS)).then_some(slot)
        })
    }
}

impl<'a, M: Media> CollectingLog<'a, M> {
    /// Returns the control word and what it says.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    #[inline(always)]
    pub fn look(&self) -> Result<Seen> {
        let word = self.pm.load(self.at)?;
        let control = Control::open(word, self.at)
            .filter(|control| control.reserved <= self.slots)
            .ok_or(corrupt(self.at, "the control word of a collecting log matches its check"))?;
        Ok(Seen { at: self.at, word, control })
    }

    /// Returns where the item of a slot lies.
    #[inline(always)]
    pub fn item_at(&self, slot: u64) -> Addr {
        self.at.plus(Log::ITEMS as u64 + slot * self.item_words as u64)
    }

    /// Returns the live items. Items that are being ended count only if the bucket of their key has
    /// not changed meanwhile.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    #[inline]
    pub fn read(&self) -> Result<Items> {
        // Ends: each further round means that the log was emptied meanwhile.
        loop {
            let before = self.look()?.control;
            let mut words = [0; Log::WORDS];
            if before.written != 0 {
                let length = Log::ITEMS + before.reserved as usize * self.item_words;
                let behind = self.at.plus(Log::ENDED as u64);
                self.pm.read_words(behind, &mut words[Log::ENDED..length])?;
            }
            // The words were loaded with acquire order, which pairs with the fence of `reserve`: if
            // one was of the next generation, so is the control word here.
            if self.look()?.control.generation != before.generation {
                continue;
            }
            let ended = self.open_ended(words[Log::ENDED])?;
            let live = before.written & !ended.of(before.generation);
            let (item_words, generation) = (self.item_words, before.generation);
            return Ok(Items { words, item_words, live, generation });
        }
    }

    /// Looks for the first live item of which `is_wanted` is true, among those whose first word is
    /// `first`; returns its slot and the item. What counts is as in [`CollectingLog::read`].
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], and those of `is_wanted`.
    #[inline(always)]
    pub fn find(
        &self,
        first: u64,
        mut is_wanted: impl FnMut(&Item) -> Result<bool>,
    ) -> Result<Option<(u64, Item)>> {
        let words = self.pm.block::<{ Log::WORDS }>(self.at)?;
        // Ends: each further round means that the log was emptied meanwhile.
        'again: loop {
            let before = self.look()?.control;
            let ended = self.open_ended(words.load(Log::ENDED))?;
            let mut live = before.written & !ended.of(before.generation);
            while live != 0 {
                let slot = u64::from(live.trailing_zeros());
                live &= live - 1;
                let at = Log::ITEMS + slot as usize * self.item_words;
                if words.load(at) != first {
                    continue;
                }
                let mut item = [0; 4];
                for (word, value) in item[..self.item_words].iter_mut().enumerate() {
                    *value = words.load(at + word);
                }
                // As in `read`, of what was loaded so far.
                if self.look()?.control.generation != before.generation {
                    continue 'again;
                }
                if is_wanted(&item)? {
                    return Ok(Some((slot, item)));
                }
            }
            if self.look()?.control.generation == before.generation {
                return Ok(None);
            }
        }
    }

    /// Asks for its lines.
    #[inline(always)]
    pub fn prefetch(&self) {
        let lines = (0..Log::WORDS as u64).step_by(LINE_WORDS as usize);
        lines.for_each(|line| self.pm.prefetch(self.at.plus(line)));
    }

    /// Returns the item of a slot of a log that is being flushed, or `None` if it has ended. The
    /// bucket of its key is locked.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`].
    pub fn item(&self, slot: u64, generation: u64) -> Result<Option<Item>> {
        let word = self.pm.load(self.at.plus(Log::ENDED as u64))?;
        if self.open_ended(word)?.of(generation) >> slot & 1 == 1 {
            return Ok(None);
        }
        let mut item = [0; 4];
        self.pm.read_words(self.item_at(slot), &mut item[..self.item_words])?;
        Ok(Some(item))
    }

    fn open_ended(&self, word: u64) -> Result<Ended> {
        let place = self.at.plus(Log::ENDED as u64);
        Ended::open(word, self.at)
            .ok_or(corrupt(place, "what has ended in a collecting log matches its check"))
    }

    /// Hands out a slot, or `None` if anything was handed out, written or emptied since the log was
    /// seen. It had room.
    ///
    /// A crash leaves a slot that is not written: recovery ends it.
    ///
    /// # Errors
    /// Errors of the medium.
    #[inline(always)]
    pub fn reserve(&self, seen: &Seen) -> Result<Option<u64>> {
        let slot = seen.control.reserved;
        let next = Control { reserved: slot + 1, ..seen.control };
        let word = self.pm.block::<1>(self.at)?;
        if word.compare_exchange(0, seen.word, next.seal(self.at), sites::RESERVE).is_err() {
            return Ok(None);
        }
        // Pairs with the loads of `read`.
        M::Sync::fence(Ordering::Release);
        Ok(Some(slot))
    }

    /// Writes the item of a slot that was handed out.
    ///
    /// A crash leaves the item or not.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`], errors of the medium.
    #[inline(always)]
    pub fn fill(&self, slot: u64, item: &Item) -> Result<()> {
        self.pm.write_words(self.item_at(slot), &item[..self.item_words])?;
        self.set_written(slot)
    }

    /// Uses a slot up that was handed out and shall hold nothing.
    ///
    /// # Errors
    /// As [`CollectingLog::fill`].
    pub fn waste(&self, slot: u64) -> Result<()> {
        self.end(slot)?;
        self.set_written(slot)
    }

    #[inline(always)]
    fn set_written(&self, slot: u64) -> Result<()> {
        // Ends: each further round means that another append took a step.
        loop {
            let seen = self.look()?;
            let next = Control { written: seen.control.written | 1 << slot, ..seen.control };
            let word = self.pm.block::<1>(self.at)?;
            if word.compare_exchange(0, seen.word, next.seal(self.at), sites::WRITTEN).is_ok() {
                return Ok(());
            }
        }
    }

    /// Says that the item of a slot has moved or ended, durably on every medium. The bucket of its
    /// key is locked, which keeps the log from being emptied.
    ///
    /// # Errors
    /// As [`CollectingLog::fill`].
    pub fn end(&self, slot: u64) -> Result<()> {
        let place = self.at.plus(Log::ENDED as u64);
        // Ends: each further round means that another item of the log has ended.
        loop {
            let generation = self.look()?.control.generation;
            let found = self.pm.load(place)?;
            let slots = self.open_ended(found)?.of(generation) | 1 << slot;
            let next = Ended { slots, generation }.seal(self.at);
            let word = self.pm.block::<1>(place)?;
            if word.compare_exchange(0, found, next, sites::ENDED).is_ok() {
                break;
            }
        }
        Ok(self.pm.persist(Span::new(place, 1), sites::ENDED)?)
    }
}
