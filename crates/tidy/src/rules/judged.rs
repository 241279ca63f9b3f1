//! Judged: every engine is run under every judge in its own tests.

use super::rooms::engines;
use crate::{Finding, Project};

/// The judges: the module of each, and the functions of which its tests call one.
const JUDGES: [(&str, &[&str]); 8] = [
    ("all_forms", &["model"]),
    ("all_forms", &["conformance"]),
    ("all_forms", &["schedules"]),
    ("all_forms", &["threads"]),
    ("all_forms", &["room"]),
    ("crash", &["judge", "survives"]),
    ("damage", &["judge"]),
    ("hostile", &["judge"]),
];

/// Finds engines whose tests do not call a judge.
pub fn by_every_judge(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for engine in engines(project) {
        let tests = engine.sources.iter().filter(|source| source.is_test());
        let tests: Vec<String> = tests.map(|source| without_spaces(&source.text)).collect();
        for (judge, functions) in JUDGES {
            let calls_one =
                |test: &String| functions.iter().any(|function| calls(test, judge, function));
            if !tests.iter().any(calls_one) {
                let function = functions[0];
                let path = format!("{}{}/tests.rs", super::rooms::ENGINES, engine.name);
                let what = format!("never calls `{judge}::{function}`; every judge judges it");
                findings.push(Finding::new(&path, 1, what));
            }
        }
    }
    findings
}

/// Returns whether a test calls `judge::function`, or imports the function from there.
fn calls(test: &str, judge: &str, function: &str) -> bool {
    let group = format!("{judge}::{{");
    let mut lists = test.split(&group).skip(1).filter_map(|rest| rest.split('}').next());
    test.contains(&format!("{judge}::{function}"))
        || lists.any(|list| list.split(',').any(|name| name == function))
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}
