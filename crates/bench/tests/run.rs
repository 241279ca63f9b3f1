//! A whole run with the reference engine, and with one that is broken.

mod broken;

use everhash_bench::{Candidate, Phase, Plan, ReadKind, ScalePlan, reread, run, scale};
use everhash_index::{Form, HashKind};
use everhash_pmem::{FileDurability, WriteBack};
use everhash_testkit::reference::Reference;

use broken::Broken;

fn plan(form: Form) -> Plan {
    let write_back = WriteBack::None;
    let (hash, threads) = (HashKind::Xxh3, vec![1, 2]);
    Plan {
        items: 60,
        form,
        hash,
        threads,
        rounds: 2,
        presized: true,
        settings: Vec::new(),
        write_back,
        durable_caches: false,
    }
}

fn scale_plan(path: std::path::PathBuf) -> ScalePlan {
    ScalePlan {
        path,
        items: 100,
        gets: 50,
        threads: 2,
        cold: true,
        presized: false,
        kept: false,
        settings: Vec::new(),
        hash: HashKind::Sip13,
        durability: FileDurability::Process,
    }
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
fn a_setting_that_an_engine_does_not_have_is_refused() {
    // Fails if a switch of an ablation were passed over in silence: the figures would be others.
    let plan = Plan { settings: vec![("no_such_setting".to_owned(), 1)], ..plan(Form::WORDS) };
    let error = run(&plan, &[Candidate::of::<Reference>()], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[test]
fn fewer_pairs_than_threads_are_refused() {
    // Fails if a thread without pairs were measured.
    let plan = Plan { items: 1, ..plan(Form::WORDS) };
    let error = run(&plan, &[], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("fewer pairs than threads"));
}

#[test]
fn a_table_is_filled_opened_twice_and_removed() {
    // Fails if a step were left out, or the file stayed behind.
    let directory = tempfile::tempdir().unwrap();
    let plan = scale_plan(directory.path().join("pairs.ehdb"));
    let mut steps = Vec::new();
    let mut said = |what: &str| steps.push(what.split(' ').next().unwrap().to_owned());
    let candidate = Candidate::of::<Reference>();
    let report = scale(&plan, &candidate, &mut said).unwrap();
    assert_eq!(steps, ["insert", "sync", "open", "get", "close", "open", "close"]);
    assert!(report.used_bytes_per_item >= 16.0 && report.insert.max >= report.insert.p50);
    assert!(!plan.path.exists());
    let kept = ScalePlan { kept: true, ..plan.clone() };
    scale(&kept, &candidate, &mut |_| {}).unwrap();
    let (_, reads) = reread(&kept, &candidate, &mut |_| {}).unwrap();
    for reads in [&report.reads, &reads] {
        let kinds: Vec<_> = reads.iter().map(|it| (it.kind, it.count)).collect();
        let all = [ReadKind::Single, ReadKind::Batched, ReadKind::Absent];
        assert_eq!(kinds, all.map(|kind| (kind, 50)));
    }
    std::fs::write(&plan.path, b"somebody else's").unwrap();
    assert!(scale(&plan, &candidate, &mut |_| {}).is_err() && plan.path.exists());
}

#[test]
fn nothing_is_measured_of_an_engine_that_answers_wrongly() {
    // Fails if a bug that makes an engine fast were reported as its speed.
    let directory = tempfile::tempdir().unwrap();
    for (wrong, in_run, in_scale) in [
        (broken::GET, "wrong answers in phase 'get'", "get 0"),
        (broken::GET_MANY, "wrong answers in phase 'get batched'", "of get of many keys"),
        (broken::LEN, "pairs after 'insert', not 60", "101 pairs after an open, not 100"),
    ] {
        let settings = vec![("wrong".to_owned(), wrong)];
        let candidate = Candidate::of::<Broken>();
        let plan = Plan { settings: settings.clone(), ..plan(Form::WORDS) };
        let error = run(&plan, &[candidate], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(in_run), "{error}");
        let plan = ScalePlan { settings, ..scale_plan(directory.path().join("pairs.ehdb")) };
        let error = scale(&plan, &candidate, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(in_scale), "{error}");
    }
}
