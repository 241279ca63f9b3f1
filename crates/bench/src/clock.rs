//! Two clocks: the wall and the CPU time of one thread.

use core::time::Duration;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// How long something took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Took {
    /// By the wall.
    pub wall: Duration,
    /// CPU time of the slowest thread.
    pub cpu: Duration,
}

impl Took {
    /// Joins what threads took that ran side by side.
    pub(crate) fn beside(self, other: Took) -> Took {
        Took { wall: self.wall.max(other.wall), cpu: self.cpu.max(other.cpu) }
    }
}

/// Runs `work` and returns what it returned and how long the calling thread took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let done = work();
    (done, Took { wall: wall.elapsed(), cpu: thread_cpu().saturating_sub(cpu) })
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
