//! Edges: which crate may depend on which, as `ARCHITECTURE.md` says.

use std::collections::BTreeMap;

use crate::markdown::{Document, spans};
use crate::project::Manifest;
use crate::{Finding, Project};

/// Where the table is.
const TABLE: &str = "ARCHITECTURE.md";

/// What one crate may depend on: always, and in its tests.
#[derive(Default)]
struct Allowed {
    always: Vec<String>,
    in_tests: Vec<String>,
}

/// Finds dependencies between our crates that the table does not allow, and crates it misses.
pub fn allowed(project: &Project) -> Vec<Finding> {
    let Some(text) = project.tree.text(TABLE) else {
        return vec![Finding::new(TABLE, 1, "is missing; it says which crate may depend on which")];
    };
    let table = table(text);
    let mut findings = Vec::new();
    for manifest in project.crates() {
        let Some(allowed) = table.get(&manifest.name) else {
            let what = format!("the crate has no row in {TABLE}; say there what it may depend on");
            findings.push(Finding::new(&manifest.path, 1, what));
            continue;
        };
        judge(manifest, allowed, &mut findings);
    }
    findings
}

fn judge(manifest: &Manifest, allowed: &Allowed, findings: &mut Vec<Finding>) {
    for (kind, name) in dependencies(manifest) {
        let Some(target) = name.strip_prefix("everhash-") else { continue };
        let in_tests = kind == "dev-dependencies";
        let is_allowed = allowed.always.iter().any(|crate_| crate_ == target)
            || in_tests && allowed.in_tests.iter().any(|crate_| crate_ == target);
        if !is_allowed {
            let what = format!("depends on `{target}`, which its row in {TABLE} does not allow");
            findings.push(Finding::new(&manifest.path, manifest.line_starting(&name), what));
        }
    }
}

/// Returns every direct dependency of a crate, with the name of its table.
pub fn dependencies(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut all = Vec::new();
    let targets = manifest.table.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flatten().filter_map(|(_, table)| table.as_table());
    for table in core::iter::once(&manifest.table).chain(targets) {
        for kind in kinds {
            let names = table.get(kind).and_then(toml::Value::as_table);
            let names = names.into_iter().flatten();
            all.extend(names.map(|(key, value)| (kind, package(key, value))));
        }
    }
    all
}

/// Returns the name of a package, which may differ from the name it has in the code.
fn package(key: &str, value: &toml::Value) -> String {
    value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_string()
}

/// Reads the rows `crate | ... | May depend on | In its tests also`.
fn table(text: &str) -> BTreeMap<String, Allowed> {
    let document = Document::parse(text);
    let mut rows = BTreeMap::new();
    for (table, always) in document.tables_with("May depend on") {
        let in_tests = table.column("In its tests also");
        for row in &table.rows {
            let names = |column: usize| {
                let cell = row.cells.get(column).map_or("", String::as_str);
                spans(cell).map(String::from).collect::<Vec<_>>()
            };
            let allowed = Allowed {
                always: names(always),
                in_tests: in_tests.map(names).unwrap_or_default(),
            };
            rows.extend(names(0).into_iter().next().map(|name| (name, allowed)));
        }
    }
    rows
}
