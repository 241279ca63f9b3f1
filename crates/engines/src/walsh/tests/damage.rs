//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::{Design, Form};
use everhash_pmem::pool::DATA;
use everhash_testkit::damage::{Effort, judge};

use crate::walsh::Walsh;
use crate::walsh::layout::AreaRecord;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, or if a number from the medium is
    // used before it is bounded. Of a pool that was not closed, the records of the areas are left
    // out: damage there looks like a crash while one was written. A look-up of a byte string walks
    // over the objects of other keys without a look at their checksums, so that a damaged key is
    // absent to it, or has its state before; a scan and a check report it.
    let records = DATA.word() as usize..DATA.word() as usize + 2 * AreaRecord::WORDS;
    for form in super::FORMS {
        let passed_over = form == Form::Variable;
        let unclosed = records.clone();
        let effort = Effort { flip_every: 7, unclosed, passed_over, ..Effort::default() };
        let report = judge(&Design::of::<Walsh>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 2000, "{form}: {report}");
        // None where there are no byte strings; and if there is none at all, the excuse is over.
        assert_eq!(report.by_check_alone > 0, passed_over, "{form}: {report}");
        assert!(report.by_check_alone < 1500, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}
