//! The facade for atomics and locks.
//!
//! Volatile atomics and locks are made through [`Primitives`], an associated type of every
//! [`Media`](crate::Media): [`Std`] on real media, and a scheduler's own under test. So the very
//! code that serves users runs under shuttle and loom in the same test binary, without a feature
//! switch (`docs/decisions/0003-primitives-as-a-type.md`).

use core::cell::Cell;
use core::ops::DerefMut;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::thread::futex;

use crate::{AtOnce, equal_lanes};

/// A family of volatile synchronisation primitives.
pub trait Primitives: Send + Sync + Sized + 'static {
    /// A 64-bit atomic in DRAM.
    type AtomicU64: AtomicWord;
    /// A mutual-exclusion lock in DRAM.
    type Mutex<T: Send>: Lock<T>;

    /// Whether time passes while a thread waits. In models it does not: what is only sooner done
    /// for it is left out.
    const TIME_PASSES: bool = false;

    /// An atomic fence.
    fn fence(order: Ordering);

    /// Backs off before the `attempt`-th repetition of a loop that waits for another thread.
    ///
    /// Spins first and yields the processor later, so that a waiter cannot starve the thread that
    /// it waits for.
    fn pause(attempt: u32);

    /// Sleeps, in a loop that waits for the device, until a bell is rung that was rung `heard`
    /// times when this round of the loop began, or time is up. May return early.
    fn sleep(_bell: &Bell, _heard: u32, _longest: Duration) {
        Self::pause(SPINS);
    }

    /// Returns `count` zero words, many of which may never be used.
    fn words(count: usize) -> Box<[Self::AtomicU64]> {
        (0..count).map(|_| AtomicWord::new(0)).collect()
    }

    /// Returns which of the 64 lanes of 16 bits of two lines are `lane`: bit i for lane i, relaxed.
    #[inline(always)]
    fn equal_lanes_of_lines(
        lines: &[Self::AtomicU64; 16],
        lane: u16,
        _proof: Option<AtOnce>,
    ) -> u64 {
        equal_lanes_by_pairs(lines, lane)
    }

    /// Returns which of the eight words of a line are `value` from bit `SHIFT` on, bit i for word i
    /// (relaxed at least). `SHIFT` is 32 at least.
    #[inline(always)]
    fn equal_high_bits_of_line<const SHIFT: u32>(
        line: &[Self::AtomicU64; 8],
        value: u64,
        _proof: Option<AtOnce>,
    ) -> u32 {
        equal_high_bits_one_by_one::<SHIFT>(line, value)
    }

    /// Returns a small number that identifies the calling thread among the live ones.
    ///
    /// Used to spread threads over stripes and to attribute flushes; two threads may share one.
    fn thread() -> u32;
}

/// Wakes threads that wait for the device.
///
/// On an idle machine it would do as well if they yielded the processor until the device is done.
/// On a busy one each time costs them a slice of it, some milliseconds; who has slept is served
/// first. Beside two busy processes on two processors, 8 threads do 12,000 durable puts of Reef a
/// second, and did 2,700.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU32,
}

impl Bell {
    /// Returns how often it was rung. What is looked at afterwards is not older than that.
    pub fn heard(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Wakes all who sleep; what they wait for comes before.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        // If it fails they sleep until their time is up.
        let _ = futex::wake(&self.rings, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

/// An atomic word in DRAM, with the methods of
/// [`AtomicU64`](core::sync::atomic::AtomicU64).
pub trait AtomicWord: Send + Sync {
    /// Makes an atomic that holds `value`.
    fn new(value: u64) -> Self;
    /// Loads the value.
    fn load(&self, order: Ordering) -> u64;
    /// Stores a value.
    fn store(&self, value: u64, order: Ordering);
    /// Adds and returns the value before.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Subtracts and returns the value before.
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    /// Replaces `current` by `new`, or returns what was found instead.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
}

/// A holder of the lock panicked: the guarded value may be inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockPoisoned;

/// A lock in DRAM.
pub trait Lock<T: Send>: Send + Sync {
    /// The guard: the thread holds the lock while it lives.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// Makes a free lock around `value`.
    fn new(value: T) -> Self;

    /// Acquires the lock; waits until it is free.
    ///
    /// # Errors
    /// [`LockPoisoned`] if a holder panicked.
    fn lock(&self) -> Result<Self::Guard<'_>, LockPoisoned>;

    /// Acquires the lock if it is free; `None` if it is held.
    ///
    /// # Errors
    /// [`LockPoisoned`] if a holder panicked.
    fn try_lock(&self) -> Result<Option<Self::Guard<'_>>, LockPoisoned>;
}

/// As [`Primitives::equal_lanes_of_lines`], two words at a time.
#[inline(always)]
fn equal_lanes_by_pairs(lines: &[impl AtomicWord; 16], lane: u16) -> u64 {
    (0..8).fold(0, |equal, pair| {
        let words = [0, 1].map(|index| lines[2 * pair + index].load(Ordering::Relaxed));
        equal | u64::from(equal_lanes(words, u16::MAX, lane)) << (8 * pair)
    })
}

/// As [`Primitives::equal_high_bits_of_line`], one word at a time (acquire): models of weak memory
/// need not try all values of eight words, in all combinations.
#[inline(always)]
fn equal_high_bits_one_by_one<const SHIFT: u32>(line: &[impl AtomicWord; 8], value: u64) -> u32 {
    let is_equal = |word: &_| AtomicWord::load(word, Ordering::Acquire) >> SHIFT == value;
    (0..8).fold(0, |equal, index| equal | u32::from(is_equal(&line[index])) << index)
}

/// Tries for a lock that is held, before the thread sleeps: some 4 us.
///
/// Unit: tries. Source: ours; locks of maps in DRAM are held for 100 ns.
const TRIES: u32 = 16;

/// Pauses of a thread before it yields the processor or sleeps.
///
/// Unit: pauses, each twice as long as the one before. Source: ours; about a microsecond, after
/// which the other thread probably sleeps.
const SPINS: u32 = 6;

/// Pauses after which a thread sleeps, for 50 microseconds and what the system takes to wake it.
///
/// Unit: pauses. Source: ours; a tenth of a millisecond, in which a latch is free again behind
/// which memory was prepared. Two threads that put pairs in Reef slept some thousand times a
/// second, with latches for which the other one soon waited; without that they put a third more.
const YIELDS: u32 = 300;

/// The standard library's primitives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Std;

impl Primitives for Std {
    type AtomicU64 = core::sync::atomic::AtomicU64;
    type Mutex<T: Send> = std::sync::Mutex<T>;

    const TIME_PASSES: bool = true;

    #[inline(always)]
    fn fence(order: Ordering) {
        core::sync::atomic::fence(order);
    }

    fn sleep(bell: &Bell, heard: u32, longest: Duration) {
        let (tv_sec, tv_nsec) = (longest.as_secs() as i64, longest.subsec_nanos().into());
        let longest = futex::Timespec { tv_sec, tv_nsec };
        // However it returns: the caller looks again.
        let _ = futex::wait(&bell.rings, futex::Flags::PRIVATE, heard, Some(&longest));
    }

    fn pause(attempt: u32) {
        if attempt < SPINS {
            for _ in 0..1u32 << attempt {
                core::hint::spin_loop();
            }
        } else if attempt < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The kernel allocates memory for a word when it is first stored to.
    fn words(count: usize) -> Box<[Self::AtomicU64]> {
        crate::sys::own::zero_words(count)
    }

    #[inline(always)]
    fn equal_lanes_of_lines(
        lines: &[Self::AtomicU64; 16],
        lane: u16,
        proof: Option<AtOnce>,
    ) -> u64 {
        match proof {
            Some(proof) => proof.equal_lanes_of_lines(lines, lane),
            #[cfg(target_arch = "x86_64")]
            None => crate::sys::lanes::equal_lanes_of_lines_by_quarters(lines, lane),
            #[cfg(not(target_arch = "x86_64"))]
            None => equal_lanes_by_pairs(lines, lane),
        }
    }

    #[inline(always)]
    fn equal_high_bits_of_line<const SHIFT: u32>(
        line: &[Self::AtomicU64; 8],
        value: u64,
        proof: Option<AtOnce>,
    ) -> u32 {
        match proof {
            Some(proof) => proof.equal_high_bits_of_line::<SHIFT>(line, value),
            #[cfg(target_arch = "x86_64")]
            None => crate::sys::lanes::equal_high_bits_of_line_by_halves::<SHIFT>(line, value),
            #[cfg(not(target_arch = "x86_64"))]
            None => equal_high_bits_one_by_one::<SHIFT>(line, value),
        }
    }

    fn thread() -> u32 {
        MINE.with(Cell::get)
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);
thread_local!(static MINE: Cell<u32> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed)));

/// Calls `run` with [`Std::thread`](Primitives::thread) as if another thread did: for judges that
/// take the steps of several threads one after the other.
///
/// ```
/// use everhash_pmem::{Primitives, Std, as_thread};
///
/// assert_eq!(as_thread(1000, || Std::thread()), 1000);
/// assert_ne!(Std::thread(), 1000);
/// ```
pub fn as_thread<R>(number: u32, run: impl FnOnce() -> R) -> R {
    /// Also if `run` panics.
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            MINE.set(self.0);
        }
    }
    let _back = Back(MINE.replace(number));
    run()
}

impl AtomicWord for core::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn new(value: u64) -> Self {
        core::sync::atomic::AtomicU64::new(value)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }

    #[inline(always)]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }
}

/// Tries for a while before it sleeps. The lock of the standard library does so, too, but not while
/// another thread sleeps, and a thread that has slept leaves the lock marked as if one did: two
/// threads that met once would wake one another at each turn from then on.
#[cold]
fn lock_that_is_held<T>(
    lock: &std::sync::Mutex<T>,
) -> Result<std::sync::MutexGuard<'_, T>, LockPoisoned>
where
    T: Send,
{
    for attempt in 0..TRIES {
        for _ in 0..1 << attempt.min(4) {
            core::hint::spin_loop();
        }
        if let Some(guard) = Lock::try_lock(lock)? {
            return Ok(guard);
        }
    }
    lock.lock().map_err(|_| LockPoisoned)
}

impl<T: Send> Lock<T> for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        std::sync::Mutex::new(value)
    }

    #[inline]
    fn lock(&self) -> Result<Self::Guard<'_>, LockPoisoned> {
        match Lock::try_lock(self)? {
            Some(guard) => Ok(guard),
            None => lock_that_is_held(self),
        }
    }

    fn try_lock(&self) -> Result<Option<Self::Guard<'_>>, LockPoisoned> {
        match self.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            Err(std::sync::TryLockError::WouldBlock) => Ok(None),
            Err(std::sync::TryLockError::Poisoned(_)) => Err(LockPoisoned),
        }
    }
}
