//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::Design;
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::hostile;

use crate::reef::Reef;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, or if a number from the medium is
    // used before it is bounded.
    let effort = Effort { flip_every: 7, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Reef>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 500 && report.by_check_alone == 0, "{form}: {report}");
    }
}

#[test]
fn hostile_words_cost_an_error_and_no_more() {
    // Fails if a forged place, tail, count or length is used before it is bounded.
    for form in super::FORMS {
        let effort = hostile::Effort { images: 400, ..hostile::Effort::default() };
        let report = hostile::judge(&Design::of::<Reef>(), form, &effort);
        println!("{form}: {}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}
