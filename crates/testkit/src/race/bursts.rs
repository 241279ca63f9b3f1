//! A scheduler that lets one thread run far while another hangs in the middle of something.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::random::Random;

/// Goes on with the same thread for a while, and then with a random other one.
///
/// What lies between two stores of one thread is a window of a few steps, and to fall into it
/// another thread needs tens of steps in a row: uniform choice almost never gives them, and a
/// scheduler by priorities places its few changes over the whole run. Here the mean length of a
/// burst is itself random for each schedule, from 2 to 128 steps.
pub(super) struct Bursts {
    random: Random,
    left: usize,
    /// A burst ends at each step with probability one in this.
    mean: u64,
}

impl Bursts {
    /// Makes a scheduler for so many schedules.
    pub fn new(seed: u64, schedules: usize) -> Bursts {
        Bursts { random: Random::new(seed), left: schedules, mean: 1 }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.mean = 2 << self.random.below(7);
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let stays = current.filter(|task| runnable.iter().any(|other| other.id() == *task));
        if let (Some(task), false) = (stays, is_yielding || self.random.once_in(self.mean)) {
            return Some(task);
        }
        // A thread that yields waits for another: it is chosen again only if no other can run.
        let others: Vec<TaskId> =
            runnable.iter().map(|task| task.id()).filter(|task| Some(*task) != stays).collect();
        if others.is_empty() { stays } else { Some(*self.random.pick(&others)) }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::sync::atomic::{AtomicU64, Ordering};
    use shuttle::{Config, Runner};
    use std::sync::{Arc, Mutex};

    #[test]
    fn some_schedules_switch_at_every_other_step_and_some_hardly_ever() {
        // Fails if no thread runs far while another hangs in the middle of something, or if every
        // thread does.
        let switches = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&switches);
        Runner::new(Bursts::new(1, 40), Config::new()).run(move || {
            let steps = Arc::new(AtomicU64::new(0));
            let last = Arc::new(Mutex::new((0, 0)));
            let threads = [1, 2].map(|name| {
                let (steps, last) = (Arc::clone(&steps), Arc::clone(&last));
                shuttle::thread::spawn(move || {
                    for _ in 0..200 {
                        steps.fetch_add(1, Ordering::SeqCst);
                        let mut last = last.lock().unwrap();
                        last.1 += u32::from(last.0 != name);
                        last.0 = name;
                    }
                })
            });
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            noted.lock().unwrap().push(last.lock().unwrap().1);
        });
        let mut switches = switches.lock().unwrap();
        switches.sort_unstable();
        assert_eq!(switches.len(), 40);
        assert!(switches[0] < 20 && switches[39] > 60, "{switches:?}");
    }
}
