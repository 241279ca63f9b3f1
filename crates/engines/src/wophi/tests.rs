//! What WOPHI must do, and how often it may write.

mod counts;

use everhash_index::Form;
use everhash_testkit::{conformance, model};

use super::Wophi;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    for form in FORMS {
        let report = model::judge::<Wophi>(form, &model::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    for form in FORMS {
        let report = conformance::judge::<Wophi>(form);
        println!("{form}: {:?}", report.unwrap_or_else(|violations| panic!("{violations}")));
    }
}
