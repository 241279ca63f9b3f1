//! Bucket pre-allocation (WOPHI III-A-2): buckets are kept ready, so that no insert that collides
//! waits for the allocator.
//!
//! Which of them are free is known in DRAM only: a bucket that a chain reaches is in use, and all
//! else is free. Recovery finds that out by walking the chains, so a crash can neither lose a
//! bucket nor give one to two chains. Before a bucket is handed out again, the removal of the link
//! that led to it is durable.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use everhash_index::Result;
use everhash_pmem::{
    Addr, AtomicWord, LINE, Lock, Media, Primitives, Space, Span, WORD, before_reuse,
};

type LockOf<M, T> = <<M as Media>::Sync as Primitives>::Mutex<T>;
type WordOf<M> = <<M as Media>::Sync as Primitives>::AtomicU64;

/// The buckets of which chains are made, and which of them are free.
pub struct PreAllocated<M: Media> {
    space: Arc<Space<M>>,
    bucket_bytes: u64,
    /// How much memory is prepared at once. Unit: bytes; a whole number of buckets.
    piece_bytes: u64,
    free: LockOf<M, Free>,
    /// Chained buckets in use.
    used: WordOf<M>,
    /// Buckets that were taken from the space one by one because none was at hand.
    direct: WordOf<M>,
    /// Buckets of all arrays.
    arrays: WordOf<M>,
}

#[derive(Default)]
struct Free {
    /// The arrays that the root leads to: their buckets are never given back to the space.
    arrays: Vec<Span>,
    /// Runs of free buckets.
    runs: Vec<Span>,
    /// The sum of the runs. Unit: buckets.
    count: u64,
}

/// How many chained buckets there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PabUsage {
    /// Free ones at hand.
    pub free: u64,
    /// Those in chains.
    pub used: u64,
    /// Those that were allocated directly since the table was opened.
    pub direct: u64,
    /// Size of the pre-allocated arrays.
    pub arrays: u64,
    /// DRAM of the list of free ones. Unit: bytes.
    pub dram_bytes: u64,
}

impl<M: Media> PreAllocated<M> {
    /// Makes an empty stock of buckets of `bucket_bytes` bytes, of which the memory of
    /// `piece_bytes` is prepared at once.
    pub fn new(space: Arc<Space<M>>, bucket_bytes: u64, piece_bytes: u64) -> Self {
        PreAllocated {
            space,
            bucket_bytes,
            piece_bytes: piece_bytes.next_multiple_of(bucket_bytes),
            free: Lock::new(Free::default()),
            used: AtomicWord::new(0),
            direct: AtomicWord::new(0),
            arrays: AtomicWord::new(0),
        }
    }

    /// Adds an array that the root leads to, durably. `runs` are its free buckets.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn add_array(&self, array: Span, runs: impl IntoIterator<Item = Span>) -> Result<()> {
        let mut free = self.free.lock()?;
        free.arrays.push(array);
        self.arrays.fetch_add(array.bytes() / self.bucket_bytes, Ordering::Relaxed);
        runs.into_iter().for_each(|run| free.add(run, self.bucket_bytes));
        Ok(())
    }

    /// Counts buckets that recovery found in chains.
    pub fn found_in_use(&self, count: u64) {
        self.used.fetch_add(count, Ordering::Relaxed);
    }

    /// Hands out a bucket; its words may hold anything, and the caller may store to it at once.
    ///
    /// # Errors
    /// [`Error::Full`] if none is at hand and the space has no room.
    pub fn take(&self) -> Result<Addr> {
        let mut free = self.free.lock()?;
        let taken = free.take(self.bucket_bytes, self.piece_bytes);
        drop(free);
        let taken = match taken {
            Some(taken) => taken,
            None => {
                let taken = self.space.take(self.bucket_bytes, LINE)?;
                self.direct.fetch_add(1, Ordering::Relaxed);
                taken.span
            }
        };
        self.used.fetch_add(1, Ordering::Relaxed);
        before_reuse::<M::Sync>();
        if taken.bytes() > self.bucket_bytes {
            self.space.region().media().renew(taken);
            self.free.lock()?.add(behind(taken, self.bucket_bytes), self.bucket_bytes);
        }
        Ok(taken.start)
    }

    /// Hands out `count` buckets, or none.
    ///
    /// # Errors
    /// As [`PreAllocated::take`].
    pub fn take_many(&self, count: usize) -> Result<Vec<Addr>> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match self.take() {
                Ok(at) => taken.push(at),
                Err(error) => {
                    taken.into_iter().try_for_each(|at| self.give(at))?;
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Takes back a bucket that no link leads to, durably.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn give(&self, at: Addr) -> Result<()> {
        let bucket = Span::of_bytes(at, self.bucket_bytes);
        let mut free = self.free.lock()?;
        self.used.fetch_sub(1, Ordering::Relaxed);
        if free.arrays.iter().any(|array| array.overlaps(bucket)) {
            free.give(bucket, self.bucket_bytes);
        } else {
            drop(free);
            self.space.give(bucket);
        }
        Ok(())
    }

    /// Takes up to `most` buckets from the space in one piece, if fewer than `low` are at hand.
    /// Returns how many; 0 also if the space has no room.
    ///
    /// # Errors
    /// As the medium.
    pub fn refill(&self, low: u64, most: u64) -> Result<u64> {
        let missing = low.saturating_sub(self.free.lock()?.count).min(most);
        if missing == 0 {
            return Ok(0);
        }
        match self.space.take(missing * self.bucket_bytes, LINE) {
            Ok(taken) => {
                self.free.lock()?.add(taken.span, self.bucket_bytes);
                Ok(missing)
            }
            Err(everhash_pmem::Error::Full { .. }) => Ok(0),
            Err(other) => Err(other.into()),
        }
    }

    /// Returns whether so much of the arrays is in use that the table should grow: 7 of 8.
    ///
    /// Source: ours. At load 0.75 random chains need 0.19 buckets per main bucket, which is 76 %
    /// of the default share of a quarter; at half, growth would begin at load 0.58.
    pub fn is_scarce(&self) -> bool {
        let arrays = self.arrays.load(Ordering::Relaxed);
        self.used.load(Ordering::Relaxed) * 8 > arrays * 7
    }

    /// Returns how many chained buckets there are.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn usage(&self) -> Result<PabUsage> {
        let free = self.free.lock()?;
        Ok(PabUsage {
            free: free.count,
            used: self.used.load(Ordering::Relaxed),
            direct: self.direct.load(Ordering::Relaxed),
            arrays: self.arrays.load(Ordering::Relaxed),
            dram_bytes: (free.runs.capacity() * size_of::<Span>()) as u64,
        })
    }
}

impl Free {
    /// Takes the first bucket of the newest run; the first piece if that is longer than a piece.
    fn take(&mut self, bucket_bytes: u64, piece_bytes: u64) -> Option<Span> {
        let run = self.runs.last_mut()?;
        let bytes = if run.bytes() > piece_bytes { piece_bytes } else { bucket_bytes };
        let taken = Span::of_bytes(run.start, bytes);
        *run = behind(*run, bytes);
        if run.words == 0 {
            self.runs.pop();
        }
        self.count -= bytes / bucket_bytes;
        Some(taken)
    }

    /// Adds a run.
    fn add(&mut self, run: Span, bucket_bytes: u64) {
        self.count += run.bytes() / bucket_bytes;
        self.runs.push(run);
    }

    /// Adds a bucket, to the newest run if it lies next to it.
    fn give(&mut self, bucket: Span, bucket_bytes: u64) {
        match self.runs.last_mut() {
            Some(run) if bucket.end_byte() == run.start.byte() => {
                *run = Span::new(bucket.start, run.words + bucket.words);
                self.count += 1;
            }
            _ => self.add(bucket, bucket_bytes),
        }
    }
}

/// Returns what lies behind the first bytes of a span.
fn behind(span: Span, bytes: u64) -> Span {
    Span::new(span.start.plus(bytes / WORD), span.words - bytes / WORD)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use everhash_index::Error;
    use everhash_pmem::media::file::system::{Call, System};
    use everhash_pmem::{FileMedium, FileOptions, Image, Region, Std};

    use super::*;

    fn stock(capacity_bytes: u64) -> (Arc<Space<Image>>, PreAllocated<Image>) {
        let region = Region::new(Image::<Std>::new(4096, capacity_bytes));
        let space = Arc::new(Space::fresh(region, Addr::new(1024)));
        (Arc::clone(&space), PreAllocated::new(space, 64, 192))
    }

    #[test]
    fn no_bucket_is_handed_out_twice() {
        // Fails if a run loses its place, or if a direct bucket comes back as a pre-allocated one.
        let (space, pab) = stock(8192);
        let array = space.take(64 * 4, 64).unwrap().span;
        pab.add_array(array, [array]).unwrap();
        let mut taken: Vec<Addr> = (0..10).map(|_| pab.take().unwrap()).collect();
        assert_eq!(
            pab.usage().unwrap(),
            PabUsage {
                free: 0,
                used: 10,
                direct: 6,
                arrays: 4,
                dram_bytes: pab.usage().unwrap().dram_bytes
            }
        );
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 10);
        let used_bytes = space.usage().unwrap().used_bytes;
        taken.into_iter().for_each(|at| pab.give(at).unwrap());
        assert_eq!(space.usage().unwrap().used_bytes, used_bytes - 6 * 64);
        assert_eq!((pab.usage().unwrap().free, pab.usage().unwrap().used), (4, 0));
    }

    /// A system that counts the pieces which are written as zeros.
    #[derive(Debug, Default)]
    struct Zeros(AtomicU32);

    impl System for Zeros {
        fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
            self.0.fetch_add(u32::from(call == Call::Write), Ordering::Relaxed);
            run()
        }
    }

    #[test]
    fn the_memory_of_a_whole_piece_is_prepared_when_its_first_bucket_is_taken() {
        // Fails if memory comes by faults, bucket by bucket, or if a bucket in use is among what is
        // prepared: it would lose its words.
        const PAGE: u64 = 4096;
        let path = std::env::temp_dir().join(format!("wophi-prepared-{}", std::process::id()));
        let zeros = Arc::new(Zeros::default());
        let system = Arc::clone(&zeros) as Arc<dyn System>;
        let options = FileOptions { capacity_bytes: 1 << 20, system, ..FileOptions::default() };
        let region = Region::new(FileMedium::create(&path, 16 * PAGE, &options).unwrap());
        let pm = region.access();
        let space = Arc::new(Space::fresh(region.clone(), Addr::new(PAGE)));
        let pab = PreAllocated::new(Arc::clone(&space), 64, 2 * PAGE);
        let array = space.take(5 * PAGE, PAGE).unwrap().span;
        pab.add_array(array, [array]).unwrap();
        let taken: Vec<_> = (0..5 * PAGE / 64)
            .map(|_| {
                let at = pab.take().unwrap();
                pm.store(at.plus(7), 9).unwrap();
                (at, zeros.0.load(Ordering::Relaxed))
            })
            .collect();
        // Two pieces, and the rest, which is shorter than one.
        let written: Vec<_> = taken.iter().map(|(_, written)| *written).collect();
        let expected = [vec![1; 128], vec![2; 128 + 64]].concat();
        assert_eq!(written, expected);
        assert!(taken.iter().all(|(at, _)| pm.load(at.plus(7)).unwrap() == 9));
    }

    #[test]
    fn a_full_medium_takes_nothing() {
        // Fails if buckets are lost when only some of a request can be had, or if one that was
        // refused is counted.
        let (space, pab) = stock(4096);
        let before = space.usage().unwrap();
        assert!(matches!(pab.take_many(1000), Err(Error::Full { .. })));
        assert_eq!(space.usage().unwrap().used_bytes, before.used_bytes);
        assert_eq!(pab.usage().unwrap().used, 0);
        let had = core::iter::from_fn(|| pab.take().ok()).collect::<Vec<_>>();
        // The two attempts had as many each; the two that were refused are not counted.
        assert_eq!(pab.usage().unwrap().direct, 2 * had.len() as u64);
        had.into_iter().for_each(|at| pab.give(at).unwrap());
        assert_eq!(pab.refill(1 << 20, 1 << 20).unwrap(), 0);
        assert_eq!(pab.refill(8, 3).unwrap(), 3);
        assert_eq!(pab.usage().unwrap().free, 3);
    }
}
