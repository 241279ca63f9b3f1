//! Work spread over threads, with a result that does not depend on how many there are.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `job` with each item on `threads` threads (0: as many as there are cores) and returns the
/// results in the order of the items, or the error of the first item that has one.
pub(super) fn until_first_error<I: Sync, T: Send, X: Send>(
    threads: usize,
    items: &[I],
    job: impl Fn(&I) -> Result<T, X> + Sync,
) -> Result<Vec<T>, X> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = if threads == 0 { cores } else { threads }.min(items.len().max(1));
    let next = AtomicUsize::new(0);
    let first_error = AtomicUsize::new(usize::MAX);
    let results: Vec<Mutex<Option<Result<T, X>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            // Items before the first error are all done: which error is returned is no race.
            if index >= items.len() || index > first_error.load(Ordering::Relaxed) {
                return;
            }
            let result = job(&items[index]);
            if result.is_err() {
                first_error.fetch_min(index, Ordering::Relaxed);
            }
            *results[index].lock().expect("no job holds this lock") = Some(result);
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    // Up to the first error every item was done; behind it, the collecting stops.
    let results = results.into_iter();
    results.map_while(|slot| slot.into_inner().expect("no job holds this lock")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_wins_however_many_threads_there_are() {
        // Fails if a report depends on which thread was faster.
        let items: Vec<u64> = (0..200).collect();
        for threads in [1, 2, 8] {
            let job = |item: &u64| if item % 50 == 49 { Err(*item) } else { Ok(*item) };
            assert_eq!(until_first_error(threads, &items, job), Err(49));
            let sum = until_first_error(threads, &items, |item| Ok::<_, ()>(*item));
            assert_eq!(sum.unwrap(), items);
        }
    }
}
