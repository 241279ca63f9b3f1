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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_threads_side_by_side_the_slowest_counts_and_a_sleep_costs_no_cpu() {
        // Fails if one thread's time stood for all, if times were added up that passed together, or
        // if the two clocks were one.
        let took =
            |wall, cpu| Took { wall: Duration::from_secs(wall), cpu: Duration::from_secs(cpu) };
        assert_eq!(took(3, 1).beside(took(2, 2)), took(3, 2));
        assert_eq!(took(2, 2).beside(took(3, 1)), took(3, 2));
        let slept = Duration::from_millis(30);
        let (done, took) = timed(|| {
            std::thread::sleep(slept);
            7
        });
        assert!(done == 7 && took.wall >= slept && took.cpu < slept / 2, "{took:?}");
    }
}
