//! Lies that the judge of threads hears, beside those about what threads leave.

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_pmem::{Image, Shutdown};
use everhash_testkit::reference::Reference;
use everhash_testkit::{Failure, race};

use super::Lie::Slip;
use super::{Liar, Lie, Verb, heard};
use crate::notes::Notes;

const WORDS: Form = Form::WORDS;

/// One schedule of each kind, with its crashes.
fn few() -> race::Effort {
    race::Effort { schedules: 3, crash_every: 1, ..race::Effort::default() }
}

#[test]
fn every_answer_that_a_thread_has_is_part_of_a_history() {
    // Fails if what an operation answered is not compared, if a scan counts for one of the values
    // that it shows, or if what comes before the threads is left out.
    for (lie, program) in [
        (Slip(Verb::Insert, 1), "0 | insert:1:7 | len"),
        (Slip(Verb::Put, 1), "0 | put:1:7 | len"),
        (Slip(Verb::Update, 1), "2 | update:1:7 | len"),
        (Slip(Verb::ModifyShows, 1), "2 | modify:1:keep | len"),
        (Slip(Verb::Remove, 1), "2 | remove:1 | len"),
        (Lie::Key(1), "0 | contains:1 | len"),
        (Lie::ScanTwice, "1 | scan | len"),
        (Slip(Verb::Remove, 1), "2 remove:1 | len | len"),
    ] {
        let replay = || race::replay(&race::Subject::of::<Liar>(), WORDS, program, 1, &few());
        let found = heard(lie, |_| replay());
        assert!(found.contains("no order explains "), "{lie:?}: {found}");
        assert_eq!(heard(Lie::None, |_| replay()), "nothing");
    }
}

#[test]
fn what_comes_before_and_after_the_threads_lies_on_the_medium_that_is_asked_for() {
    // Fails if an engine takes the path of another medium when a table is loaded, after a close or
    // after a crash.
    let effort = race::Effort { model: Model::File, ..few() };
    let judge = |lie: Lie| {
        heard(lie, |plain| {
            let subject = race::Subject { plain: *plain, ..race::Subject::of::<Reference>() };
            race::replay(&subject, WORDS, "1 | put:1:7 | len", 1, &effort)
        })
    };
    let refused = "an unexpected error: an earlier failure";
    assert!(judge(Lie::Synced).starts_with(refused));
    let closed = judge(Lie::SyncedPairs(Shutdown::Clean));
    assert!(closed.starts_with(&format!("closed after the race: {refused}")), "{closed}");
    let crashed = judge(Lie::SyncedPairs(Shutdown::Power));
    assert!(crashed.starts_with("a crash before event "), "{crashed}");
    assert_eq!(judge(Lie::None), "nothing");
}

#[test]
fn edges_are_looked_for_on_the_medium_that_is_asked_for_and_upkeep_ends() {
    // Fails if the places where a table grows are those of another medium, or if an engine whose
    // upkeep never ends has programs as any other.
    let effort = race::Effort { seeds: 0..0, edge_seeds: 0..1, shorten_programs: 0, ..few() };
    let judge = |lie: Lie, model: Model| {
        heard(lie, |_| {
            let effort = race::Effort { model, ..effort.clone() };
            race::judge(&race::Subject::of::<Liar>(), WORDS, &effort).map(drop)
        })
    };
    let found = judge(Lie::EndlessUpkeep(0), Model::Adr);
    assert!(found.contains("upkeep has more to do after 200 steps"), "{found}");
    let found = judge(Lie::Synced, Model::File);
    assert!(found.contains("  program: 0\n"), "it was found in a program: {found}");
}

#[test]
fn threads_of_an_engine_that_batches_are_judged_and_not_crashed() {
    // Fails if a crash takes back what an engine may lose, and it is accused; or if the pool is
    // checked before what the threads wrote is synced.
    let effort = race::Effort { seeds: 0..6, ..few() };
    let report = race::judge(&race::Subject::of::<Notes>(), WORDS, &effort).unwrap();
    assert!(report.schedules == 18 && report.crashed_schedules == 0, "{report:?}");
}

#[test]
fn real_threads_are_heard_while_they_work_and_when_they_have_ended() {
    // Fails if what a thread complains about is passed over, if a write that nobody reads may be
    // lost, if time stands still, or if a table is never closed or lies on another medium.
    let usual = race::Stress { threads: 1, rounds: 1, operations: 200, ..Default::default() };
    let three = race::Stress { rounds: 3, operations: 20, ..usual };
    let file = race::Stress { model: Model::File, ..usual };
    for (lie, stress, says) in [
        (Slip(Verb::ModifyTwice, 1), usual, "modify called the function 2 times"),
        (Lie::Late, usual, ": maintain:500:8: an unexpected error"),
        (Lie::ClosedScan, three, "the scan after a restart has no "),
        (Lie::Synced, file, "an unexpected error"),
    ] {
        let found = heard(lie, |design| race::stress(design, WORDS, &stress).map(drop));
        assert!(found.contains(says), "{lie:?}: {found}");
    }
    // Of the puts of a thread that works alone, some keys are never read again.
    let forgotten = (1..60).map(|number| {
        heard(Lie::Forgets(number), |design| race::stress(design, WORDS, &usual).map(drop))
    });
    let forgotten: Vec<String> = forgotten.collect();
    assert!(forgotten.iter().any(|found| found.contains(" is not explained: ")), "{forgotten:?}");
    let count = |design: &Design<Image>| {
        let report = race::stress(design, WORDS, &three)?;
        let expected =
            race::StressReport { operations: 60, histories: 3 * (12 + 400), undecided: 0 };
        assert_eq!(report, expected);
        Ok::<_, Failure>(())
    };
    assert_eq!(heard(Lie::None, count), "nothing");
}
