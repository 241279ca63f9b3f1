//! What the process after a crash does, and which crashes are tried.

use super::*;
use crate::reference::{Reference, sites};
use crate::workload::parse;
use everhash_pmem::media::traced::Change;
use everhash_pmem::{Pool, Shutdown, word_of};

#[test]
fn a_killed_process_counts_as_killed_after_an_outage_too() {
    // Fails if the next process is given the boot with which the execution began: the engine
    // would recover from lost power, and what it does after a killed process is not judged.
    let (design, effort) = (Design::of::<Reference>(), Effort::default());
    let mut checker = CrashChecker::new(&design, Form::WORDS, &effort, None);
    let operations = [Op::Put(1, 10), Op::Outage, Op::Put(2, 20)];
    let execution = checker.first_execution(&operations).unwrap();
    let nothing = Memory::zero(effort.model, 0);
    let mut explorer = Explorer::new(nothing, execution.log.events());
    let mut points = [0; 2];
    while let Some(moment) = explorer.next_point().cloned() {
        if moment.returned == 0 || execution.in_flight(&moment) == Some(&Op::Outage) {
            continue;
        }
        let boot = start_after(&execution, &moment, true).boot;
        let left = explorer.memory().after_process_crash();
        checker.region.media().restart(left.visible());
        let status = Pool::status(&checker.region, boot).unwrap();
        assert_eq!(status.previous, Shutdown::Process, "{moment:?}");
        points[usize::from(moment.returned > 2)] += 1;
    }
    assert!(points.iter().all(|count| *count > 2), "{points:?}");
}

#[test]
fn the_process_after_a_crash_works_on_the_key_in_flight_restarts_and_grows() {
    // Fails if the key that a crash may have half changed is left alone, if a process neither
    // closes nor is killed nor waits nor grows, or if the name of a crash means another one where
    // more is done.
    let (design, effort) = (Design::of::<Reference>(), Effort::default());
    let checker = CrashChecker::new(&design, Form::WORDS, &effort, None);
    let batch = Op::PutMany(vec![(7, 1), (8, 2)]);
    let [key, restart, growth] =
        [Work::Key, Work::Restart, Work::Growth].map(|work| checker.steps(Some(&batch), work));
    let (write, again) = (&key[..4], &key[4..]);
    assert!(matches!(write, [Op::Remove(7), Op::Insert(7, _), Op::Insert(7, _), Op::Update(7, _)]));
    assert!(matches!(again, [Op::Remove(7), Op::Put(7, _)]), "{key:?}");
    assert!(restart.starts_with(&key) && growth.starts_with(&restart));
    for op in [Op::Reopen, Op::Kill, Op::Sync] {
        assert_eq!(restart.iter().filter(|one| **one == op).count(), 1, "{op}: {restart:?}");
    }
    let waits = restart.iter().filter(|op| matches!(op, Op::Maintain(..)));
    assert_eq!(waits.count(), 2, "{restart:?}");
    let is_fresh = |op: &&Op| matches!(op, Op::Insert(key, _) if *key >= FRESH_KEYS);
    assert_eq!(growth.iter().filter(is_fresh).count(), usize::from(GROWTH));
    assert_eq!(growth.last(), Some(&Op::Reopen));
}

#[test]
fn every_second_state_is_followed_by_a_restart_and_some_of_these_by_growth() {
    // Fails if what comes after a crash is always the least, or always the most.
    let (design, effort) = (Design::of::<Reference>(), Effort::default());
    let mut checker = CrashChecker::new(&design, Form::WORDS, &effort, None);
    let mut works: Vec<Work> = (1..=32)
        .map(|executions| {
            checker.executions = executions;
            checker.work()
        })
        .collect();
    works.sort();
    let counts: Vec<usize> = works.chunk_by(|one, next| one == next).map(<[Work]>::len).collect();
    assert_eq!((works[0], counts), (Work::Key, vec![16, 14, 2]));
}

/// So seldom that it never happens.
const NEVER: u64 = 1 << 40;

/// First crashes of power alone.
fn plain() -> Effort {
    let (nested_one_in, killed_one_in, closed_one_in) = (NEVER, NEVER, NEVER);
    Effort { nested_one_in, killed_one_in, closed_one_in, ..Effort::default() }
}

/// Crashes the reference engine.
fn counts(effort: &Effort, operations: &str) -> Counts {
    let design = Design::of::<Reference>();
    let mut checker = CrashChecker::new(&design, Form::WORDS, effort, None);
    let outcome = checker.try_seed(&parse(operations).unwrap());
    outcome.map_err(|found| found.failure).unwrap();
    checker.report().counts
}

#[test]
fn each_kind_of_crash_is_tried_as_often_as_is_wanted_and_counted() {
    // Fails if a kind of crash is left out, if one is tried that nobody wants, if it is not
    // counted, or if an effort of few executions has no end.
    let tried = |effort: Effort| {
        let Counts { points, states, killed, nested, .. } =
            counts(&effort, "insert:1:1 put:1:2 reopen remove:1");
        assert!(points > 10 && states > 40, "{points} points, {states} states");
        [killed, nested]
    };
    assert_eq!(tried(plain()), [0, 0]);
    let killed = Effort { killed_one_in: 1, ..plain() };
    let [often, nested] = tried(Effort { depth: 1, ..killed.clone() });
    assert!(often > 2 && nested == 0, "{often}, {nested}");
    let [often, nested] = tried(killed);
    assert!(often > 2 && nested > 50, "{often}, {nested}");
    let [killed, nested] = tried(Effort { nested_one_in: 1, ..plain() });
    assert!(killed == 0 && nested > 500, "{nested}");
    let few = counts(&Effort { executions: 9, ..plain() }, "insert:1:1 put:1:2");
    assert!(few.states < 9, "{few:?}");
}

#[test]
fn what_a_mutant_does_to_a_recovery_from_an_earlier_crash_is_judged() {
    // Fails if a workload is only crashed where the mutant has changed something: here that is its
    // last recovery, after which everything is durable anyway.
    let mutant = Mutant { site: sites::RECOVERED, change: Change::DropSync };
    let (design, effort) = (Design::of::<Reference>(), Effort::default());
    let effort = Effort { killed_one_in: 1, ..effort };
    let mut checker = CrashChecker::new(&design, Form::WORDS, &effort, Some(mutant));
    let found = checker.try_seed(&parse("insert:1:1 insert:2:2 kill").unwrap()).err();
    let found = found.expect("what a killed process left is not durable");
    assert_eq!(found.crashes.len(), 2, "{}", found.failure);
    assert!(matches!(found.crashes[0], Name::Killed { .. }));
}

#[test]
fn what_was_freed_is_overwritten_if_the_effort_says_so() {
    // Fails if no engine meets the end of what it freed too early, or none its old contents.
    let (design, shape) = (Design::of::<Reference>(), Shape::tiny(Form::WORDS));
    for overwrite_freed in [true, false] {
        let effort = Effort { overwrite_freed, ..plain() };
        let mut checker = CrashChecker::new(&design, Form::WORDS, &effort, None);
        checker.first_execution(&parse("put:1:10 put:1:11").unwrap()).unwrap();
        let words = checker.region.media().visible();
        let [old, new] = [10, 11].map(|value| words.contains(&word_of(&shape.value(value))));
        assert!(new && old != overwrite_freed);
    }
}
