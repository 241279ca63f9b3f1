//! Every crash leaves what it may leave: of batches a prefix of each key's writes since the last
//! sync, of immediate writes all that returned.

use everhash_index::{Engine, Form, Table};
use everhash_pmem::crash::Model;
use everhash_testkit::crash::{Effort, judge};
use everhash_testkit::session::Session;

use super::immediate::Immediate;
use crate::walsh::Walsh;

/// Some seconds for each form and model.
fn effort(model: Model) -> Effort {
    Effort { model, seeds: 0..6, operations: 60, ..Effort::default() }
}

fn survives<E: Engine>(form: Form, model: Model) {
    let report = judge::<E>(form, &effort(model));
    let report = report.unwrap_or_else(|violation| panic!("{violation}"));
    println!("{form}, {model}: {report}");
    assert!(report.counts.states > 1000, "fewer mean that crashes were not tried");
}

#[test]
fn p03_a_power_failure_leaves_a_prefix_on_memory() {
    // Fails if a flush or a fence is missing, or if two stores are taken for one.
    super::FORMS.into_iter().for_each(|form| survives::<Walsh>(form, Model::Adr));
}

#[test]
fn p03_a_power_failure_leaves_a_prefix_with_durable_caches() {
    // Fails if stores are made in an order that leaves something between before and after.
    survives::<Walsh>(Form::WORDS, Model::Eadr);
}

#[test]
fn p03_a_power_failure_leaves_a_prefix_on_files() {
    // Fails if the order of stores to a line is relied on where it is not given.
    super::FORMS.into_iter().for_each(|form| survives::<Walsh>(form, Model::File));
}

#[test]
fn p01_an_immediate_write_survives() {
    // Fails if a write returns before its object, its directory record and the tail are durable.
    for model in [Model::Adr, Model::File] {
        survives::<Immediate>(Form::WORDS, model);
    }
}

#[test]
fn the_end_of_a_process_loses_nothing() {
    // Fails if a write is somewhere else than in the mapping when it returns.
    for form in super::FORMS {
        let shape = everhash_testkit::workload::Shape::tiny(form);
        let mut session = Session::<Walsh>::tiny(form, 1 << 20).unwrap();
        for number in 0..300u16 {
            session.table().put(&shape.key(number), &shape.value(number.into())).unwrap();
            if number % 7 == 0 {
                session.kill_unsynced().unwrap();
            }
            assert_eq!(session.table().len().unwrap(), u64::from(number) + 1, "{form}");
        }
        let mut value = Vec::new();
        for number in 0..300u16 {
            assert!(session.table().get(&shape.key(number), &mut value).unwrap());
            assert_eq!(value, shape.value(number.into()), "{form}");
        }
    }
}
