//! An emulated device: real contents, counted traffic, virtual time.

mod cache;
mod counters;
mod dimm;
mod machine;
mod modules;
mod thread;

#[cfg(test)]
mod tests;

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use counters::{Counters, Ipmctl, Pmwatch};
use machine::Machine;

use super::virtual_time::VirtualTime;
use super::{Block, Guarantees, Media, out_of_bounds};
use crate::profile::MemoryDevice;
use crate::{Addr, Error, LINE, Primitives, Result, Site, Span, Std, WORD};

/// Whether a device keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// It only counts; clocks stand still.
    Counting,
    /// Every verb moves the clock of the logical thread that runs.
    Virtual,
}

/// A byte-addressable device with the caches, buffers and media of a [`MemoryDevice`].
///
/// Contents are real, so that engines run on it. Beside them it keeps which lines are cached,
/// dirty or buffered, and counts what a processor and its modules would do: misses, reads for
/// ownership, evictions, combined and partial writes. All of it depends on the program, the
/// profile and the seed alone.
///
/// Threads of the operating system may share it, and are then counted as one logical thread; more
/// than one logical thread comes from a [`Schedule`](super::virtual_time::Schedule).
///
/// There is no hardware prefetcher: the counters see what the program asks for.
///
/// ```
/// use everhash_pmem::media::emulated::{Emulated, Timing};
/// use everhash_pmem::profile::Profile;
/// use everhash_pmem::{Addr, Region, Site, Span};
///
/// let profile = Profile::named("optane-100")?;
/// let device = Emulated::<everhash_pmem::Std>::new(
///     profile.memory()?, Timing::Counting, 1 << 20, 1 << 20,
/// );
/// let region = Region::new(device);
/// let pm = region.access();
/// for unit in 0..1000 {
///     let at = Addr::new(unit * 256);
///     pm.store(at, unit)?;
///     pm.persist(Span::new(at, 1), Site::new("example/store"))?;
/// }
/// region.media().drain();
/// // Eight bytes were stored in each unit of 256.
/// assert_eq!(region.media().counters().write_amplification(), 32.0);
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub struct Emulated<P: Primitives = Std> {
    machine: Mutex<Machine>,
    bytes: AtomicU64,
    capacity: u64,
    running: AtomicU32,
    guarantees: Guarantees,
    primitives: PhantomData<P>,
}

impl<P: Primitives> fmt::Debug for Emulated<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Emulated({} of {} bytes)", self.bytes.load(Ordering::Relaxed), self.capacity)
    }
}

/// How evenly a device was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wear {
    /// Lines, or units, that were written at least once.
    pub touched: u64,
    /// Writes in all.
    pub writes: u64,
    /// Writes of the one that was written most.
    pub most: u32,
}

impl Wear {
    /// Returns the writes of a touched line or unit on average.
    pub fn mean(&self) -> f64 {
        self.writes as f64 / self.touched.max(1) as f64
    }

    fn of(counts: &[u32]) -> Wear {
        counts.iter().filter(|count| **count > 0).fold(Wear::default(), |wear, count| Wear {
            touched: wear.touched + 1,
            writes: wear.writes + u64::from(*count),
            most: wear.most.max(*count),
        })
    }
}

impl<P: Primitives> Emulated<P> {
    /// Makes a device of `bytes` zero bytes that can grow to `capacity` bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity`.
    pub fn new(device: &MemoryDevice, timing: Timing, bytes: u64, capacity: u64) -> Self {
        Self::of(device, timing, 0, &[], bytes, capacity)
    }

    /// Makes a device of `bytes` bytes that begins with `words`, with empty caches, and can grow to
    /// `capacity` bytes. `seed` decides every random choice.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity` or is shorter than `words`.
    pub fn of(
        device: &MemoryDevice,
        timing: Timing,
        seed: u64,
        words: &[u64],
        bytes: u64,
        capacity: u64,
    ) -> Self {
        assert!(bytes <= capacity, "a device is at most as long as its capacity");
        assert!(words.len() as u64 * WORD <= bytes, "the words fit into the device");
        let mut content = vec![0; (capacity / WORD) as usize];
        content[..words.len()].copy_from_slice(words);
        Emulated {
            machine: Mutex::new(Machine::new(device, timing, content, seed)),
            bytes: AtomicU64::new(bytes / WORD * WORD),
            capacity: capacity / WORD * WORD,
            running: AtomicU32::new(0),
            guarantees: device.guarantees(),
            primitives: PhantomData,
        }
    }

    /// Returns the counters; what lies in the buffers of the modules is not in them yet.
    pub fn counters(&self) -> Counters {
        self.machine().counters
    }

    /// Writes out the buffers of the modules, as at the end of a measured phase, and returns what
    /// that alone came to.
    ///
    /// Without it a short run would leave up to a buffer of units out of its counters. The caches
    /// keep what was not flushed.
    pub fn drain(&self) -> Counters {
        let mut machine = self.machine();
        let before = machine.counters;
        machine.drain();
        machine.counters - before
    }

    /// Says how many threads write: a module with too many combines less.
    ///
    /// A [`Schedule`](super::virtual_time::Schedule) says so itself.
    pub fn set_writers(&self, writers: u32) {
        self.machine().set_writers(u64::from(writers));
    }

    /// Returns how often lines were written to the modules.
    pub fn line_wear(&self) -> Wear {
        Wear::of(self.machine().wear().0)
    }

    /// Returns how often units were written to the media.
    pub fn unit_wear(&self) -> Wear {
        Wear::of(self.machine().wear().1)
    }

    /// Returns the line that was written most among those of `span`, with its count.
    pub fn most_written_line(&self, span: Span) -> Option<(Addr, u32)> {
        let machine = self.machine();
        let wear = machine.wear().0;
        let lines = span.lines().take_while(|line| (*line as usize) < wear.len());
        let most = lines.map(|line| (line, wear[line as usize])).max_by_key(|(_, count)| *count);
        most.map(|(line, count)| (Addr::new(line * LINE), count))
    }

    /// Returns what a power failure at this moment leaves, word by word.
    ///
    /// Under ADR that is every line as it last left the caches; under eADR everything visible.
    /// Without a seed no dirty line has left the caches by itself; with one, each has with a chance
    /// of one half. States between the stores to one line are enumerated by the crash explorer on
    /// the traced medium, not here.
    pub fn crash(&self, seed: Option<u64>) -> Vec<u64> {
        self.machine().crash((self.bytes() / WORD) as usize, seed)
    }

    /// Returns a copy of all words as programs see them.
    pub fn words(&self) -> Vec<u64> {
        self.machine().visible((self.bytes() / WORD) as usize)
    }

    /// Returns the clock of the logical thread that runs. Unit: picoseconds.
    pub fn elapsed_ps(&self) -> u64 {
        self.machine().clocks.now(self.running.load(Ordering::Relaxed))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        // Bounds are checked before the lock is taken: nobody can leave the machine half changed.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn check(&self, at: Addr, words: u64) -> Result<()> {
        match at.word().checked_add(words) {
            Some(end) if end <= self.bytes() / WORD => Ok(()),
            _ => Err(out_of_bounds(at, words)),
        }
    }
}

/// Which logical thread an operation belongs to.
#[derive(Clone, Copy, Debug)]
pub struct EmulatedContext {
    thread: u32,
}

/// A window of words of an [`Emulated`] device.
pub struct EmulatedBlock<'a, P: Primitives, const N: usize> {
    device: &'a Emulated<P>,
    thread: u32,
    start: Addr,
}

impl<P: Primitives, const N: usize> Clone for EmulatedBlock<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Primitives, const N: usize> Copy for EmulatedBlock<'_, P, N> {}

impl<P: Primitives, const N: usize> EmulatedBlock<'_, P, N> {
    fn word(&self, index: usize) -> u64 {
        assert!(index < N, "word {index} of a window of {N} words");
        self.start.word() + index as u64
    }
}

impl<P: Primitives, const N: usize> Block<N> for EmulatedBlock<'_, P, N> {
    fn start(&self) -> Addr {
        self.start
    }

    fn load(&self, index: usize) -> u64 {
        let word = self.word(index);
        self.device.machine().load(self.thread, word)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.load(index)
    }

    fn store(&self, index: usize, value: u64) {
        let word = self.word(index);
        self.device.machine().store(self.thread, word, &[value]);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.store(index, value);
    }

    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        let word = self.word(index);
        self.device.machine().exchange(self.thread, word, current, new)
    }
}

impl<P: Primitives> Media for Emulated<P> {
    type Sync = P;
    type Context = EmulatedContext;
    type Block<'a, const N: usize>
        = EmulatedBlock<'a, P, N>
    where
        Self: 'a;

    fn context(&self) -> EmulatedContext {
        EmulatedContext { thread: self.running.load(Ordering::Relaxed) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a EmulatedContext,
        at: Addr,
    ) -> Result<EmulatedBlock<'a, P, N>> {
        self.check(at, N as u64)?;
        Ok(EmulatedBlock { device: self, thread: cx.thread, start: at })
    }

    fn read_words(&self, cx: &EmulatedContext, at: Addr, out: &mut [u64]) -> Result<()> {
        self.check(at, out.len() as u64)?;
        self.machine().load_all(cx.thread, at.word(), out);
        Ok(())
    }

    fn write_words(&self, cx: &EmulatedContext, at: Addr, words: &[u64]) -> Result<()> {
        self.check(at, words.len() as u64)?;
        self.machine().store(cx.thread, at.word(), words);
        Ok(())
    }

    fn write_words_nt(
        &self,
        cx: &EmulatedContext,
        at: Addr,
        words: &[u64],
        _site: Site,
    ) -> Result<()> {
        self.check(at, words.len() as u64)?;
        self.machine().store_past(cx.thread, at.word(), words);
        Ok(())
    }

    fn flush(&self, cx: &EmulatedContext, span: Span, _site: Site) {
        let mut machine = self.machine();
        let lines = span.lines();
        for line in lines.start..lines.end.min(self.bytes().div_ceil(LINE)) {
            machine.flush(cx.thread, line);
        }
    }

    fn fence(&self, cx: &EmulatedContext, _site: Site) -> Result<()> {
        self.machine().fence(cx.thread);
        Ok(())
    }

    fn sync(&self, cx: &EmulatedContext, _site: Site) -> Result<()> {
        self.machine().sync(cx.thread);
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        match bytes.checked_next_multiple_of(WORD) {
            Some(target) if target <= self.capacity => {
                self.bytes.fetch_max(target, Ordering::AcqRel);
                Ok(())
            }
            _ => Err(Error::Full { needed: bytes - self.bytes() }),
        }
    }

    fn prefetch(&self, at: Addr) {
        if self.check(at, 1).is_ok() {
            let thread = self.running.load(Ordering::Relaxed);
            self.machine().prefetch(thread, at.line());
        }
    }

    fn dram(&self, cx: &EmulatedContext, lines: u32) {
        self.machine().dram(cx.thread, lines);
    }

    fn locked(&self, cx: &EmulatedContext, lock: u64) {
        self.machine().clocks.lock(cx.thread, lock);
    }

    fn unlocking(&self, cx: &EmulatedContext, lock: u64) {
        self.machine().clocks.unlock(cx.thread, lock);
    }
}

impl<P: Primitives> VirtualTime for Emulated<P> {
    fn begin(&self, threads: u32, writers: u32) -> u64 {
        self.running.store(0, Ordering::Relaxed);
        self.machine().begin(threads, writers)
    }

    fn resume(&self, thread: u32, horizon_ps: u64) {
        self.running.store(thread, Ordering::Relaxed);
        self.machine().clocks.resume(horizon_ps);
    }

    fn now_ps(&self, thread: u32) -> u64 {
        self.machine().clocks.now(thread)
    }

    fn wait_until(&self, ps: u64) {
        let thread = self.running.load(Ordering::Relaxed);
        self.machine().clocks.wait_until(thread, ps);
    }

    fn operation_ps(&self) -> u64 {
        self.machine().operation()
    }
}
