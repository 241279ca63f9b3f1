//! The damage judge judged: no false alarms, and engines without checks are found out.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::rows::Rows;
use crate::sealed::{Sealed, bug};
use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_testkit::Failure;
use everhash_testkit::damage::{Effort, Report, judge};
use everhash_testkit::reference::Reference;

#[test]
fn an_engine_with_checks_over_everything_is_never_accused() {
    // Fails by a false alarm, or if the judge damaged nothing, or nothing that matters.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let effort = Effort { flip_every: 11, images: 200, ..Effort::default() };
        let report = judge(&Design::of::<Reference>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 500 && report.harmless > 1000, "{report}");
        assert!(report.by_check_alone == 0 && report.in_bare_pairs == 0, "{report}");
        assert!((5..200).contains(&report.opened) && report.cut_and_opened > 0, "{report}");
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

/// Judges the engine with checksums, with one of its bugs.
fn sealed(changes: &'static [(&'static str, u64)], effort: &Effort) -> Result<Report, Failure> {
    judge(&Design::of::<Sealed>().with_settings(changes), Form::WORDS, effort)
}

/// Flips alone.
const FLIPS: Effort = Effort {
    pairs: 20,
    flip_every: 7,
    work_every: 1 << 20,
    several: 0,
    missed_one_in: 0,
    images: 0,
    cut_every: 64,
    bare_pairs: false,
    unclosed: 0..0,
    seed: 1,
    model: Model::Adr,
};

#[test]
fn each_way_to_ask_is_judged_by_itself() {
    // Fails if an error of one operation hides the wrong answer of another: in every bug here all
    // operations but one notice the damage.
    let report = sealed(&[], &FLIPS).unwrap();
    assert!(report.noticed > 500 && report.by_check_alone == 0, "{report}");
    let bugs: [(&'static [(&str, u64)], &str); 5] = [
        (&[("bug", bug::GET_BELIEVES)], ": get of "),
        (&[("bug", bug::MANY_BELIEVES)], ": get_many of "),
        (&[("bug", bug::CONTAINS_BELIEVES)], ": contains of "),
        (&[("bug", bug::LEN_BELIEVES)], ": len returned "),
        (&[("bug", bug::SCAN_PASSES_OVER)], ": scan of "),
    ];
    for (changes, says) in bugs {
        let found = sealed(changes, &FLIPS).unwrap_err().to_string();
        println!("{found}");
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn damage_of_two_bits_of_numbers_and_of_two_words_is_not_damage_of_one_bit() {
    // Fails if only single flips are tried: each of these checks notices every one of them.
    let several = Effort { several: 1500, ..FLIPS };
    let report = sealed(&[], &several).unwrap();
    assert!(report.several_noticed > 1000 && report.several_missed == 0, "{report}");
    let bugs: [(&'static [(&str, u64)], &str); 2] = [
        (&[("bug", bug::PARITY)], "two"),
        (&[("bug", bug::NO_PLACE)], "two words of a line exchanged"),
    ];
    for (changes, says) in bugs {
        let report = sealed(changes, &FLIPS).unwrap();
        assert!(report.noticed > 500, "{report}");
        let found = sealed(changes, &several).unwrap_err().to_string();
        println!("{found}");
        assert!(found.contains("damages missed, 0 allowed") && found.contains(says), "{found}");
    }
    // An engine that says so may miss a part.
    let may = Effort { missed_one_in: 30, ..several };
    assert!(sealed(&[("bug", bug::PARITY)], &may).unwrap().several_missed > 0);
}
