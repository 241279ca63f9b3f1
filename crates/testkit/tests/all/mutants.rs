//! Mutants of the reference engine: each flush, fence and commit that it makes is left out once.

use everhash_index::{Design, Form};
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, mutants};
use everhash_testkit::reference::Reference;

#[test]
fn every_flush_and_every_fence_of_the_reference_engine_is_needed() {
    // Fails if the judge has become blind for a place, or if the engine persists what nobody needs
    // to be durable.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let effort = Effort { seeds: 0..2, operations: 24, keys: 12, ..Effort::default() };
        let efforts = [Model::Adr, Model::File].map(|model| effort.clone().under(model));
        let fates = mutants(&Design::of::<Reference>(), form, &efforts)
            .expect("the engine as it is is sound");
        for outcome in &fates {
            println!("{form}: {outcome}");
        }
        assert!(fates.len() >= 9, "{form}: only {} mutants", fates.len());
        assert!(fates.iter().all(|outcome| outcome.detection.is_some()), "{form}: one survived");
    }
}
