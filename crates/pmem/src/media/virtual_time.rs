//! Virtual time: one real thread runs all logical threads, each with its own clock.
//!
//! Only the device advances a clock, in picoseconds: results do not depend on the machine, its load
//! or its speed. [`Schedule`] always runs the logical thread with the smallest clock for one
//! operation. An operation completes before the next one begins, so requests reach a server out of
//! order: a `Server` fills the gaps between booked requests, and a lock is booked in the same way.

mod locks;
mod schedule;
mod server;

pub(crate) use locks::{Locks, NumberMap};
pub use schedule::{Finished, Schedule, Step, Summary};
pub(crate) use server::Server;

use super::Media;

/// Picoseconds in a nanosecond.
///
/// Unit: picoseconds.
pub(crate) const NANOSECOND: f64 = 1000.0;

/// Turns nanoseconds of a profile into picoseconds of a clock.
pub(crate) fn picoseconds(nanoseconds: f64) -> u64 {
    (nanoseconds * NANOSECOND).round() as u64
}

/// Whether a device keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// It only counts; clocks stand still.
    Counting,
    /// Every verb moves the clock of the logical thread that runs.
    Virtual,
}

/// A medium with virtual time.
pub trait VirtualTime: Media {
    /// Begins a phase with `threads` logical threads, `writers` of them in the foreground. All
    /// clocks start at the end of everything before. Returns that time.
    ///
    /// Unit: picoseconds.
    fn begin(&self, threads: u32, writers: u32) -> u64;

    /// Runs `thread` from now on; no thread's clock is behind `horizon_ps` any more.
    fn resume(&self, thread: u32, horizon_ps: u64);

    /// Returns the clock of a logical thread. Unit: picoseconds.
    fn now_ps(&self, thread: u32) -> u64;

    /// Moves the running thread's clock to `ps`, if it is not there yet.
    fn wait_until(&self, ps: u64);

    /// Returns the time that an operation spends computing. Unit: picoseconds.
    fn operation_ps(&self) -> u64;
}

/// The clocks of the logical threads and the locks among them.
#[derive(Debug)]
pub struct Clocks {
    clocks: Vec<u64>,
    locks: Locks,
    horizon: u64,
}

impl Clocks {
    /// Makes one thread at time zero.
    pub(crate) fn new() -> Clocks {
        Clocks { clocks: vec![0], locks: Locks::default(), horizon: 0 }
    }

    /// Begins a phase, see [`VirtualTime::begin`].
    pub(crate) fn begin(&mut self, threads: u32) -> u64 {
        let start = self.clocks.iter().copied().max().unwrap_or(0);
        self.clocks.clear();
        self.clocks.resize(threads.max(1) as usize, start);
        self.horizon = start;
        self.locks = Locks::default();
        start
    }

    /// Notes that no clock is behind `horizon` any more.
    pub(crate) fn resume(&mut self, horizon: u64) {
        self.horizon = horizon;
    }

    /// Returns the time before which no request comes any more.
    ///
    /// Without a schedule there is one thread, and its own clock is the horizon.
    pub(crate) fn horizon(&self) -> u64 {
        if self.clocks.len() == 1 { self.clocks[0] } else { self.horizon }
    }

    /// Returns a thread's clock.
    #[inline]
    pub(crate) fn now(&self, thread: u32) -> u64 {
        self.clocks[thread as usize]
    }

    /// Lets `duration` pass for a thread.
    #[inline]
    pub(crate) fn spend(&mut self, thread: u32, duration: u64) {
        self.clocks[thread as usize] += duration;
    }

    /// Moves a thread's clock to `time`, if it is not there yet.
    #[inline]
    pub(crate) fn wait_until(&mut self, thread: u32, time: u64) {
        let clock = &mut self.clocks[thread as usize];
        *clock = (*clock).max(time);
    }

    /// Takes a lock: the thread waits until it is free.
    pub(crate) fn lock(&mut self, thread: u32, lock: u64) {
        let free = self.locks.take(lock, self.now(thread), self.horizon());
        self.wait_until(thread, free);
    }

    /// Releases a lock.
    pub(crate) fn unlock(&mut self, thread: u32, lock: u64) {
        self.locks.release(lock, self.now(thread));
    }
}
