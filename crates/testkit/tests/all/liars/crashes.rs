//! Lies that the crash judge hears: each in one workload, and after crashes of one kind.

use everhash_index::{Design, Form};
use everhash_pmem::Image;
use everhash_testkit::crash::{self, Effort};
use everhash_testkit::workload::parse;

use super::{Liar, Lie, heard};

/// So seldom that it never happens.
const NEVER: u64 = 1 << 40;

/// First crashes of power alone. What is found need not be short.
fn plain() -> Effort {
    let (nested_one_in, killed_one_in, closed_one_in) = (NEVER, NEVER, NEVER);
    let shorten_executions = 0;
    Effort { nested_one_in, killed_one_in, closed_one_in, shorten_executions, ..Effort::default() }
}

/// Crashes one workload.
fn crashes(
    operations: &str,
    effort: &Effort,
) -> impl FnOnce(&Design<Image>) -> Result<(), Box<crash::Violation>> {
    let operations = parse(operations).expect("an operation");
    move |_| {
        let design = Design::of::<Liar>();
        crash::judge_workload(&design, Form::WORDS, effort, &operations).map(drop)
    }
}

#[test]
fn an_execution_is_looked_at_when_it_opens_restarts_and_ends() {
    // Fails if a process is asked only later what it holds, or only after a crash; or if lost
    // power in it is no other boot.
    for (lie, operations, says) in [
        (Lie::Contains, "len", ":\n  after opening: contains of "),
        (Lie::Emptied, "put:1:1", ":\n  after step 1, put:1:1: "),
        (Lie::RecoveredScan, "put:1:1 kill put:2:2", ":\n  after step 2, kill: the scan has no "),
        (Lie::Outage, "put:1:1 outage", ":\n  step 2, outage: an unexpected error: "),
    ] {
        let found = heard(lie, crashes(operations, &plain()));
        assert!(found.contains(says) && !found.contains("  crash: "), "{lie:?}: {found}");
    }
}

#[test]
fn what_power_loss_leaves_is_checked_opened_and_told_from_what_a_close_leaves() {
    // Fails if lost power is taken for a killed process, if the check is not asked before the open
    // is, or if a pool that was closed is not judged because it looks as one that was not yet.
    let checked = Effort { checked_one_in: 1, ..plain() };
    for (lie, operations, says) in [
        (Lie::Outage, "put:1:1", ":\n  opening the pool: an unexpected error: "),
        (Lie::RefusedAfterPower, "put:1:1", ":\n  the check before opening: an unexpected error: "),
        (Lie::Closed, "put:1:1 reopen", ":\n  the pool was closed, and counts as "),
    ] {
        let found = heard(lie, crashes(operations, &checked));
        assert!(found.contains(says) && found.contains("  crash: "), "{lie:?}: {found}");
        assert_eq!(heard(Lie::None, crashes(operations, &checked)), "nothing");
    }
}

#[test]
fn a_pool_that_was_closed_or_cannot_be_made_and_an_answer_that_is_exact_are_judged() {
    // Fails if the check of a closed pool is not compared with what an open finds, if a pool that
    // cannot be made passes for one that a crash prevented, if inexact counts excuse other answers,
    // or if power is lost only after a sync that nobody asked for.
    let checked = Effort { checked_one_in: 1, ..plain() };
    for (lie, operations, effort, says) in [
        (Lie::LeftOutAtRest, "put:1:1 reopen", &checked, "the check before opening: it has no "),
        (Lie::FormatFails, "put:1:1", &plain(), "opening the pool: an unexpected error"),
    ] {
        let found = heard(lie, crashes(operations, effort));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    let short = Effort { restart_one_in: NEVER, growth_one_in: NEVER, ..plain() };
    assert_eq!(heard(Lie::SyncFails, crashes("put:1:1 outage", &short)), "nothing");
    let inexact = heard(Lie::Put, |_| {
        let mut design = Design::of::<Liar>();
        design.capabilities.exact_len = false;
        let operations = parse("put:1:1").expect("an operation");
        crash::judge_workload(&design, Form::WORDS, &plain(), &operations).map(drop)
    });
    assert!(inexact.contains("put:1:1 returned true; it should return false"), "{inexact}");
}

#[test]
fn a_killed_process_is_replayed_as_one() {
    // Fails if a replay takes a killed process for lost power: what a recovery from the one does
    // wrong would pass for mended.
    let effort = Effort { killed_one_in: 1, ..plain() };
    let mut again = String::new();
    let found = heard(Lie::LeftOutWhenKilled, |_| {
        let (design, operations) = (Design::of::<Liar>(), parse("put:1:1").expect("an operation"));
        let judged = crash::judge_workload(&design, Form::WORDS, &effort, &operations);
        let found = judged.expect_err("the check leaves a pair out");
        let crashes: Vec<String> = found.crashes.iter().map(ToString::to_string).collect();
        let operations = everhash_testkit::workload::render(&found.operations);
        let replay =
            |crashes: &str| crash::replay(&design, Form::WORDS, &effort, &operations, crashes);
        again = replay(&crashes.join(" ")).map_or_else(|it| it.to_string(), |()| String::new());
        Err::<(), _>(found)
    });
    assert!(found.contains(":killed") && !again.is_empty() && found.contains(&again), "{again}");
}
