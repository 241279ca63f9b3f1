//! A whole run with the reference engine.

use everhash_bench::{Candidate, Phase, Plan, run};
use everhash_index::{Form, HashKind};
use everhash_pmem::WriteBack;
use everhash_testkit::reference::Reference;

fn plan(form: Form) -> Plan {
    let write_back = WriteBack::None;
    let (hash, threads) = (HashKind::Xxh3, vec![1, 2]);
    Plan { items: 60, form, hash, threads, rounds: 2, presized: true, write_back }
}

#[test]
fn a_run_reports_every_phase_and_ceiling_for_each_number_of_threads() {
    // Fails if a phase were skipped, or if its answers were wrong (the run ends then).
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let report = run(&plan(form), &[Candidate::of::<Reference>()], &mut |_| {}).unwrap();
        assert_eq!(report.rows.len(), 2 * (4 + Phase::ALL.len()));
        for row in &report.rows {
            assert!(row.cpu_mops.median > 0.0, "{} {}", row.who, row.what);
            assert_eq!(row.ratio.is_some(), row.who == "plain");
        }
    }
}

#[test]
fn fewer_pairs_than_threads_are_refused() {
    let plan = Plan { items: 1, ..plan(Form::WORDS) };
    let error = run(&plan, &[], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("fewer pairs than threads"));
}
