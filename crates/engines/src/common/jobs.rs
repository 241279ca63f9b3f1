//! Jobs of an opening, as many at a time as its caller likes, and what they return together.

use everhash_index::{Error, Executor, Result};
use everhash_pmem::{Lock, Primitives};

/// Lets an executor do jobs 0 to `count` - 1; returns what they returned, in this order.
///
/// # Errors
/// That of the first job that failed; [`Error::Poisoned`] if one did not return.
pub(crate) fn run_all<P: Primitives, T: Send>(
    executor: &dyn Executor,
    count: usize,
    job: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let slots: Vec<P::Mutex<Option<Result<T>>>> = (0..count).map(|_| Lock::new(None)).collect();
    executor.run(count, &|number| {
        let outcome = job(number);
        // A poisoned lock means that a job panicked: that is reported below.
        if let Ok(mut slot) = slots[number].lock() {
            *slot = Some(outcome);
        }
    });
    slots.iter().map(|slot| slot.lock()?.take().ok_or(Error::Poisoned)?).collect()
}

#[cfg(test)]
mod tests {
    use everhash_index::{Inline, Threads};
    use everhash_pmem::Std;

    use super::*;

    /// Leaves the last job out.
    struct Lazy;

    impl Executor for Lazy {
        fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
            (0..count.saturating_sub(1)).for_each(job);
        }

        fn width(&self) -> usize {
            1
        }
    }

    #[test]
    fn what_jobs_return_stands_in_their_order_and_an_error_is_not_lost() {
        // Fails if it stands in the order in which jobs end, if one that did not return is passed
        // over, or if a later error hides an earlier one.
        let square = |number: usize| Ok(number * number);
        let squares: Vec<usize> = (0..100).map(|number| number * number).collect();
        let executors: [&dyn Executor; 2] = [&Inline, &Threads::new(3)];
        for executor in executors {
            assert_eq!(run_all::<Std, _>(executor, 100, square).unwrap(), squares);
            let fail = |number: usize| match number % 7 {
                5 => Err(Error::Full { needed: number as u64 }),
                _ => Ok(()),
            };
            let failed = run_all::<Std, _>(executor, 100, fail);
            assert!(matches!(failed, Err(Error::Full { needed: 5 })));
        }
        assert!(matches!(run_all::<Std, _>(&Lazy, 3, square), Err(Error::Poisoned)));
        assert!(run_all::<Std, _>(&Lazy, 0, square).unwrap().is_empty());
    }
}
