//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::{Design, Form};
use everhash_testkit::damage::{Effort, judge};

use crate::wophi::Wophi;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, other than a key or a value of a
    // fixed form, or if a number from the medium is used before it is bounded.
    let effort = Effort { bare_pairs: true, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Wophi>(), form, &effort).unwrap();
        println!("{form}: {report}");
        // A bit of a value is never noticed, and few of a key are in so small a table.
        let pair_bits = if form == Form::DOUBLE_WORDS { 256 } else { 128 };
        let most = if form == Form::Variable { 0 } else { 2 * 24 * pair_bits };
        assert!(report.in_bare_pairs <= most && report.noticed > 2000, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}
