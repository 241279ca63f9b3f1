//! The schedule: which logical thread runs next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::VirtualTime;

/// What a logical thread does after the step that it has just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It made an operation and goes on.
    Again,
    /// It sleeps until the given time; the step was no operation. Unit: picoseconds.
    Sleep(u64),
    /// It has nothing more to do; the step was no operation.
    Done,
}

/// One operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The logical thread that made it, in the order of [`Schedule::thread`].
    pub thread: u32,
    /// When it began. Unit: picoseconds.
    pub start_ps: u64,
    /// When it ended. Unit: picoseconds.
    pub end_ps: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Operations of the threads in the foreground.
    pub operations: u64,
    /// The sum of their durations. Unit: picoseconds.
    pub busy_ps: u64,
    /// From the common start to the end of the last thread in the foreground. Unit: picoseconds.
    pub elapsed_ps: u64,
}

impl Summary {
    /// Returns the operations per second of virtual time.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / (self.elapsed_ps as f64 * 1e-12)
    }

    /// Returns the mean duration of an operation. Unit: nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        self.busy_ps as f64 / super::NANOSECOND / self.operations.max(1) as f64
    }
}

struct Thread<'a> {
    step: Box<dyn FnMut(u64) -> Step + 'a>,
    background: bool,
}

/// A set of logical threads on one medium, run by the calling thread.
///
/// Each step of a thread is one operation of a table. The order of steps, and with it every
/// counter and clock, is the same in every run.
///
/// ```
/// use everhash_pmem::media::emulated::{Emulated, Timing};
/// use everhash_pmem::media::virtual_time::{Schedule, Step};
/// use everhash_pmem::profile::Profile;
/// use everhash_pmem::{Addr, Region};
///
/// let profile = Profile::named("optane-100")?;
/// let region = Region::new(Emulated::<everhash_pmem::Std>::new(
///     profile.memory()?, Timing::Virtual, 1 << 20, 1 << 20,
/// ));
/// let mut schedule = Schedule::new(&**region.media());
/// for thread in 0..2 {
///     let (region, mut left) = (&region, 100);
///     schedule.thread(move |_now| {
///         if left == 0 {
///             return Step::Done;
///         }
///         left -= 1;
///         let at = Addr::new((thread * 100 + left) * 4096);
///         region.access().load(at).map_or(Step::Done, |_| Step::Again)
///     });
/// }
/// let summary = schedule.run();
/// assert_eq!(summary.operations, 200);
/// assert!((300.0..400.0).contains(&summary.mean_ns()));
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub struct Schedule<'a, M: VirtualTime> {
    media: &'a M,
    threads: Vec<Thread<'a>>,
    operation_ps: u64,
}

impl<'a, M: VirtualTime> Schedule<'a, M> {
    /// Makes a schedule without threads.
    pub fn new(media: &'a M) -> Self {
        Schedule { media, threads: Vec::new(), operation_ps: media.operation_ps() }
    }

    /// Sets the time that each operation spends computing, in place of the profile's.
    ///
    /// Unit: picoseconds. Zero is right for a program that does nothing but touch the device.
    pub fn operation_ps(mut self, operation_ps: u64) -> Self {
        self.operation_ps = operation_ps;
        self
    }

    /// Adds a thread; `step` is given the thread's clock in picoseconds.
    pub fn thread(&mut self, step: impl FnMut(u64) -> Step + 'a) {
        self.threads.push(Thread { step: Box::new(step), background: false });
    }

    /// Adds a thread whose work is not counted, and which ends with the last one in the foreground.
    pub fn background(&mut self, step: impl FnMut(u64) -> Step + 'a) {
        self.threads.push(Thread { step: Box::new(step), background: true });
    }

    /// Runs until every thread in the foreground is done.
    pub fn run(self) -> Summary {
        self.run_observed(|_| {})
    }

    /// As [`Schedule::run`], and tells `observe` of every operation in the foreground.
    pub fn run_observed(mut self, mut observe: impl FnMut(Finished)) -> Summary {
        let writers = self.threads.iter().filter(|thread| !thread.background).count();
        let start = self.media.begin(self.threads.len() as u32, writers as u32);
        // By their clocks; of equal ones the first thread comes first.
        let mut ready: BinaryHeap<_> =
            (0..self.threads.len()).map(|index| Reverse((start, index))).collect();
        let mut left = writers;
        let mut summary = Summary::default();
        while left > 0 {
            let Reverse((now, index)) = ready.pop().expect("a thread in the foreground is left");
            let thread = &mut self.threads[index];
            self.media.resume(index as u32, now);
            let step = (thread.step)(now);
            match step {
                Step::Again => {
                    let end = self.media.now_ps(index as u32) + self.operation_ps;
                    self.media.wait_until(end);
                    if !thread.background {
                        observe(Finished { thread: index as u32, start_ps: now, end_ps: end });
                        summary.operations += 1;
                        summary.busy_ps += end - now;
                    }
                }
                // A sleeper always moves on, so that a schedule cannot stand still.
                Step::Sleep(until) => self.media.wait_until(until.max(now + 1)),
                Step::Done => left -= usize::from(!thread.background),
            }
            let clock = self.media.now_ps(index as u32);
            if !thread.background {
                summary.elapsed_ps = summary.elapsed_ps.max(clock - start);
            }
            if step != Step::Done {
                ready.push(Reverse((clock, index)));
            }
        }
        summary
    }
}
