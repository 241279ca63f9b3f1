//! Raw-pointer versions of the hot paths, without checks: the ceilings of benchmarks. Not part of
//! the public interface.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::flush::Flusher;
use super::map::{Mapping, Source};
use crate::media::Block;
use crate::{Addr, Error, LINE, Result, WORD, WriteBack};

/// Words of a bucket in the probe: four pairs of key and value, one cache line.
pub const BUCKET_WORDS: usize = 8;

/// A cheap generator of independent random numbers, the same on both sides of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Stream(u64);

impl Stream {
    /// Makes the stream of a seed.
    pub fn new(seed: u64) -> Stream {
        Stream(seed)
    }

    /// Returns the next number; its high bits are the good ones.
    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

/// Returns the key that the probe benchmark keeps in `slot` of `bucket`.
#[inline(always)]
pub fn key_of(bucket: u64, slot: u64) -> u64 {
    bucket * 4 + slot + 1
}

/// Returns the slot of a bucket whose key is `key`, by its words, without a branch per slot.
#[inline(always)]
pub fn matching_slot(key: u64, word: impl Fn(usize) -> u64) -> Option<usize> {
    let equal = (0..4).fold(0, |equal, slot| equal | (u32::from(word(2 * slot) == key) << slot));
    (equal != 0).then(|| equal.trailing_zeros() as usize)
}

/// A table of buckets that is never written after it was made.
#[derive(Debug)]
pub struct RawTable {
    mapping: Mapping,
    mask: u64,
}

impl RawTable {
    /// Makes a table of `buckets` buckets, a power of two, filled with keys and values.
    ///
    /// # Errors
    /// The kernel's, if there is no memory.
    ///
    /// # Panics
    /// If `buckets` is not a power of two.
    pub fn new(buckets: u64, huge_pages: bool) -> Result<RawTable> {
        assert!(buckets.is_power_of_two());
        let mapping = memory(buckets * LINE, huge_pages)?;
        for bucket in 0..buckets {
            let window = mapping.window::<BUCKET_WORDS>(Addr::new(bucket * LINE))?;
            for slot in 0..4 {
                window.store(2 * slot, key_of(bucket, slot as u64));
                window.store(2 * slot + 1, bucket);
            }
        }
        Ok(RawTable { mapping, mask: buckets - 1 })
    }

    /// Looks `count` random keys up and returns the sum of their values.
    ///
    /// Compares all keys of the bucket before it branches: a branch per slot would be guessed
    /// wrong every other time, and a misprediction discards the outstanding misses.
    #[inline(never)]
    pub fn probe(&self, count: u64, seed: u64) -> u64 {
        let first = self.mapping.base().cast::<u64>().cast_const();
        let mut stream = Stream::new(seed);
        let mut sum = 0u64;
        for _ in 0..count {
            let draw = stream.draw();
            let bucket = draw & self.mask;
            let key = key_of(bucket, draw >> 62);
            let at = first.wrapping_add(bucket as usize * BUCKET_WORDS);
            // SAFETY: `bucket` is below the number of buckets and `index` below the words of one,
            // so the word lies inside the mapping; nobody writes to the table after `new`.
            let word = |index: usize| unsafe { *at.wrapping_add(index) };
            sum = sum.wrapping_add(match matching_slot(key, word) {
                Some(slot) => word(2 * slot + 1),
                None => 0,
            });
        }
        sum
    }

    /// Reads `count` independent random words and returns their sum.
    pub fn read(&self, count: u64, seed: u64) -> u64 {
        self.read_at(|draw| draw, count, seed)
    }

    /// As [`RawTable::read`], of the words that `place` makes of random numbers.
    #[inline(always)]
    pub fn read_at(&self, place: impl Fn(u64) -> u64, count: u64, seed: u64) -> u64 {
        let first = self.mapping.base().cast::<u64>().cast_const();
        let mask = (self.mask + 1) * BUCKET_WORDS as u64 - 1;
        let mut stream = Stream::new(seed);
        let mut sum = 0u64;
        for _ in 0..count {
            let at = first.wrapping_add((place(stream.draw()) & mask) as usize);
            // SAFETY: the index is below the number of words; nobody writes after `new`.
            sum = sum.wrapping_add(unsafe { *at });
        }
        sum
    }
}

/// Memory that is only stored to.
#[derive(Debug)]
pub struct RawTarget {
    mapping: Mapping,
    mask: u64,
    flusher: Flusher,
}

impl RawTarget {
    /// Makes a target of `lines` cache lines, a power of two.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the processor lacks the instruction; the kernel's, if there is no
    /// memory.
    ///
    /// # Panics
    /// If `lines` is not a power of two.
    pub fn new(lines: u64, kind: WriteBack, huge_pages: bool) -> Result<RawTarget> {
        assert!(lines.is_power_of_two());
        let flusher = Flusher::new(kind).ok_or_else(|| unsupported(kind))?;
        let mapping = memory(lines * LINE, huge_pages)?;
        mapping.populate(crate::Span::of_bytes(Addr::NULL, lines * LINE));
        Ok(RawTarget { mapping, mask: lines - 1, flusher })
    }

    /// Does `count` operations of `steps` times store, write-back and fence, at random lines.
    pub fn persist(&self, count: u64, steps: u32, seed: u64) {
        let mut stream = Stream::new(seed);
        for _ in 0..count {
            for _ in 0..steps {
                let draw = stream.draw();
                let byte = (draw & self.mask) * LINE;
                let at = self.mapping.base().wrapping_add(byte as usize);
                // SAFETY: the line lies inside the mapping, is aligned, and is stored to by
                // atomic instructions alone.
                unsafe { AtomicU64::from_ptr(at.cast()) }.store(draw, Ordering::Relaxed);
                // SAFETY: the line lies inside the mapping.
                unsafe { self.flusher.line(at) };
                self.flusher.fence();
            }
        }
    }
}

/// The ceilings of the machine. Unit: operations per second, all threads together.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// Independent random 8-byte reads.
    pub reads: f64,
    /// Store, write-back and fence of one random line.
    pub persists: f64,
    /// The same twice per operation, as an insert with one commit word needs it.
    pub double_persists: f64,
}

/// Measures the ceilings with `threads` threads of `count` operations each on `bytes` bytes.
///
/// # Errors
/// As [`RawTable::new`] and [`RawTarget::new`].
pub fn ceilings(bytes: u64, threads: u64, count: u64, kind: WriteBack) -> Result<Ceilings> {
    let lines = (bytes / LINE).next_power_of_two();
    let table = RawTable::new(lines, true)?;
    let target = RawTarget::new(lines, kind, true)?;
    Ok(Ceilings {
        reads: rate(threads, count, |seed| {
            std::hint::black_box(table.read(count, seed));
        }),
        persists: rate(threads, count, |seed| target.persist(count, 1, seed)),
        double_persists: rate(threads, count, |seed| target.persist(count, 2, seed)),
    })
}

/// Runs `work` on every thread and returns operations per second, all threads together.
pub fn rate(threads: u64, count: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let work = &work;
            scope.spawn(move || work(seed));
        }
    });
    (threads * count) as f64 / start.elapsed().as_secs_f64()
}

fn memory(bytes: u64, huge_pages: bool) -> Result<Mapping> {
    let doing = |source| Error::System { doing: "map memory", source };
    let mapping = Mapping::reserve(bytes.max(WORD), true).map_err(doing)?;
    mapping.extend(bytes, Source::Memory).map_err(doing)?;
    if huge_pages {
        // Best effort: without huge pages the figure is lower, on both sides of a comparison.
        let _ = mapping.use_huge_pages();
    }
    Ok(mapping)
}

fn unsupported(kind: WriteBack) -> Error {
    Error::Unsupported { what: format!("{kind:?} is not an instruction of this processor") }
}
