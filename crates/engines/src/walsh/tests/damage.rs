//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::Design;
use everhash_pmem::pool::DATA;
use everhash_testkit::damage::{Effort, judge};

use crate::walsh::Walsh;
use crate::walsh::layout::AreaRecord;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, or if a number from the medium is
    // used before it is bounded. Of a pool that was not closed, the records of the areas are left
    // out: damage there looks like a crash while one was written.
    let records = DATA.word() as usize..DATA.word() as usize + 2 * AreaRecord::WORDS;
    let effort = Effort { flip_every: 7, unclosed: records, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Walsh>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 2000 && report.by_check_alone == 0, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}
