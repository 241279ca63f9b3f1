//! Lies that the other judges hear, and what their helpers do about them.

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model as CrashModel;
use everhash_pmem::{Image, as_thread};
use everhash_testkit::model::{self, Model, check_pool, perform};
use everhash_testkit::reference::Reference;
use everhash_testkit::workload::{Shape, parse};
use everhash_testkit::{Failure, OpenTable, race, room, session, settle};

use super::Lie::Slip;
use super::{Liar, Lie, Verb, heard};

const WORDS: Form = Form::WORDS;

#[test]
fn the_model_judge_compares_answers_and_what_a_restart_leaves() {
    // Fails if only contents are compared, if a close or an outage is not what it says, if the
    // medium is another one than was asked for, or if a violation is not shortened.
    let few = model::Effort { seeds: 0..8, operations: 60, ..model::Effort::default() };
    let calm = model::Effort { seeds: 1..2, ..few.clone() };
    let file = model::Effort { medium: CrashModel::File, ..calm.clone() };
    for (lie, effort, says) in [
        (Lie::Put, &few, "\n  operation 1, put:"),
        (Lie::Outage, &few, "\n  operation 1, outage: an unexpected error: "),
        (Lie::Late, &few, ": an unexpected error: "),
        (Lie::CloseFails, &calm, "\n  an unexpected error: "),
        (Lie::Synced, &file, "\n  an unexpected error: "),
    ] {
        let found = heard(lie, |design| model::judge(design, WORDS, effort).map(drop));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    assert_eq!(heard(Lie::Synced, |it| model::judge(it, WORDS, &calm).map(drop)), "nothing");
    let found = heard(Lie::Put, |design| {
        let mut design = *design;
        design.capabilities.exact_len = false;
        model::judge(&design, WORDS, &few).map(drop)
    });
    assert!(found.contains("; it should return "), "whose len is inexact: {found}");
}

#[test]
fn the_model_judge_takes_steps_as_two_threads_where_it_should() {
    // Fails if what an engine keeps for each thread is never that of two.
    let alone = model::Effort { seeds: 0..8, operations: 60, ..model::Effort::default() };
    let by_turns = model::Effort { by_turns: true, ..alone.clone() };
    let found = |effort| {
        let judge = |design: &Design<Image>| model::judge(design, WORDS, effort).map(drop);
        as_thread(7, || heard(Lie::PutOfOneThread, judge))
    };
    assert!(found(&by_turns).contains("; it should return "));
    assert_eq!(found(&alone), "nothing");
}

#[test]
fn a_violation_is_replayed_from_its_text() {
    // Fails if a printed line does nothing.
    let operations = "insert:2:2 put:1:2 put:2:3 put:3:4";
    let effort = model::Effort::default();
    let found = heard(Lie::Put, |design| model::replay(design, WORDS, &effort, operations));
    assert!(found.contains("operation 2, put:1:2 returned true; it should return "), "{found}");
    let replay = |design: &Design<Image>| room::replay(design, WORDS, 0, "take:9", operations);
    let found = heard(Lie::Put, replay);
    assert!(found.contains("operation 2, put:1:2: it returned true; it should "), "{found}");
    let nonsense = |design: &Design<Image>| model::replay(design, WORDS, &effort, "fly");
    assert!(heard(Lie::None, nonsense).contains("'fly' is no operation"));
}

/// Performs operations on a table and on the model.
fn performs(design: &Design<Image>, operations: &str) -> Result<(), Failure> {
    let (shape, mut now) = (Shape::tiny(WORDS), Duration::ZERO);
    let open = OpenTable::tiny(design, WORDS, 1 << 20)?;
    let mut model = Model::new(shape);
    for op in parse(operations).map_err(|bad| Failure::new(bad.to_string()))? {
        let answer = perform(open.table(), &shape, &mut now, &op)?;
        if answer != model.apply(&op) {
            return Err(Failure::new(format!("{op} returned {answer:?}")));
        }
    }
    Ok(())
}

#[test]
fn an_answer_that_contradicts_itself_is_heard() {
    // Fails if a position of many gets has two answers or none, if a function is called twice, if
    // a buffer keeps what it held, or if the bare forms are never asked.
    for (lie, operations, says) in [
        (Lie::GetManyTwice, "put:1:5 get_many:1,2", "answered for one position twice"),
        (Lie::GetManyLeftOut, "put:1:5 get_many:1,2", "left out a position"),
        (Slip(Verb::ModifyTwice, 1), "modify:1:set=5", "called the function 2 times"),
        (Slip(Verb::UpdateBlind, 1), "put:1:5 update_blind:1:6 get:1", "get:1 returned "),
        (Slip(Verb::RemoveBlind, 1), "put:1:5 remove_blind:1 get:1", "get:1 returned "),
        (Lie::Appends, "put:1:5 get:1", "get:1 returned "),
        (Lie::ScanTwice, "put:1:5 scan", "with two values"),
        (Slip(Verb::GetWord, 1), "put:2:5 get:2", "get:2 returned "),
        (Lie::GetWords, "put:2:5 get_many:2,4", "get_many:2,4 returned "),
        (Lie::WordsUntouched, "put:2:5 get_many:2,4", "get_many:2,4 returned "),
        (Lie::SyncFails, "put:1:5 sync", "an unexpected error"),
    ] {
        let found = heard(lie, |design| performs(design, operations));
        assert!(found.contains(says), "{lie:?}: {found}");
        assert_eq!(heard(Lie::None, |design| performs(design, operations)), "nothing");
    }
    let twice = |design: &Design<Image>| {
        let open = OpenTable::tiny(design, WORDS, 1 << 20)?;
        open.table().put(&[1; 8], &[2; 8])?;
        check_pool(design, open.region()).map(drop)
    };
    assert!(heard(Lie::VisitedTwice, twice).contains(" was visited twice"));
}

#[test]
fn a_table_is_opened_in_the_boot_that_its_judge_means() {
    // Fails if a loss of power is taken for a killed process: what an engine does then is not
    // judged.
    let next = |design: &Design<Image>| {
        let open = OpenTable::tiny(design, WORDS, 1 << 20)?;
        OpenTable::open(design, open.region().media().clone()).map(drop)
    };
    let after_power = |design: &Design<Image>| {
        // It was open in the boot that comes next already.
        let mut open = OpenTable::tiny(&Design::of::<Reference>(), WORDS, 1 << 20)?;
        open.outage()?;
        OpenTable::open_after_power(design, open.region().media().clone()).map(drop)
    };
    assert!(heard(Lie::Outage, next).contains("earlier failure"));
    assert!(heard(Lie::Outage, after_power).contains("earlier failure"));
    assert_eq!(heard(Lie::None, next), "nothing");
}

#[test]
fn upkeep_is_settled_when_there_is_none_now_and_none_later() {
    // Fails if whoever waits for the end of upkeep does not wait for what has a deadline.
    let settles = |design: &Design<Image>| {
        let open = OpenTable::tiny(design, WORDS, 1 << 20)?;
        let end = settle(open.table(), Duration::ZERO, 64)?;
        Err(Failure::new(format!("after {end:?}"))) as Result<(), Failure>
    };
    assert_eq!(heard(Lie::Deadline, settles), "after 60s");
    assert_eq!(heard(Lie::None, settles), "after 10s");
    let found = heard(Lie::EndlessUpkeep(0), settles);
    assert_eq!(found, "maintain has more to do after 10,000 calls");
}

#[test]
fn what_ended_processes_leave_is_counted_and_read() {
    // Fails if the pairs that survive are not counted, or not compared.
    let survives = |_: &Design<Image>| {
        let survives = || session::survives_ended_processes::<Liar>(WORDS);
        match catch_unwind(AssertUnwindSafe(survives)) {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("a panic".to_owned()),
        }
    };
    assert_eq!(heard(Lie::None, survives), "nothing");
    for lie in [Lie::Len, Lie::Appends, Lie::Panics("len")] {
        assert_eq!(heard(lie, survives), "a panic", "{lie:?}");
    }
}

/// Replays a program under a few schedules, each with its crashes.
fn race(program: &str) -> impl FnOnce(&Design<Image>) -> Result<(), Failure> {
    let effort = race::Effort { schedules: 3, crash_every: 1, ..race::Effort::default() };
    move |_| race::replay(&race::Subject::of::<Liar>(), WORDS, program, 1, &effort)
}

#[test]
fn what_threads_leave_is_compared_in_every_way() {
    // Fails if a table is not looked at when its threads have ended, or after a crash of them.
    for (lie, program, says) in [
        (Lie::ScanStranger, "0 | scan | len", "which was never written"),
        (Lie::ScanStranger, "0 | len | len", "there is a key that nobody wrote"),
        (Lie::ScanValue, "1 | len | len", "get and scan do not agree about key 0"),
        (Lie::Emptied, "1 | len | len", "key 0 is not explained: "),
        (Slip(Verb::Scan, 1), "1 | scan | len", "no order explains "),
        (Lie::GetManyLast, "2 | get_many:1,0 | len", "no order explains "),
        (Lie::LeftOut, "1 | len | len", "the check after the race has no "),
        (Lie::Len, "1 | len | len", "len is 2 of 1 pairs"),
        (Lie::CheckFails, "1 | len | len", "an unexpected error"),
        (Lie::LeftOutAfterPower, "1 | put:0:7 | len", "the check after the crash has no "),
        (Lie::Outage, "1 | put:0:7 | len", "a crash before event "),
    ] {
        let found = heard(lie, race(program));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    // Nothing is wrong with any of them.
    let program = "2 put:0:7 | clear | get_many:1,0 scan | put_many:0=8,5=9";
    assert_eq!(heard(Lie::None, race(program)), "nothing");
}

#[test]
fn a_race_is_shortened_as_far_as_the_effort_goes() {
    // Fails if a printed program has an operation or a pair that it does not need, or if whoever
    // wants no shorter one waits for it.
    let judge = |effort: race::Effort| {
        let mut program = None;
        heard(Lie::Len, |_| {
            let found = race::judge(&race::Subject::of::<Liar>(), WORDS, &effort);
            program = found.as_ref().err().map(|found| found.program.clone());
            found.map(drop)
        });
        program.expect("len is wrong in every program")
    };
    let few = race::Effort { schedules: 1, crash_every: 0, ..race::Effort::default() };
    for seed in 0..6 {
        let usual = race::Effort { seeds: seed..seed + 1, ..few.clone() };
        let edge = race::Effort { seeds: 0..0, edge_seeds: seed..seed + 1, ..few.clone() };
        for effort in [usual, edge] {
            assert_eq!(judge(effort.clone()).to_string(), "0");
            let program = judge(race::Effort { shorten_programs: 0, ..effort });
            assert!(program.threads.len() > 1, "{program}");
        }
    }
}

#[test]
fn what_real_threads_leave_is_compared_before_and_after_a_restart() {
    // Fails if a table is not read out after a round, or if what the next process finds is not
    // compared with it.
    let stress = race::Stress { threads: 2, rounds: 2, operations: 20, ..Default::default() };
    let judge = |design: &Design<Image>| race::stress(design, WORDS, &stress).map(drop);
    for (lie, says) in
        [(Lie::Len, "len returned "), (Lie::RecoveredScan, "after a restart has no ")]
    {
        let found = heard(lie, judge);
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    assert_eq!(heard(Lie::None, judge), "nothing");
}
