//! The threads of a parallel recovery: as many as asked for, for the length of one call.

use std::sync::atomic::{AtomicUsize, Ordering};

use everhash_index::Executor;

/// Runs jobs on up to `width` threads, the calling one among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    width: usize,
}

impl Threads {
    /// Makes an executor of `width` threads; 0 means as many as the machine has processors.
    pub(crate) fn new(width: usize) -> Threads {
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
}
