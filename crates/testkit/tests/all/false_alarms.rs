//! No false alarms: a trivially correct engine before the crash judge, for a million states.

use everhash_index::{Design, Form};
use everhash_pmem::crash::{Limits, Model};
use everhash_testkit::crash::{Effort, judge};
use everhash_testkit::reference::Reference;

/// Judges the reference engine by so many seeds of each form and model; returns the states.
fn states(seeds: u64) -> u64 {
    let mut states = 0;
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        for model in [Model::Adr, Model::Eadr, Model::File] {
            // Wide rather than deep: most states are opened and read out once.
            let limits = Limits { product: 1024, random: 256, ..Effort::default().limits };
            let effort = Effort {
                model,
                seeds: 0..seeds,
                operations: 40,
                keys: 12,
                limits,
                nested_one_in: 2048,
                restart_one_in: 64,
                growth_one_in: 1024,
                ..Effort::default()
            };
            let report = judge(&Design::of::<Reference>(), form, &effort).expect("no false alarm");
            println!("{form}, {model}: {report}");
            states += report.counts.states + report.counts.nested;
        }
    }
    states
}

#[test]
fn a_trivially_correct_engine_is_not_accused_in_thousands_of_states() {
    // Fails by a false alarm, or if the explorer has stopped to explore.
    assert!(states(3) > 10_000);
}

#[test]
#[ignore = "takes minutes: cargo test -p everhash-testkit --test all -- --ignored false_alarms"]
fn a_trivially_correct_engine_is_not_accused_in_a_million_states() {
    // Fails by a false alarm.
    assert!(states(32) > 1_000_000);
}
