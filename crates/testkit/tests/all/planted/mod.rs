//! Planted bugs: a small engine with a switch, and the judges that must find each of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod bug;
mod check;
mod engine;
mod layout;
mod ops;
mod table;

use bug::{Bug, Judge, Planted};
use engine::Slots;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model as CrashModel;
use everhash_testkit::{conformance, crash, model, race, room};

const FORMS: [Form; 2] = [Form::WORDS, Form::DOUBLE_WORDS];

/// Runs a judge; returns what it complains about.
fn verdict(judge: Judge) -> Result<(), String> {
    match judge {
        Judge::Model(form) => model::judge(&Design::of::<Slots>(), form, &model::Effort::default())
            .map(drop)
            .map_err(|violation| violation.to_string()),
        Judge::Conformance(case) => match conformance::judge(&Design::of::<Slots>(), Form::WORDS) {
            Ok(_) => Ok(()),
            Err(found) if found.broken.iter().any(|(name, _)| *name == case) => {
                Err(found.to_string())
            }
            Err(found) => panic!("{case} holds, and instead: {found}"),
        },
        Judge::Full => {
            // The one test that there was of full media does not see it.
            conformance::judge(&Design::of::<Slots>(), Form::WORDS).unwrap();
            model::judge(&Design::of::<Slots>(), Form::WORDS, &model::Effort::default()).unwrap();
            room::judge(&Design::of::<Slots>(), Form::WORDS, &room::Effort::default())
                .map(drop)
                .map_err(|violation| violation.to_string())
        }
        Judge::Race(form) => race::judge(&race::Subject::of::<Slots>(), form, &quickly())
            .map(drop)
            .map_err(|violation| violation.to_string()),
        Judge::RaceEdge => {
            let subject = race::Subject::of::<Slots>();
            // Programs that begin anywhere do not see it.
            let anywhere = race::Effort { seeds: 0..20, ..quickly() };
            race::judge(&subject, Form::WORDS, &anywhere).unwrap();
            let edges = race::Effort { seeds: 0..0, edge_seeds: 0..60, ..quickly() };
            race::judge(&subject, Form::WORDS, &edges)
                .map(drop)
                .map_err(|violation| violation.to_string())
        }
        Judge::RaceCrash => {
            // Near seeds that find them.
            let effort = race::Effort { seeds: 50..250, crash_every: 1, ..quickly() };
            race::judge(&race::Subject::of::<Slots>(), Form::WORDS, &effort)
                .map(drop)
                .map_err(|violation| violation.to_string())
        }
        Judge::RaceClose => {
            let effort = race::Effort { seeds: 0..200, crash_every: 0, ..quickly() };
            let found = race::judge(&race::Subject::of::<Slots>(), Form::WORDS, &effort);
            let found = found.map(drop).map_err(|violation| violation.to_string());
            // Nobody who only asks the open table sees it.
            assert!(!matches!(&found, Err(told) if !told.contains("closed after the race")));
            found
        }
        Judge::Crash(model) => crash_verdict(&crashes(model)),
        Judge::Growing => crash_verdict(&growing(CrashModel::Adr)),
        Judge::Nested => {
            let often =
                crash::Effort { nested_one_in: 8, killed_one_in: 1, ..crashes(CrashModel::Adr) };
            crash_verdict(&often)
        }
        Judge::TwoCrashes => {
            let one = crash::Effort { depth: 1, ..crashes(CrashModel::Adr) };
            crash_verdict(&one).unwrap();
            crash_verdict(&crashes(CrashModel::Adr))
        }
    }
}

fn crash_verdict(effort: &crash::Effort) -> Result<(), String> {
    crash::judge(&Design::of::<Slots>(), Form::DOUBLE_WORDS, effort)
        .map(drop)
        .map_err(|violation| violation.to_string())
}

/// Few keys, written again and again: these seeds have a hot key, or load all keys twice.
fn crashes(model: CrashModel) -> crash::Effort {
    crash::Effort { model, seeds: 9..13, operations: 16, keys: 6, ..briefly() }
}

/// New keys only: growth in the workload, and not only in what follows a crash.
fn growing(model: CrashModel) -> crash::Effort {
    crash::Effort { model, seeds: 4..6, operations: 24, ..briefly() }
}

/// What is found need not be short: that it is found is the question.
fn briefly() -> crash::Effort {
    crash::Effort { shorten_executions: 500, ..crash::Effort::default() }
}

/// As [`briefly`], of races.
fn quickly() -> race::Effort {
    race::Effort { shorten_programs: 2, ..race::Effort::default() }
}

#[test]
fn the_sound_engine_passes_every_judge() {
    // Fails if a judge finds what is not there: then the tests below would show nothing.
    let _planted = Planted::new(Bug::None);
    for form in FORMS {
        model::judge(&Design::of::<Slots>(), form, &model::Effort::default()).unwrap();
        conformance::judge(&Design::of::<Slots>(), form).unwrap();
        let report = room::judge(&Design::of::<Slots>(), form, &room::Effort::default()).unwrap();
        println!("{form}: {report}");
        assert!(report.runs >= 50 && report.refused > 50, "{report}");
        race::stress(&Design::of::<Slots>(), form, &race::Stress::default()).unwrap();
        for model in CrashModel::ALL {
            let effort =
                race::Effort { model, seeds: 0..2, edge_seeds: 0..4, ..race::Effort::default() };
            race::judge(&race::Subject::of::<Slots>(), form, &effort).unwrap();
            for effort in [crashes(model), growing(model)] {
                let report = crash::judge(&Design::of::<Slots>(), form, &effort).unwrap();
                println!("{form}, {model}: {report}");
            }
        }
    }
}

#[test]
fn a_wrong_answer_among_real_threads_is_found() {
    // Fails if the threads do nothing, or if nobody looks at what they were told. The bug shows in
    // every order: the machine's does not matter.
    let _planted = Planted::new(Bug::InsertReplaces);
    let stress = race::Stress { threads: 2, rounds: 1, ..race::Stress::default() };
    let found = race::stress(&Design::of::<Slots>(), Form::WORDS, &stress).unwrap_err();
    assert!(found.to_string().contains("no order explains the answers"), "{found}");
}

#[test]
fn every_planted_bug_is_found_by_its_judge() {
    // Fails if a judge has become blind for a class of bugs.
    if let Ok(name) = std::env::var(CHOSEN) {
        let bug = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
        return hunt(*bug.expect("a bug of this name"));
    }
    // A bug is planted in a whole process: each in one of its own, as many as run beside.
    let (next, survived) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = format!("{bug:?}");
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "planted::every_planted_bug_is_found_by_its_judge"]);
            child.arg("--nocapture");
            let done = child.env(CHOSEN, &name).output().unwrap();
            println!("{}", String::from_utf8_lossy(&done.stdout));
            if !done.status.success() {
                eprintln!("{}", String::from_utf8_lossy(&done.stderr));
                survived.lock().unwrap().push(name);
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let survived = survived.into_inner().unwrap();
    assert!(survived.is_empty(), "not found: {survived:?}");
}

/// Names the bug to look for, and no other.
const CHOSEN: &str = "PLANTED";

/// Lets its judge look for a bug.
fn hunt(bug: Bug) {
    let _planted = Planted::new(bug);
    let (source, judge) = bug.about();
    let begun = Instant::now();
    let found = verdict(judge).expect_err("the judge finds it");
    println!("{bug:?} ({source}), {:.1?}\n{found}\n", begun.elapsed());
}
