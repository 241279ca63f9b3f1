//! The figures of an open database, for people and for Prometheus; and its spans.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::place;
use everhash_store::{Db, Durability, ErrorKind, Form, engines};

/// Returns every figure of a text in Prometheus's format, and checks its grammar on the way.
fn figures(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'));
    let (mut figures, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name, kind).is_none(), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"];
            let histogram = parts.iter().find_map(|part| family.strip_suffix(part));
            let kind = kinds.get(family).or_else(|| kinds.get(histogram?));
            assert!(kind.is_some(), "no type before {line}");
            assert_eq!(*kind.unwrap() == "counter", family.ends_with("_total"), "{line}");
            assert!(figures.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    figures
}

#[test]
fn every_call_is_counted_once_and_the_text_says_so() {
    // Fails if a call were counted twice or as another kind, a bucket did not hold the ones below
    // it, or a path with quotes broke the text.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a \"b\" \\ c\nd");
    let options = Db::options().count_calls(true).background(false);
    let db = options.durability(Durability::Process).create(&path).unwrap();
    for number in 0..100u8 {
        db.put([number], "value").unwrap();
        db.get([number]).unwrap();
        db.get([number]).unwrap();
    }
    assert_eq!(db.put("x".repeat(100_000), "").unwrap_err().kind(), ErrorKind::InvalidPair);
    db.sync().unwrap();
    let metrics = db.metrics();
    let calls = metrics.calls.clone().unwrap();
    assert_eq!([calls.read.count(), calls.write.count(), calls.sync.count()], [200, 101, 1]);
    assert_eq!(calls.failed, 1);
    assert!(calls.read.quantile(0.5) <= calls.read.quantile(0.99));
    assert!(calls.write.total() > Duration::ZERO && calls.write.total() < metrics.open_for);
    let text = metrics.to_string();
    let all = figures(&text);
    let label = format!("{}/a \\\"b\\\" \\\\ c\\nd", directory.path().display());
    let get =
        |name: &str, labels: &str| all[&format!("everhash_{name}{{database=\"{label}\"{labels}}}")];
    assert_eq!((get("pairs", ""), get("open", ""), get("stopped", "")), (100.0, 1.0, 0.0));
    assert_eq!(get("file_bytes", ""), path.metadata().unwrap().len() as f64);
    assert_eq!(get("call_seconds_count", ",kind=\"read\""), 200.0);
    assert_eq!(get("failed_calls_total", ""), 1.0);
    assert_eq!(get("call_seconds_bucket", ",kind=\"write\",le=\"+Inf\""), 101.0);
    let buckets =
        text.lines().filter(|line| line.contains("_bucket{") && line.contains("\"read\""));
    let counts: Vec<u64> =
        buckets.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(counts.len() > 20 && counts.is_sorted(), "{counts:?}");
    assert!(get("device_syncs_total", "") >= 1.0);
    // Without the choice nothing is counted, and the rest is there.
    drop(db);
    let db = Db::open(&path).unwrap();
    assert_eq!(db.metrics().calls, None);
    assert_eq!(db.metrics().stats.unwrap().items, 100);
    figures(&db.metrics().to_string());
}

#[test]
fn every_engine_tells_live_bytes_from_dead_ones() {
    // Fails if an engine counts none, counts replaced pairs among the live ones, or forgets them
    // when the database is opened again.
    for engine in engines() {
        for form in [Form::Variable, Form::WORDS] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("pairs.ehdb");
            let options = Db::options().engine(engine.name).form(form).background(false);
            let options = options.durability(Durability::Process);
            let db = options.clone().create(&path).unwrap();
            let pairs = 2000u64;
            let value = vec![7; if form == Form::WORDS { 8 } else { 300 }];
            let payload = pairs * (8 + value.len() as u64);
            for round in 0..2 {
                for number in 0..pairs {
                    db.put(number.to_le_bytes(), &value).unwrap();
                }
                let stats = db.stats().unwrap();
                println!("{}, {form}, round {round}: {stats:?}", engine.name);
                let live = stats.live_bytes;
                // Heads, checks, and the steps of lengths.
                assert!((payload..payload * 3).contains(&live), "{}: {live}", engine.name);
                assert!(live + stats.dead_bytes.unwrap_or(0) <= stats.used_bytes);
                let is_log = ["walsh", "reef"].contains(&engine.name);
                if is_log && round > 0 {
                    assert!(stats.dead_bytes.unwrap() > 0, "{}", engine.name);
                }
            }
            let before = db.stats().unwrap().live_bytes;
            for number in 0..pairs / 2 {
                db.remove(number.to_le_bytes()).unwrap();
            }
            let after = db.stats().unwrap().live_bytes;
            assert!(after < before / 4 * 3, "{}: {before}, {after}", engine.name);
            db.close().unwrap();
            let reopened = options.open(&path).unwrap().stats().unwrap().live_bytes;
            // WALSH counts all objects of the newest log of an area as alive, and here there is
            // no other.
            let most = if engine.name == "walsh" { before * 2 } else { after / 4 * 5 };
            let range = after / 4 * 3..most;
            assert!(range.contains(&reopened), "{}: {after}, {reopened}", engine.name);
        }
    }
}

#[test]
fn a_file_of_figures_follows_the_database_until_it_is_closed() {
    // Fails if the file were written once only, could be seen in part, or told of an open database
    // after its end.
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path().join("a.ehdb"), directory.path().join("a.ehdb.prom"));
    let options = Db::options().metrics_file(&file, Duration::from_millis(5));
    let db = options.create(&path).unwrap();
    let read = || figures(&std::fs::read_to_string(&file).unwrap());
    let get = |name: &str| read()[&format!("everhash_{name}{{database=\"{}\"}}", path.display())];
    assert_eq!((get("pairs"), get("open")), (0.0, 1.0));
    db.put("key", "value").unwrap();
    let began = Instant::now();
    while get("pairs") < 1.0 {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    db.put("more", "value").unwrap();
    db.close().unwrap();
    assert_eq!((get("pairs"), get("open")), (2.0, 0.0));
    let nowhere = directory.path().join("none").join("a.prom");
    let refused = Db::options().metrics_file(nowhere, Duration::from_secs(1)).open(&path);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Db::open_read_only(&path).unwrap().len().unwrap(), 2, "closed cleanly");
}

#[test]
fn a_file_of_figures_that_cannot_be_written_for_a_while_is_written_again() {
    // Fails if whoever watches the database saw what it was at the first failure, for ever.
    let (directory, path) = place();
    let [folder, away] = ["figures", "away"].map(|name| directory.path().join(name));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("a.prom");
    let options = Db::options().metrics_file(&file, Duration::from_millis(10));
    let _db = options.create(path).unwrap();
    std::fs::rename(&folder, &away).unwrap();
    // Some of its times pass.
    std::thread::sleep(Duration::from_millis(100));
    std::fs::create_dir(&folder).unwrap();
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Remembers the names of spans.
#[derive(Clone, Default)]
struct Watcher {
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl tracing::Subscriber for Watcher {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let metadata = span.metadata();
        assert_eq!(metadata.target(), "everhash");
        assert!(metadata.fields().field("database").is_some());
        self.names.lock().unwrap().insert(metadata.name().to_owned());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn what_takes_time_is_a_span() {
    // In a process of its own: which spans anybody wants is a fact about a process, and tests
    // beside this one that nobody watches can decide it first.
    const ALONE: &str = "EVERHASH_WATCHED";
    if std::env::var_os(ALONE).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "figures::what_takes_time_is_a_span"]).env(ALONE, "1");
        let output = again.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        return;
    }
    let watcher = Watcher::default();
    tracing::subscriber::with_default(watcher.clone(), || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ehdb");
        let db = Db::options().background(false).create(&path).unwrap();
        db.put("key", "value").unwrap();
        db.sync().unwrap();
        db.maintain().unwrap();
        db.backup(directory.path().join("b.ehdb"), &Db::options()).unwrap();
        db.compact().unwrap().close().unwrap();
        Db::repair(&path).unwrap();
    });
    let names = watcher.names.lock().unwrap();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected = ["backup", "close", "create", "maintain", "open", "repair", "rewrite", "sync"];
    assert_eq!(names, expected);
}

#[test]
fn every_figure_of_the_text_is_the_one_of_its_name() {
    // Fails if two figures were exchanged: all are plausible.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pairs.ehdb");
    let db = Db::options().background(false).create(&path).unwrap();
    for round in 0..2u8 {
        for number in 0..2000u32 {
            db.put(number.to_le_bytes(), [round; 100]).unwrap();
        }
    }
    db.sync().unwrap();
    let metrics = db.metrics();
    let (all, stats) = (figures(&metrics.to_string()), metrics.stats.unwrap());
    let get = |name: &str| all[&format!("everhash_{name}{{database=\"{}\"}}", path.display())];
    for (name, value) in [
        ("pairs", stats.items),
        ("slots", stats.slots),
        ("file_bytes", stats.device_bytes),
        ("used_bytes", stats.used_bytes),
        ("live_bytes", stats.live_bytes),
        ("dead_bytes", stats.dead_bytes.unwrap()),
        ("memory_bytes", stats.dram_bytes),
        ("growth_steps_total", stats.growth_steps),
        ("device_syncs_total", metrics.device_syncs),
    ] {
        assert_eq!(get(name), value as f64, "{name}");
    }
    assert_eq!(get("open_seconds"), metrics.open_for.as_secs_f64());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..60.0).contains(&(now - get("written_seconds"))));
    for (name, value) in &stats.own {
        let line = format!("everhash_engine{{database=\"{}\",figure=\"{name}\"}}", path.display());
        assert_eq!(all[&line], *value as f64, "{name}");
    }
}
