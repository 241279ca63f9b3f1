//! What runs the parts of a parallel recovery. Engines start no threads of their own.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Runs independent jobs, on as many threads as its owner sees fit.
pub trait Executor: Sync {
    /// Calls `job(0)` to `job(count - 1)`, each once, and returns when all have returned.
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync));

    /// Returns how many jobs may run at a time: a hint for how many to make.
    fn width(&self) -> usize;
}

/// Runs every job on the calling thread, in order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Executor for Inline {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(job);
    }

    fn width(&self) -> usize {
        1
    }
}

/// Runs jobs on up to `width` threads, the calling one among them.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    width: usize,
}

impl Threads {
    /// Makes an executor of `width` threads; 0 means as many as the machine has processors.
    pub fn new(width: usize) -> Threads {
        let processors = || std::thread::available_parallelism().map_or(1, |count| count.get());
        Threads { width: if width == 0 { processors() } else { width } }
    }
}

impl Executor for Threads {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                job(index);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.width.min(count) {
                // Where the system refuses another thread, those that are there do the work.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }

    fn width(&self) -> usize {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    #[test]
    fn every_job_runs_once() {
        // Fails if a job were skipped or taken by two threads.
        for (width, count) in [(1, 0), (1, 5), (3, 1), (4, 1000), (0, 7)] {
            let ran: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            Threads::new(width).run(count, &|index| {
                ran[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    /// Returns how many of `count` jobs an executor runs at a time at most. Each of them waits
    /// until `wanted` are there, but not for longer than `patience`.
    fn most_at_once(width: usize, count: usize, wanted: usize, patience: Duration) -> usize {
        let (at_once, arrived) = (Mutex::new((0, 0)), Condvar::new());
        Threads::new(width).run(count, &|_| {
            let mut guard = at_once.lock().unwrap();
            guard.0 += 1;
            guard.1 = guard.0.max(guard.1);
            arrived.notify_all();
            let waits = |state: &mut (usize, usize)| state.1 < wanted;
            let (mut guard, _) = arrived.wait_timeout_while(guard, patience, waits).unwrap();
            guard.0 -= 1;
        });
        at_once.into_inner().unwrap().1
    }

    #[test]
    fn as_many_jobs_run_at_a_time_as_the_width_says() {
        // Fails if a parallel recovery would run on one thread, or on more than its caller allows.
        assert_eq!(most_at_once(3, 3, 3, Duration::from_secs(5)), 3);
        assert_eq!(most_at_once(2, 3, 3, Duration::from_millis(100)), 2);
        let processors = std::thread::available_parallelism().unwrap().get();
        assert_eq!([0, 1, 5].map(|width| Threads::new(width).width()), [processors, 1, 5]);
        assert_eq!(Inline.width(), 1);
    }
}
