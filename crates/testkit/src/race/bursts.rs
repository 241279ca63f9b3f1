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
