//! A scenario for each place where a crash could meet WALSH as published between two of its steps:
//! every state of a short workload that leads there, and of crashes after it.

use everhash_index::{Design, Engine, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_testkit::crash::{Effort, judge_workload};
use everhash_testkit::workload::parse;

use super::settings::Immediate;
use crate::walsh::{Walsh, logs};

/// A few states of each crash point, so that all scenarios take some seconds. With the default
/// effort and `nested_one_in` 24 they were 100,000, and 700,000 of crashes after these.
fn effort(model: Model) -> Effort {
    let usual = Effort::default();
    let limits = Limits { product: 8, lazy: 2, single: 2, pairs: 2, random: 2, ..usual.limits };
    Effort { model, limits, nested_one_in: 128, killed_one_in: 8, ..usual }
}

/// Judges a scenario on memory and on files; it must have persisted something at `site`.
fn scenario<E: Engine>(operations: &str, site: Site) {
    let operations = parse(operations).unwrap();
    for model in [Model::Adr, Model::File] {
        let effort = effort(model);
        let report = judge_workload(&Design::of::<E>(), Form::WORDS, &effort, &operations);
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        println!("{model}: {report}");
        assert!(report.counts.states > 30 && report.counts.nested > 0, "nothing was tried");
        let met = report.met.sites().any(|(met, _, _)| met == site);
        // On files areas share epochs, and persist by them.
        assert!(met || model == Model::File, "the scenario never came to {site:?}");
    }
}

#[test]
fn t_w1_objects_and_directory_records_become_true_in_one_step() {
    // Fails if the tail is torn, or if it tells of objects without their records.
    scenario::<Walsh>("put:1:1 put:2:2 sync put:3:3 put:1:4 sync remove:2 sync", logs::sites::TAIL);
}

#[test]
fn t_w2_directories_and_border_change_in_one_step() {
    // Fails if a crash leaves the new number of directories with the old border, or the reverse:
    // keys then hash to a directory that is empty.
    let inserts: Vec<_> = (0..14).map(|key| format!("insert:{key}:{key}")).collect();
    scenario::<Walsh>(&inserts.join(" "), logs::sites::INFO);
}

#[test]
fn t_w3_writes_during_a_rehash_stay() {
    // Fails if what was written and flushed after the border goes with a rehash that a crash
    // interrupts: new values, removals and new keys while each old directory is moved.
    let garbage: Vec<_> = (0..20).map(|n| format!("put:{}:{n}", n % 5)).collect();
    let during = "maintain:0:1 put:0:90 sync maintain:0:1 remove:1 insert:9:91 sync put:2:92";
    scenario::<Walsh>(&format!("{} {during}", garbage.join(" ")), logs::sites::INFO);
}

#[test]
fn t_w4_what_recovery_finds_behind_the_tail_is_taken_once() {
    // Fails if a recovery that a crash interrupts takes an insert twice, or an insert whose key was
    // there already.
    let writes = "insert:1:1 insert:1:2 remove:1 insert:1:3 update:1:4 remove:1 insert:2:5";
    scenario::<Immediate>(writes, logs::sites::SEALED);
}

#[test]
fn t_w5_what_a_log_held_before_is_never_taken_for_new() {
    // Fails if objects, records or heads that are left in a log's place from an earlier use are
    // believed: the same few keys, until logs have come back several times.
    let writes: Vec<_> = (0..45).map(|n| format!("put:{}:{n}", n % 4)).collect();
    scenario::<Immediate>(&writes.join(" "), logs::sites::SEALED);
    scenario::<Walsh>(&writes.join(" "), logs::sites::TAIL);
}
