//! Exceptions: a mutant that the judge lets live has a test that kills it, if its engine says so.

use super::promises::test_at;
use crate::{Finding, Project};

/// Finds tests that an engine's file of exceptions names and its folder does not have.
pub fn tested(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.tree.ending("/exceptions.toml") {
        let Ok(table) = text.parse::<toml::Table>() else {
            findings.push(Finding::new(path, 1, "cannot be parsed; make it TOML".to_owned()));
            continue;
        };
        let folder = path.trim_end_matches("exceptions.toml");
        let tests = table.get("tests").and_then(toml::Value::as_table).into_iter().flatten();
        for (mutant, name) in tests {
            let name = name.as_str().unwrap_or_default();
            if !has_test(project, folder, name) {
                let starts = |line: &str| line.starts_with(&format!("\"{mutant}\""));
                let line = text.lines().position(starts).map_or(1, |index| index + 1);
                let what = format!("no test `{name}` in {folder} kills {mutant}; name one");
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

fn has_test(project: &Project, folder: &str, name: &str) -> bool {
    let mut found = false;
    for source in project.sources.iter().filter(|source| source.path.starts_with(folder)) {
        source.each(&mut |tokens| found |= test_at(tokens).is_some_and(|(test, _)| test == name));
    }
    found
}
