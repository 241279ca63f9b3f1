//! Who runs the parts of a parallel recovery. Engines start no threads of their own.

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
