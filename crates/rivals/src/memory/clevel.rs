//! clevel: lock-free concurrent level hashing (Chen, Hua, Ding, Zuo, ATC 2020).
//!
//! Kept: levels of buckets of eight pointers, each with 16 bits of the hash, to pairs out of place;
//! two buckets for a key in each level; the look from the bottom level to the top one; slots taken
//! by one exchange, those of upper levels first; updates out of place; a context on the medium that
//! names the levels and is replaced as a whole; a level twice as large on top when a key finds no
//! slot, and rehashing of the bottom level, for which each pair is read.
//!
//! A thread of its own rehashes there; here every write rehashes one bucket, so that its work is
//! counted and its time is part of theirs. Left out: recovery, and what only other threads need.
//! Objects are those of `objects.rs`.
//!
//! ```text
//!   root    | context | next bucket to rehash |
//!   context | first level | last level | whether there is a level to rehash |
//!   level   | buckets | their number | level above |
//!   slot    | 16 bits of the hash, 48 bits of address |
//!   pair    | key | value |
//! ```

use everhash_pmem::{Access, Addr, Media, Region, Result};

use super::Space;
use super::objects::Objects;
use super::space::{LINE_WORDS, ROOT, exchange_durably, store_durably};
use crate::{Inserted, Rival, hash};

mod sites {
    everhash_pmem::sites! {
        /// A slot.
        SLOT = "rivals/clevel/slot";
        /// The buckets of a level, cleared.
        CLEARED = "rivals/clevel/cleared";
        /// That a level is above another one.
        ABOVE = "rivals/clevel/above";
        /// The address of the context.
        CONTEXT = "rivals/clevel/context";
        /// How far rehashing has come.
        REHASHED = "rivals/clevel/rehashed";
    }
}

/// Unit: slots. Source: clevel 4.1, a line.
const SLOTS: u64 = LINE_WORDS;

const ADDRESS_BITS: u32 = 48;

/// The word of the root line that counts rehashed buckets.
const REHASHED: Addr = ROOT.plus(1);

/// Where the parts of a context and of a level lie.
const FIRST: u64 = 0;
const LAST: u64 = 1;
const IS_RESIZING: u64 = 2;
const BUCKETS: u64 = 0;
const COUNT: u64 = 1;
const ABOVE: u64 = 2;

/// A context.
#[derive(Clone, Copy)]
struct Context {
    at: Addr,
    first: Addr,
    last: Addr,
    is_resizing: bool,
}

/// A table of clevel.
pub struct Clevel<M: Media> {
    space: Space<M>,
    pairs: Objects,
    contexts: Objects,
    levels: Objects,
    /// Unit: words.
    value_words: u64,
    ahead: bool,
}

/// What a look found.
enum Found {
    /// The slot of the key, its pointer, and where the pair lies.
    Pair(Addr, u64, Addr),
    /// A free slot, and whether it lies in the last level.
    Vacancy(Addr, bool),
    /// No slot.
    None,
}

impl<M: Media> Clevel<M> {
    /// Makes an empty table with `bottom` buckets below and twice as many above, whose values have
    /// `value_words` words; all words of one are the same.
    ///
    /// # Panics
    /// If `bottom` is no power of two, or one.
    ///
    /// # Errors
    /// As the medium.
    pub fn format(region: Region<M>, bottom: u64, value_words: u64) -> Result<Self> {
        assert!(bottom.is_power_of_two() && bottom > 1, "a level has two halves");
        let mut table = Clevel {
            space: Space::new(region)?,
            pairs: Objects::new(1 + value_words),
            contexts: Objects::new(LINE_WORDS),
            levels: Objects::new(LINE_WORDS),
            value_words,
            ahead: false,
        };
        let region = table.space.region().clone();
        let pm = region.access();
        let first = table.new_level(&pm, 2 * bottom)?;
        let last = table.new_level(&pm, bottom)?;
        store_durably(&pm, last.plus(ABOVE), first.byte(), sites::ABOVE)?;
        table.set_context(&pm, Addr::NULL, [first, last], false)?;
        Ok(table)
    }

    /// Returns the table that lies on a medium, to look pairs up.
    pub fn open(region: Region<M>, value_words: u64) -> Self {
        Clevel {
            space: Space::open(region),
            pairs: Objects::new(1 + value_words),
            contexts: Objects::new(LINE_WORDS),
            levels: Objects::new(LINE_WORDS),
            value_words,
            ahead: false,
        }
    }

    /// Asks for all lines at once that a search may look at, as a processor does that runs ahead of
    /// its loads; otherwise each is waited for in turn.
    #[must_use]
    pub fn reading_ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    fn find(&self, pm: &Access<'_, M>, context: &Context, key: u64) -> Result<Found> {
        if self.ahead {
            ask(pm, context, key)?;
        }
        find(pm, context, key)
    }

    fn new_level(&mut self, pm: &Access<'_, M>, count: u64) -> Result<Addr> {
        let buckets = self.space.take_zeroed(count * SLOTS, sites::CLEARED)?.start;
        self.levels.add(&self.space, pm, &[buckets.byte(), count, 0])
    }

    /// Writes a context and exchanges it with the one at `old`.
    fn set_context(
        &mut self,
        pm: &Access<'_, M>,
        old: Addr,
        [first, last]: [Addr; 2],
        is_resizing: bool,
    ) -> Result<()> {
        let words = [first.byte(), last.byte(), is_resizing.into()];
        let new = self.contexts.add(&self.space, pm, &words)?;
        exchange_durably(pm, ROOT, old.byte(), new.byte(), sites::CONTEXT)
    }

    fn pair_words(&self, key: u64, value: u64) -> Vec<u64> {
        let mut words = vec![value; 1 + self.value_words as usize];
        words[0] = key;
        words
    }

    /// Adds a level twice as large as the first one.
    fn expand(&mut self, pm: &Access<'_, M>) -> Result<()> {
        let context = context(pm)?;
        let count = pm.load(context.first.plus(COUNT))?;
        let fresh = self.new_level(pm, 2 * count)?;
        exchange_durably(pm, context.first.plus(ABOVE), 0, fresh.byte(), sites::ABOVE)?;
        self.set_context(pm, context.at, [fresh, context.last], true)
    }

    /// Moves the pointers of one bucket of the last level to the first level, if there is a level
    /// to rehash.
    fn rehash(&mut self, pm: &Access<'_, M>) -> Result<()> {
        let mut context = context(pm)?;
        if !context.is_resizing {
            return Ok(());
        }
        let bucket = pm.load(REHASHED)?;
        let from = Addr::new(pm.load(context.last.plus(BUCKETS))?).plus(bucket * SLOTS);
        for slot in (0..SLOTS).map(|slot| from.plus(slot)) {
            let pointer = pm.load(slot)?;
            if pointer == 0 {
                continue;
            }
            let key = pm.load(pair_at(pointer))?;
            let target = loop {
                if let Some(target) = free_of(pm, homes(pm, context.first, key)?)? {
                    break target;
                }
                self.expand(pm)?;
                context = self::context(pm)?;
            };
            exchange_durably(pm, target, 0, pointer, sites::SLOT)?;
            store_durably(pm, slot, 0, sites::SLOT)?;
        }
        let is_done = bucket + 1 == pm.load(context.last.plus(COUNT))?;
        let next = if is_done { 0 } else { bucket + 1 };
        store_durably(pm, REHASHED, next, sites::REHASHED)?;
        if is_done {
            let above = Addr::new(pm.load(context.last.plus(ABOVE))?);
            let is_resizing = pm.load(above.plus(ABOVE))? != context.first.byte();
            self.set_context(pm, context.at, [context.first, above], is_resizing)?;
        }
        Ok(())
    }
}

fn context<M: Media>(pm: &Access<'_, M>) -> Result<Context> {
    let at = Addr::new(pm.load(ROOT)?);
    let [first, last] = [FIRST, LAST].map(|word| pm.load(at.plus(word)).map(Addr::new));
    let is_resizing = pm.load(at.plus(IS_RESIZING))? != 0;
    Ok(Context { at, first: first?, last: last?, is_resizing })
}

/// Returns the two buckets of a key in a level: one in each half.
fn homes<M: Media>(pm: &Access<'_, M>, level: Addr, key: u64) -> Result<[Addr; 2]> {
    let buckets = Addr::new(pm.load(level.plus(BUCKETS))?);
    let half = pm.load(level.plus(COUNT))? / 2;
    let [first, second] = hash::both(key);
    Ok([first % half, half + second % half].map(|bucket| buckets.plus(bucket * SLOTS)))
}

/// Returns the free slot of two buckets whose index is lower.
fn free_of<M: Media>(pm: &Access<'_, M>, buckets: [Addr; 2]) -> Result<Option<Addr>> {
    for slot in 0..SLOTS {
        for at in buckets.map(|bucket| bucket.plus(slot)) {
            if pm.load(at)? == 0 {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

/// Returns the bits of a key that its pointer has.
fn tag(key: u64) -> u64 {
    hash::both(key)[0] >> ADDRESS_BITS
}

fn pair_at(pointer: u64) -> Addr {
    Addr::new(pointer << (64 - ADDRESS_BITS) >> (64 - ADDRESS_BITS))
}

/// Asks for the buckets of a key in all levels.
fn ask<M: Media>(pm: &Access<'_, M>, context: &Context, key: u64) -> Result<()> {
    let mut level = context.last;
    loop {
        homes(pm, level, key)?.into_iter().for_each(|bucket| pm.prefetch(bucket));
        if level == context.first {
            return Ok(());
        }
        level = Addr::new(pm.load(level.plus(ABOVE))?);
    }
}

/// Looks for a key from the last level to the first one.
fn find<M: Media>(pm: &Access<'_, M>, context: &Context, key: u64) -> Result<Found> {
    let (mut level, mut found, tag) = (context.last, Found::None, tag(key));
    loop {
        let mut lowest = SLOTS;
        for bucket in homes(pm, level, key)? {
            let mut is_open = true;
            for slot in 0..SLOTS {
                let at = bucket.plus(slot);
                let pointer = pm.load(at)?;
                if pointer == 0 && is_open {
                    is_open = false;
                    // Of two vacancies of a level that of the emptier bucket.
                    if slot < lowest {
                        (lowest, found) = (slot, Found::Vacancy(at, level == context.last));
                    }
                }
                let pair = pair_at(pointer);
                if pointer != 0 && pointer >> ADDRESS_BITS == tag && pm.load(pair)? == key {
                    return Ok(Found::Pair(at, pointer, pair));
                }
            }
        }
        if level == context.first {
            return Ok(found);
        }
        level = Addr::new(pm.load(level.plus(ABOVE))?);
    }
}

impl<M: Media> Rival for Clevel<M> {
    fn insert(&mut self, key: u64, value: u64) -> Result<Inserted> {
        let region = self.space.region().clone();
        let pm = region.access();
        let pair = self.pairs.add(&self.space, &pm, &self.pair_words(key, value))?;
        loop {
            let context = context(&pm)?;
            match self.find(&pm, &context, key)? {
                Found::Pair(..) => {
                    self.pairs.remove(&pm, pair)?;
                    return Ok(Inserted::Present);
                }
                Found::Vacancy(slot, is_last) if !is_last || !context.is_resizing => {
                    let pointer = tag(key) << ADDRESS_BITS | pair.byte();
                    exchange_durably(&pm, slot, 0, pointer, sites::SLOT)?;
                    self.rehash(&pm)?;
                    return Ok(Inserted::New);
                }
                Found::Vacancy(..) | Found::None => self.expand(&pm)?,
            }
        }
    }

    fn update(&mut self, key: u64, value: u64) -> Result<bool> {
        let region = self.space.region().clone();
        let pm = region.access();
        let Found::Pair(slot, old, old_pair) = self.find(&pm, &context(&pm)?, key)? else {
            return Ok(false);
        };
        let pair = self.pairs.add(&self.space, &pm, &self.pair_words(key, value))?;
        let pointer = tag(key) << ADDRESS_BITS | pair.byte();
        exchange_durably(&pm, slot, old, pointer, sites::SLOT)?;
        self.pairs.remove(&pm, old_pair)?;
        self.rehash(&pm)?;
        Ok(true)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        let region = self.space.region().clone();
        let pm = region.access();
        let Found::Pair(slot, old, pair) = self.find(&pm, &context(&pm)?, key)? else {
            return Ok(false);
        };
        exchange_durably(&pm, slot, old, 0, sites::SLOT)?;
        self.pairs.remove(&pm, pair)?;
        self.rehash(&pm)?;
        Ok(true)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let pm = self.space.access();
        let Found::Pair(.., pair) = self.find(&pm, &context(&pm)?, key)? else { return Ok(None) };
        let mut value = vec![0; self.value_words as usize];
        pm.read_words(pair.plus(1), &mut value)?;
        // Nothing has changed meanwhile if the context is the same.
        pm.load(ROOT)?;
        Ok(value.first().copied())
    }

    fn slots(&self) -> u64 {
        let pm = self.space.access();
        let count = |level: Addr| pm.load(level.plus(COUNT)).expect("it is readable") * SLOTS;
        let context = context(&pm).expect("it is readable");
        let (mut level, mut slots) = (context.last, count(context.last));
        while level != context.first {
            level = Addr::new(pm.load(level.plus(ABOVE)).expect("it is readable"));
            slots += count(level);
        }
        slots
    }
}
