//! What TurboHash must do, and how often it may write.

use everhash_index::Form;
use everhash_testkit::{conformance, model};

use super::Turbo;

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn it_is_a_map() {
    // Fails if any sequence of operations is answered differently from a sorted map.
    for form in FORMS {
        let report = model::judge::<Turbo>(form, &model::Effort::default());
        println!("{form}: {:?}", report.unwrap_or_else(|violation| panic!("{violation}")));
    }
}

#[test]
fn it_keeps_the_contract() {
    // Fails if a promise of the contract is broken, each by its name.
    for form in FORMS {
        let report = conformance::judge::<Turbo>(form);
        println!("{form}: {:?}", report.unwrap_or_else(|violations| panic!("{violations}")));
    }
}
