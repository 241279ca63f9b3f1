//! Objects of one length out of place: each takes whole lines, and a bit on the medium says whether
//! it is in use.
//!
//! ```text
//!   chunk  | bits of 64 objects | - (three lines) | object 0 | object 1 | ...
//! ```
//!
//! The allocators of these indexes (that of PMDK) also write a log record before the bit, and a
//! head before each object. Both are left out, in favour of the indexes.

use everhash_pmem::{Access, Addr, Media, Result, Span};

use super::Space;
use super::space::{LINE_WORDS, store_durably};

mod sites {
    everhash_pmem::sites! {
        /// An object, before anything names it.
        OBJECT = "rivals/objects/object";
        /// The bits of a chunk.
        BITS = "rivals/objects/bits";
    }
}

/// Objects of a chunk.
const CHUNK: u64 = 64;

/// Words before the first object: the unit of a device.
const HEAD_WORDS: u64 = 4 * LINE_WORDS;

/// The objects of one length.
pub struct Objects {
    words: u64,
    /// The chunks, in ascending order.
    chunks: Vec<Addr>,
    /// Objects that are not in use, the next one last. In DRAM, as allocators have it.
    free: Vec<Addr>,
}

impl Objects {
    /// Makes a store of objects of at least `words` words.
    pub const fn new(words: u64) -> Objects {
        let words = words.next_multiple_of(LINE_WORDS);
        Objects { words, chunks: Vec::new(), free: Vec::new() }
    }

    /// Writes an object and makes it durable, then its bit.
    pub fn add<M: Media>(
        &mut self,
        space: &Space<M>,
        pm: &Access<'_, M>,
        words: &[u64],
    ) -> Result<Addr> {
        if self.free.is_empty() {
            self.refill(space)?;
        }
        let at = self.free.pop().expect("a chunk was added");
        pm.write_words(at, words)?;
        pm.persist(Span::new(at, words.len() as u64), sites::OBJECT)?;
        self.turn(pm, at)?;
        Ok(at)
    }

    /// Gives an object back.
    pub fn remove<M: Media>(&mut self, pm: &Access<'_, M>, at: Addr) -> Result<()> {
        self.turn(pm, at)?;
        self.free.push(at);
        Ok(())
    }

    fn refill<M: Media>(&mut self, space: &Space<M>) -> Result<()> {
        let chunk = space.take(HEAD_WORDS + CHUNK * self.words)?.start;
        store_durably(&space.access(), chunk, 0, sites::BITS)?;
        let objects = (0..CHUNK).rev().map(|index| chunk.plus(HEAD_WORDS + index * self.words));
        self.free.extend(objects);
        self.chunks.push(chunk);
        Ok(())
    }

    /// Turns the bit of an object.
    fn turn<M: Media>(&self, pm: &Access<'_, M>, at: Addr) -> Result<()> {
        let chunk = self.chunks[self.chunks.partition_point(|chunk| *chunk <= at) - 1];
        let index = (at.word() - chunk.word() - HEAD_WORDS) / self.words;
        let bits = pm.load(chunk)? ^ 1 << index;
        store_durably(pm, chunk, bits, sites::BITS)
    }
}
