//! A medium whose device is simulated: one lock around contents, caches and clocks.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::virtual_time::{Clocks, VirtualTime};
use super::{
    Block, Guarantees, Hints, Holes, Media, Simulation, StreamClass, StreamSupport, out_of_bounds,
};
use crate::{Addr, Error, Primitives, Result, Site, Span, Std, WORD};

/// The verbs of a simulated device. The caller has checked that words lie inside the device;
/// `thread` is a logical thread of its clocks.
pub trait Device: fmt::Debug + Send + 'static {
    /// Loads one word.
    fn load(&mut self, thread: u32, word: u64) -> u64;

    /// Loads words in ascending order.
    fn load_all(&mut self, thread: u32, word: u64, out: &mut [u64]);

    /// Stores words in ascending order.
    fn store(&mut self, thread: u32, word: u64, values: &[u64]);

    /// Stores words past the caches.
    fn store_past(&mut self, thread: u32, word: u64, values: &[u64]);

    /// Replaces a word if it holds `current`, or returns what was found instead.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn exchange(
        &mut self,
        thread: u32,
        word: u64,
        current: u64,
        new: u64,
    ) -> core::result::Result<u64, u64>;

    /// Begins the write-back of a span that lies inside the device.
    fn flush(&mut self, thread: u32, span: Span);

    /// Waits until the flushes of the thread are durable.
    fn fence(&mut self, thread: u32);

    /// Makes every earlier store durable, by any thread.
    fn sync(&mut self, thread: u32);

    /// Begins to load the line at `word` for later.
    fn prefetch(&mut self, _thread: u32, _word: u64) {}

    /// Begins the write-back of a span that need not become durable by it.
    fn write_back(&mut self, _thread: u32, _span: Span) {}

    /// Discards the content of `span`.
    fn release(&mut self, _span: Span) {}

    /// Receives the lifetime class of the data in `span`.
    fn stream(&mut self, _span: Span, _class: StreamClass) -> StreamSupport {
        StreamSupport::NotSupported
    }

    /// Returns the clocks.
    fn clocks(&mut self) -> &mut Clocks;

    /// Begins a phase with new threads, see [`VirtualTime::begin`].
    fn begin(&mut self, threads: u32, writers: u32) -> u64;

    /// Returns the time of a line of DRAM, and the time that an operation spends computing.
    ///
    /// Unit: picoseconds.
    fn computing(&self) -> (u64, u64);

    /// Returns a copy of the first `count` visible words.
    fn visible(&self, count: usize) -> Vec<u64>;

    /// Returns what power loss leaves of the first `count` words.
    fn crash(&self, count: usize, seed: Option<u64>) -> Vec<u64>;
}

/// A medium whose device is simulated, bit by bit and, if asked, picosecond by picosecond.
///
/// Its behaviour depends on the program, the profile and the seed alone. Threads of the operating
/// system that share it count as one logical thread; several logical threads come from a
/// [`Schedule`](super::virtual_time::Schedule).
pub struct Simulated<D: Device, P: Primitives = Std> {
    device: Mutex<D>,
    bytes: AtomicU64,
    capacity: u64,
    running: AtomicU32,
    guarantees: Guarantees,
    primitives: PhantomData<P>,
}

impl<D: Device, P: Primitives> fmt::Debug for Simulated<D, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.load(Ordering::Relaxed);
        write!(f, "a simulated device, {bytes} of {} bytes", self.capacity)
    }
}

/// Makes the contents of a device of `bytes` bytes that begins with `words`.
///
/// # Panics
/// If `bytes` exceeds `capacity` or is shorter than `words`.
pub(crate) fn contents(words: &[u64], bytes: u64, capacity: u64) -> Vec<u64> {
    assert!(bytes <= capacity, "a device is at most as long as its capacity");
    assert!(words.len() as u64 * WORD <= bytes, "the words fit into the device");
    let mut content = vec![0; (capacity / WORD) as usize];
    // Store to each page first: after a read, the first store would be a second fault, for which
    // the kernel interrupts every thread of the process.
    let page_words = rustix::param::page_size() / WORD as usize;
    let pages = content[..(bytes / WORD) as usize].chunks_mut(page_words);
    pages.for_each(|page| core::hint::black_box(page)[0] = 0);
    content[..words.len()].copy_from_slice(words);
    content
}

impl<D: Device, P: Primitives> Simulated<D, P> {
    /// Wraps a device of `bytes` bytes that can grow to `capacity` bytes.
    pub(crate) fn wrap(device: D, bytes: u64, capacity: u64, guarantees: Guarantees) -> Self {
        Simulated {
            device: Mutex::new(device),
            bytes: AtomicU64::new(bytes / WORD * WORD),
            capacity: capacity / WORD * WORD,
            running: AtomicU32::new(0),
            guarantees,
            primitives: PhantomData,
        }
    }

    /// Returns the words that power loss leaves now.
    ///
    /// These are the words as last written back, or the visible words with durable caches. Without
    /// a seed no dirty line was evicted; with a seed, each dirty line or page was evicted with a
    /// chance of one half. A flushed line counts as written back, fenced or not: a program that
    /// forgets a fence loses nothing here. The crash explorer on the traced medium finds that, and
    /// enumerates the states between the stores to one line.
    pub fn crash(&self, seed: Option<u64>) -> Vec<u64> {
        self.device().crash((self.bytes() / WORD) as usize, seed)
    }

    /// Returns a copy of all visible words.
    pub fn words(&self) -> Vec<u64> {
        self.device().visible((self.bytes() / WORD) as usize)
    }

    /// Returns the clock of the logical thread that runs. Unit: picoseconds.
    pub fn elapsed_ps(&self) -> u64 {
        self.now_ps(self.running.load(Ordering::Relaxed))
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> MutexGuard<'_, D> {
        // Bounds are checked before the lock: a panic cannot leave the device inconsistent.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn check(&self, at: Addr, words: u64) -> Result<()> {
        match at.word().checked_add(words) {
            Some(end) if end <= self.bytes() / WORD => Ok(()),
            _ => Err(out_of_bounds(at, words)),
        }
    }

    /// Returns the part of `span` that lies inside the device.
    fn inside(&self, span: Span) -> Span {
        let words = (self.bytes() / WORD).saturating_sub(span.start.word());
        Span::new(span.start, span.words.min(words))
    }
}

/// Which logical thread an operation belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    thread: u32,
}

/// A window of words of a [`Simulated`] device.
pub struct Window<'a, D: Device, P: Primitives, const N: usize> {
    device: &'a Simulated<D, P>,
    thread: u32,
    start: Addr,
}

impl<D: Device, P: Primitives, const N: usize> Clone for Window<'_, D, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device, P: Primitives, const N: usize> Copy for Window<'_, D, P, N> {}

impl<D: Device, P: Primitives, const N: usize> Window<'_, D, P, N> {
    fn word(&self, index: usize) -> u64 {
        assert!(index < N, "word {index} of a window of {N} words");
        self.start.word() + index as u64
    }
}

impl<D: Device, P: Primitives, const N: usize> Block<N> for Window<'_, D, P, N> {
    fn start(&self) -> Addr {
        self.start
    }

    fn load(&self, index: usize) -> u64 {
        let word = self.word(index);
        self.device.device().load(self.thread, word)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.load(index)
    }

    fn prefetch(&self, index: usize) {
        self.device.prefetch(self.start.plus(index as u64));
    }

    fn store(&self, index: usize, value: u64) {
        let word = self.word(index);
        self.device.device().store(self.thread, word, &[value]);
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
        self.device.device().exchange(self.thread, word, current, new)
    }
}

impl<D: Device, P: Primitives> Media for Simulated<D, P> {
    type Sync = P;
    type Context = Context;
    type Block<'a, const N: usize>
        = Window<'a, D, P, N>
    where
        Self: 'a;

    fn context(&self) -> Context {
        Context { thread: self.running.load(Ordering::Relaxed) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a Context,
        at: Addr,
    ) -> Result<Window<'a, D, P, N>> {
        self.check(at, N as u64)?;
        Ok(Window { device: self, thread: cx.thread, start: at })
    }

    fn read_words(&self, cx: &Context, at: Addr, out: &mut [u64]) -> Result<()> {
        self.check(at, out.len() as u64)?;
        self.device().load_all(cx.thread, at.word(), out);
        Ok(())
    }

    fn write_words(&self, cx: &Context, at: Addr, words: &[u64]) -> Result<()> {
        self.check(at, words.len() as u64)?;
        self.device().store(cx.thread, at.word(), words);
        Ok(())
    }

    fn write_words_nt(&self, cx: &Context, at: Addr, words: &[u64], _site: Site) -> Result<()> {
        self.check(at, words.len() as u64)?;
        self.device().store_past(cx.thread, at.word(), words);
        Ok(())
    }

    fn flush(&self, cx: &Context, span: Span, _site: Site) {
        self.device().flush(cx.thread, self.inside(span));
    }

    fn fence(&self, cx: &Context, _site: Site) -> Result<()> {
        self.device().fence(cx.thread);
        Ok(())
    }

    fn sync(&self, cx: &Context, _site: Site) -> Result<()> {
        self.device().sync(cx.thread);
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
}

impl<D: Device, P: Primitives> Hints for Simulated<D, P> {
    fn stream(&self, span: Span, class: StreamClass) -> StreamSupport {
        self.device().stream(self.inside(span), class)
    }

    fn write_back(&self, span: Span) {
        let thread = self.running.load(Ordering::Relaxed);
        self.device().write_back(thread, self.inside(span));
    }

    fn prefetch(&self, at: Addr) {
        if self.check(at, 1).is_ok() {
            let thread = self.running.load(Ordering::Relaxed);
            self.device().prefetch(thread, at.word());
        }
    }
}

impl<D: Device, P: Primitives> Holes for Simulated<D, P> {
    fn release(&self, span: Span) {
        self.device().release(self.inside(span));
    }
}

impl<D: Device, P: Primitives> Simulation<Context> for Simulated<D, P> {
    fn dram(&self, cx: &Context, lines: u32) {
        let mut device = self.device();
        let line = device.computing().0;
        device.clocks().spend(cx.thread, line * u64::from(lines));
    }

    fn locked(&self, cx: &Context, lock: u64) {
        self.device().clocks().lock(cx.thread, lock);
    }

    fn unlocking(&self, cx: &Context, lock: u64) {
        self.device().clocks().unlock(cx.thread, lock);
    }
}

impl<D: Device, P: Primitives> VirtualTime for Simulated<D, P> {
    fn begin(&self, threads: u32, writers: u32) -> u64 {
        self.running.store(0, Ordering::Relaxed);
        self.device().begin(threads, writers)
    }

    fn resume(&self, thread: u32, horizon_ps: u64) {
        self.running.store(thread, Ordering::Relaxed);
        self.device().clocks().resume(horizon_ps);
    }

    fn now_ps(&self, thread: u32) -> u64 {
        self.device().clocks().now(thread)
    }

    fn wait_until(&self, ps: u64) {
        let thread = self.running.load(Ordering::Relaxed);
        self.device().clocks().wait_until(thread, ps);
    }

    fn operation_ps(&self) -> u64 {
        self.device().computing().1
    }
}
