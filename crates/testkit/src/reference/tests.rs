//! The reference engine before the judges.

use everhash_index::Form;

use super::Reference;
use crate::{conformance, model};

const FORMS: [Form; 3] = [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable];

#[test]
fn the_reference_behaves_like_a_map() {
    // Fails if an answer of the reference differs from the model's, or the model is wrong.
    for form in FORMS {
        let report = model::judge::<Reference>(form, &model::Effort::default()).unwrap();
        assert!(report.operations == 40_000 && report.restarts > 100, "{report:?}");
    }
}

#[test]
fn the_reference_keeps_the_contract() {
    // Fails if the reference breaks a sentence of the contract, or a case demands too much.
    for form in FORMS {
        let report = conformance::judge::<Reference>(form).unwrap();
        assert!(report.held.len() >= 23, "{report:?}");
    }
}
