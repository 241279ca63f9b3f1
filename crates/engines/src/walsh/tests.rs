//! What WALSH must do.

use everhash_index::Form;
use everhash_testkit::{conformance, crash, model, race};

use super::Walsh;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    for form in FORMS {
        let report = model::judge::<Walsh>(form, &model::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    for form in FORMS {
        let report = conformance::judge::<Walsh>(form);
        println!("{form}: {:?}", report.unwrap_or_else(|violations| panic!("{violations}")));
    }
}

#[test]
fn threads_see_a_map() {
    // Fails if a schedule of a few threads has an answer that no order of them explains.
    for form in FORMS {
        let effort = race::Effort { crash_every: 0, ..race::Effort::default() };
        let report = race::judge::<Walsh>(form, &effort);
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn every_crash_leaves_a_prefix_of_the_writes() {
    // Fails if a crash at any moment leaves a table that cannot be opened, or whose pairs are not
    // those of a moment since the last sync.
    for form in FORMS {
        let report = crash::judge::<Walsh>(form, &crash::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}
