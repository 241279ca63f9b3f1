//! Whether what a database holds is what it held at some moment, and late enough.

use crate::journal::{Operation, Told};
use crate::work::{Change, Work};

/// The values of all keys of a thread.
pub type State = Vec<Option<u64>>;

/// A time in which the keys of a thread may have been as they were found: between these moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time {
    from: u64,
    to: u64,
}

/// How many operations of a thread must be there: `told` is what it had told before the power cut.
///
/// Of immediate writes all that had returned; of batches those that had before a sync of any thread
/// began that returned.
pub fn least(told: &Told, is_immediate: bool, synced: Option<u64>) -> usize {
    let is_durable = |operation: &&Operation| match operation.ended {
        Some(ended) => is_immediate || synced.is_some_and(|synced| ended < synced),
        None => false,
    };
    told.operations.iter().take_while(is_durable).count()
}

/// What a thread did, and what it found.
pub struct Thread<'t> {
    /// Its values before.
    pub before: &'t State,
    /// Its values after the power cut.
    pub found: &'t State,
    /// What it had told when it was dead.
    pub told: &'t Told,
    /// How many of its operations must be there.
    pub least: usize,
}

impl Thread<'_> {
    /// Returns the times at which its values may have been those that were found; none if they
    /// never were. `is_atomic` says that no operation is there in part.
    pub fn times(&self, work: &Work, thread: usize, is_atomic: bool) -> Vec<Time> {
        let mut state = self.before.clone();
        let differs = |state: &State, key: usize| usize::from(state[key] != self.found[key]);
        let mut wrong: usize = (0..state.len()).map(|key| differs(&state, key)).sum();
        let end = |number: usize| -> u64 {
            self.told.operations.get(number).and_then(|it| it.ended).unwrap_or(u64::MAX)
        };
        let mut times = Vec::new();
        if wrong == 0 && self.least == 0 {
            times.push(Time { from: 0, to: end(0) });
        }
        for (number, operation) in self.told.operations.iter().enumerate() {
            let changes = match operation.is_refused {
                true => Vec::new(),
                false => work.changes(thread, number as u64),
            };
            for Change { key, value } in changes {
                wrong -= differs(&state, key);
                state[key] = value;
                wrong += differs(&state, key);
                if wrong == 0 && !is_atomic && number >= self.least {
                    times.push(Time { from: operation.begun, to: end(number) });
                }
            }
            if wrong == 0 && number + 1 >= self.least {
                times.push(Time { from: operation.begun, to: end(number + 1) });
            }
        }
        times
    }
}

/// Returns whether one moment lies in a time of each of two threads.
pub fn meet(one: &[Time], other: &[Time]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.from.max(b.from) <= a.to.min(b.to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { seed: 5, keys: 8, has_batches: true };

    /// Returns a thread's values after each of its operations, and what it told: each began at an
    /// even moment and ended at the next one; the last did not.
    fn history(count: u64) -> (Vec<State>, Told) {
        let mut states = vec![vec![None; WORK.keys]];
        let mut told = Told::default();
        for number in 0..count {
            let mut state = states[number as usize].clone();
            WORK.changes(0, number).iter().for_each(|it| state[it.key] = it.value);
            states.push(state);
            let ended = (number + 1 < count).then_some(2 * number + 1);
            told.operations.push(Operation { begun: 2 * number, ended, is_refused: false });
        }
        (states, told)
    }

    fn times(found: &State, least: usize, is_atomic: bool) -> Vec<Time> {
        let (states, told) = history(60);
        let thread = Thread { before: &states[0], found, told: &told, least };
        thread.times(&WORK, 0, is_atomic)
    }

    #[test]
    fn what_was_at_a_moment_is_found_there() {
        // Fails if a sound state were a finding, or were taken for one of another moment.
        let (states, _) = history(60);
        for (number, state) in states.iter().enumerate() {
            let found = times(state, number, true);
            let moment = 2 * (number as u64).saturating_sub(1);
            assert!(found.iter().any(|it| it.from <= moment && moment < it.to), "{number}");
        }
    }

    #[test]
    fn what_was_lost_or_torn_is_a_finding() {
        // Fails if a durable write could be missing, a value come from nowhere, or an atomic batch
        // be there in part.
        let (states, _) = history(60);
        assert_eq!(times(&states[10], 60, true), []);
        let mut forged = states[60].clone();
        forged[0] = Some(1);
        assert_eq!(times(&forged, 0, false), []);
        let batch = (0..60).find(|it| WORK.changes(0, *it).len() > 4).expect("a batch");
        let mut part = states[batch as usize].clone();
        WORK.changes(0, batch)[..4].iter().for_each(|it| part[it.key] = it.value);
        assert_eq!(times(&part, 0, true), []);
        assert!(!times(&part, batch as usize, false).is_empty());
        assert_eq!(times(&part, batch as usize + 1, false), []);
    }

    #[test]
    fn what_was_refused_has_changed_nothing() {
        // Fails if a refused write were looked for, or could be there.
        let (states, mut told) = history(1);
        told.operations[0].is_refused = true;
        let times = |found: &State| {
            let thread = Thread { before: &states[0], found, told: &told, least: 1 };
            thread.times(&WORK, 0, true).len()
        };
        assert_eq!((times(&states[0]), times(&states[1])), (1, 0));
    }

    #[test]
    fn durable_is_what_returned_before_a_sync() {
        // Fails if a write beside a sync, or behind it, were demanded, or one before it were not.
        let (_, told) = history(60);
        assert_eq!(least(&told, true, None), 59);
        assert_eq!(least(&told, false, None), 0);
        assert_eq!(least(&told, false, Some(10)), 5);
        assert_eq!(least(&told, false, Some(11)), 5);
    }

    #[test]
    fn threads_are_at_one_moment_or_not() {
        // Fails if half of an epoch passed for a whole one.
        let time = |from, to| Time { from, to };
        assert!(meet(&[time(1, 5)], &[time(9, 9), time(5, 7)]));
        assert!(!meet(&[time(1, 5)], &[time(6, 7)]));
        assert!(!meet(&[], &[time(0, u64::MAX)]));
    }
}
