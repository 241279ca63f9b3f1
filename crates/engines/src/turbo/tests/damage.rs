//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_testkit::damage::{Effort, judge};

use crate::turbo::Turbo;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, keys and values of the fixed forms
    // included, or if a number from the medium is used before it is bounded.
    for form in super::FORMS {
        let report = judge::<Turbo>(form, &Effort::default()).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 2000 && report.by_check_alone == 0, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}
