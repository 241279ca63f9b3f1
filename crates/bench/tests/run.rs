//! A whole run with the reference engine, and with one that is broken.

mod broken;

use std::path::Path;

use everhash_bench::{Candidate, Phase, Plan, ReadKind, ScalePlan, reread, run, scale};
use everhash_index::{Design, Form, HashKind, Inline, Opening, Table};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Region, WriteBack};
use everhash_testkit::reference::Reference;

use broken::Broken;

fn plan(form: Form) -> Plan {
    let write_back = WriteBack::None;
    let (hash, threads) = (HashKind::Xxh3, vec![1, 2]);
    Plan {
        // Two threads have one less, and time one of them each.
        items: 129,
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
    // Fails if a phase or a round were skipped, if its answers were wrong (the run ends then), or
    // if operations that are timed one by one were not.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let (mut told, engine) = (0, Candidate::of::<Reference>());
        let report = run(&plan(form), &[engine], &mut |_| told += 1).unwrap();
        assert_eq!(told, 2 * 2 * 2);
        assert_eq!(report.rows.len(), 2 * (4 + Phase::ALL.len()));
        for row in &report.rows {
            assert!(row.cpu_mops.median > 0.0, "{} {}", row.who, row.what);
            assert_eq!(row.ratio.is_some(), row.who == "plain");
            let is_timed = row.who == "plain" && !row.what.contains("batched");
            assert_eq!(row.latency.is_some(), is_timed, "{} {}", row.who, row.what);
            // Each operation reads all pairs: it takes more nanoseconds than that.
            assert!(row.latency.is_none_or(|latency| latency.p50 >= 100), "{row:?}");
        }
    }
}

#[test]
fn a_setting_that_an_engine_does_not_have_is_refused() {
    // Fails if a switch of an ablation were passed over in silence: the figures would be others.
    let plan = Plan { settings: vec![("no_such_setting".to_owned(), 1)], ..plan(Form::WORDS) };
    let error = run(&plan, &[Candidate::of::<Reference>()], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    assert!(Candidate::of::<Reference>().admit(plan.form, &[]).is_ok());
    assert!(Candidate::of::<Reference>().admit(plan.form, &plan.settings).is_err());
}

#[test]
fn fewer_pairs_than_threads_are_refused() {
    // Fails if a thread without pairs were measured.
    let plan = Plan { items: 1, ..plan(Form::WORDS) };
    let error = run(&plan, &[], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("fewer pairs than threads"));
    let plan = Plan { threads: vec![1, 0], ..self::plan(Form::WORDS) };
    assert!(run(&plan, &[], &mut |_| {}).is_err(), "no thread does nothing");
    let plan = Plan { items: 2, ..self::plan(Form::WORDS) };
    assert!(run(&plan, &[Candidate::of::<Reference>()], &mut |_| {}).is_ok(), "one each is enough");
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
    // Each of the later half took as long at least, and more nanoseconds than there are pairs.
    let insert = report.insert;
    assert!(insert.max >= insert.p50 && (100..=1 << 40).contains(&insert.p50));
    assert!(insert.p50 as f64 * 50.0 <= report.load_seconds * 1.01e9, "{report:?}");
    assert!(!plan.path.exists());
    let kept = ScalePlan { kept: true, ..plan.clone() };
    scale(&kept, &candidate, &mut |_| {}).unwrap();
    let table = open(&plan.path);
    let stats = table.stats().unwrap();
    assert_eq!(report.used_bytes_per_item, stats.used_bytes as f64 / 100.0);
    assert_eq!(report.dram_bytes_per_item, stats.dram_bytes as f64 / 100.0);
    table.close().unwrap();
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
    let scaled = |wrong| {
        let settings = vec![("wrong".to_owned(), wrong)];
        let plan = ScalePlan { settings, ..scale_plan(directory.path().join("pairs.ehdb")) };
        scale(&plan, &Candidate::of::<Broken>(), &mut |_| {}).map(drop)
    };
    for (wrong, in_run, in_scale) in [
        (broken::GET, "129 wrong answers in phase 'get'", "get 0"),
        (broken::GET_MANY, "wrong answers in phase 'get batched'", "of get of many keys"),
        (broken::LEN, "pairs after 'insert', not 129", "101 pairs after an open, not 100"),
        (broken::ABSENT, "129 wrong answers in phase 'get absent'", "get of an absent key, 0"),
        (broken::INSERT, "129 wrong answers in phase 'insert'", "(insert 0)"),
        (broken::CLOSE, "earlier failure", "earlier failure"),
    ] {
        let error = measured(wrong, Form::WORDS).unwrap_err().to_string();
        assert!(error.contains(in_run), "{error}");
        let error = scaled(wrong).unwrap_err().to_string();
        assert!(error.contains(in_scale), "{error}");
    }
    for (wrong, form, in_run) in [
        (broken::UPDATE, Form::WORDS, "129 wrong answers in phase 'update'"),
        (broken::REMOVE, Form::WORDS, "129 wrong answers in phase 'remove'"),
        (broken::GET_BYTES, Form::DOUBLE_WORDS, "129 wrong answers in phase 'get'"),
        (broken::ABSENT_BYTES, Form::DOUBLE_WORDS, "129 wrong answers in phase 'get absent'"),
        (broken::GET_MANY_BYTES, Form::DOUBLE_WORDS, "129 wrong answers in phase 'get batched'"),
        (broken::INSERT_MANY, Form::WORDS, "1 wrong answers in phase 'insert batched'"),
    ] {
        let error = measured(wrong, form).unwrap_err().to_string();
        assert!(error.contains(in_run), "{error}");
    }
    assert!(scaled(broken::SYNC).is_err());
    assert!(scaled(broken::MAINTAIN).is_err());
    // A process is killed in between, and the machine keeps running.
    scaled(broken::POWER).unwrap();
    // A file that was kept is closed, too, when it has been read again.
    let path = directory.path().join("kept.ehdb");
    let settings = vec![("wrong".to_owned(), broken::CLOSE)];
    let kept = ScalePlan { kept: true, settings, ..scale_plan(path) };
    assert!(scale(&kept, &Candidate::of::<Broken>(), &mut |_| {}).is_err() && kept.path.exists());
    assert!(reread(&kept, &Candidate::of::<Broken>(), &mut |_| {}).is_err());
}

/// Runs the broken engine.
fn measured(wrong: u64, form: Form) -> everhash_index::Result<()> {
    let settings = vec![("wrong".to_owned(), wrong)];
    let plan = Plan { settings, ..plan(form) };
    run(&plan, &[Candidate::of::<Broken>()], &mut |_| {}).map(drop)
}

/// Opens a file that was kept.
fn open(path: &Path) -> Box<dyn Table> {
    let medium = FileMedium::open(path, &FileOptions::default()).expect("a file that was kept");
    let design = Design::<FileMedium>::of::<Reference>();
    let table = design.open(Region::new(medium), Opening::default().boot, &Inline);
    table.expect("a table that was closed")
}
