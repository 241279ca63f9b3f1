//! The damage judge judged: no false alarms, and engines without checks are found out.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::rows::Rows;
use everhash_index::{Design, Form};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::reference::Reference;

#[test]
fn an_engine_with_checks_over_everything_is_never_accused() {
    // Fails by a false alarm, or if the judge damaged nothing, or nothing that matters.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let effort = Effort { flip_every: 5, images: 400, ..Effort::default() };
        let report = judge(&Design::of::<Reference>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 1000 && report.harmless > 1000, "{report}");
        assert!(report.by_check_alone == 0 && report.in_bare_pairs == 0, "{report}");
        assert!((10..400).contains(&report.opened) && report.cut_and_opened > 0, "{report}");
    }
}

#[test]
fn an_engine_without_checks_is_accused_of_its_first_wrong_answer() {
    // Fails if the judge compares nothing, or forgives what it was not asked to forgive.
    let found = judge(&Design::of::<Rows>(), Form::WORDS, &Effort::default()).unwrap_err();
    println!("{found}");
    assert!(found.to_string().contains("bit "), "{found}");
    let bare = Effort { bare_pairs: true, ..Effort::default() };
    let found = judge(&Design::of::<Rows>(), Form::WORDS, &bare).unwrap_err();
    println!("{found}");
    assert!(found.to_string().contains("bit "), "{found}");
}
