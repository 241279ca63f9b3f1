//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::Design;
use everhash_testkit::damage::{Effort, judge};

use crate::tiered::Tiered;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, other than a key or a value of a
    // fixed form, or if a number from the medium is used before it is bounded.
    let effort = Effort { bare_pairs: true, flip_every: 7, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Tiered>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 700, "{form}: {report}");
        assert!((30..4000).contains(&report.opened), "{form}: {report}");
    }
}
