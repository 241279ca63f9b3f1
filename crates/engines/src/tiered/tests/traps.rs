//! A scenario for each place where a crash could meet Tiered Hashing as published between two of
//! its steps: every state of a short workload that leads there, and of crashes after it.

use everhash_index::{Design, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_testkit::crash::{Effort, judge_workload};
use everhash_testkit::race;
use everhash_testkit::workload::parse;

use crate::tiered::{Tiered, in_cacheline_crash_consistency, overflow, resize, scan};

/// A few states of each crash point, so that all scenarios take some seconds.
fn effort(model: Model) -> Effort {
    let usual = Effort::default();
    let limits = Limits { product: 16, lazy: 16, single: 4, pairs: 4, random: 2, ..usual.limits };
    Effort { model, limits, nested_one_in: 512, killed_one_in: 16, depth: 1, ..usual }
}

/// Judges a scenario on tables of these settings; it must have persisted something at `site`.
fn scenario(changes: &'static [(&'static str, u64)], operations: &str, site: Site) {
    let operations = parse(operations).unwrap();
    let design = Design::of::<Tiered>().with_settings(changes);
    for model in [Model::Adr, Model::File] {
        for form in [Form::WORDS, Form::Variable] {
            let report = judge_workload(&design, form, &effort(model), &operations);
            let report = report.unwrap_or_else(|violation| panic!("{violation}"));
            println!("{form}, {model}: {report}");
            let met = report.met.sites().any(|(met, _, _)| met == site);
            assert!(met, "{form}, {model}: the scenario never came to {site:?}");
        }
    }
}

/// Operations on so many keys, as text.
fn each(count: u16, operation: impl Fn(u16) -> String) -> String {
    (0..count).map(operation).collect::<Vec<_>>().join(" ")
}

/// Three layers, so that there are copies in the middle.
const THREE: &[(&str, u64)] = &[("layers", 3), ("top_pages", 1), ("grow_percent", 100)];

#[test]
fn t_t1_an_older_copy_never_comes_back_over_a_newer_one() {
    // Fails if an update is written below a copy of its key, or beside one: the shadow whose flag
    // was never flushed is valid again after a crash, with the old value.
    let operations = format!(
        "{} {} {}",
        each(20, |key| format!("insert:{key}:{key}")),
        each(20, |key| format!("update:{key}:{}", 100 + key)),
        each(20, |key| format!("put:{}:{}", key * 7 % 20, 200 + key)),
    );
    scenario(THREE, &operations, in_cacheline_crash_consistency::sites::CLEAR);
}

#[test]
fn a_pair_moves_only_past_slots_without_its_key() {
    // Fails if a pair sinks past an older copy of its key, or beside one: the older copy is the
    // topmost one then. Updates leave copies in the middle, and inserts move what is above them.
    let operations = format!(
        "{} {} {} {}",
        each(20, |key| format!("insert:{key}:{key}")),
        each(20, |key| format!("update:{key}:{}", 100 + key)),
        each(20, |key| format!("insert:{}:{key}", 20 + key)),
        each(20, |key| format!("put:{}:{}", key * 3 % 40, 200 + key)),
    );
    scenario(THREE, &operations, in_cacheline_crash_consistency::sites::CLEAR);
}

/// Three layers with two groups.
const GROUPS: &[(&str, u64)] = &[("layers", 3), ("top_pages", 2), ("grow_percent", 100)];

#[test]
fn both_groups_of_a_key_stay_locked_until_its_write_is_durable() {
    // Fails if a writer overwrites a shadow whose pair further down another writer has changed
    // and not made durable: a crash shows the shadow again, over the newer pair.
    let scheduled = Design::of::<Tiered>().with_settings(GROUPS);
    let plain = Design::of::<Tiered>().with_settings(GROUPS);
    let subject = race::Subject { scheduled, plain };
    let effort = race::Effort { seeds: 0..24, schedules: 30, crash_every: 3, ..Default::default() };
    for form in [Form::WORDS, Form::Variable] {
        let report = race::judge(&subject, form, &effort).unwrap();
        println!("{form}: {report:?}");
        assert!(report.states > 1000, "{report:?}");
    }
}

#[test]
fn t_t3_a_deletion_holds_while_it_sinks() {
    // Fails if a deletion disappears before the copies that it covers, or if one of these is taken
    // for a pair when the slot of the deletion is used again.
    let operations = format!(
        "{} {} {} {}",
        each(16, |key| format!("insert:{key}:{key}")),
        each(8, |key| format!("remove:{key}")),
        each(16, |key| format!("insert:{}:{key}", 20 + key)),
        each(8, |key| format!("insert:{key}:{}", 300 + key)),
    );
    scenario(THREE, &operations, in_cacheline_crash_consistency::sites::FLAGS);
}

#[test]
fn t_t2_pairs_of_a_drained_layer_are_there_once_at_least() {
    // Fails if a page is emptied before what was in it is durable further down, or if the layer is
    // dropped before its pages are empty.
    let operations = format!(
        "{} {}",
        each(30, |key| format!("insert:{key}:{key}")),
        each(30, |key| format!("update:{key}:{}", 100 + key)),
    );
    scenario(&[("top_pages", 1)], &operations, resize::sites::DROP);
}

/// Puts and removals that leave a deletion as a shadow over the same deletion, and that over the
/// pair; and a shadow of a pair between a deletion and the pair.
const UNSWEPT: [&str; 2] = [
    "put:15:15 remove:11 put:2:2 put:8:8 put:1:1 put:12:12 remove:22 put:21:21 put:4:4 \
    remove:8 put:2:2 put:23:23 put:6:6 put:21:21 put:2:2 remove:20 remove:7 put:19:19 \
    put:23:23 put:5:5 put:5:5 remove:14 remove:4 put:1:1 put:7:7 put:3:3 put:16:16 \
    put:22:22 put:7:7 remove:5 remove:3 remove:10 remove:5 put:4:4 put:2:2 put:6:6",
    "put:14:14 put:8:8 put:21:21 put:16:16 put:19:19 remove:17 put:22:22 put:12:12 \
    remove:14 put:13:13 put:7:7 put:4:4 put:18:18 put:22:22 remove:23 put:9:9 remove:7 \
    remove:13 remove:8 put:12:12 put:1:1 remove:0 remove:1 put:15:15 put:7:7 remove:3 \
    put:0:0 put:18:18 put:6:6 put:2:2 put:0:0 put:18:18 put:6:6 put:12:12 remove:2 \
    put:4:4",
];

#[test]
fn a_sweep_ends_no_copy_before_what_is_further_down() {
    // Fails if a sweep takes a deletion that is a shadow for one that covers the pair, or if it
    // ends a pair and its shadow in any order: a crash leaves the pair with nothing valid above it,
    // which the next writes overwrite; or the shadow alone, for which the same pair, put again, is
    // taken to have moved.
    for unswept in UNSWEPT {
        let operations = format!(
            "{unswept} maintain:1:1000 maintain:1000:1000 {} {}",
            each(24, |key| format!("put:{key}:{key}")),
            each(12, |key| format!("put:{}:1", 24 + key)),
        );
        scenario(THREE, &operations, in_cacheline_crash_consistency::sites::FLAGS);
    }
}

#[test]
fn a_full_pyramid_overflows_and_clears() {
    // Fails if a link leads to a line that is not durable, or if a clear shows an older copy.
    let operations = format!(
        "{} {} clear {}",
        each(26, |key| format!("insert:{key}:{key}")),
        each(9, |key| format!("update:{key}:{}", 100 + key)),
        each(9, |key| format!("insert:{key}:{}", 200 + key)),
    );
    const FULL: &[(&str, u64)] = &[("top_pages", 1), ("grow_percent", 100), ("page_bytes", 256)];
    scenario(FULL, &operations, overflow::sites::LINK);
    scenario(FULL, &operations, scan::sites::CLEAR);
}
