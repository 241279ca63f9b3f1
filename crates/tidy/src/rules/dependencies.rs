//! Dependencies: none without a decision, and no decision without its dependency.

use std::collections::BTreeSet;

use super::edges::dependencies;
use crate::markdown::{Document, spans};
use crate::{Finding, Project};

/// Where the reasons are.
const PAGE: &str = "docs/decisions/0006-dependencies.md";

/// Finds dependencies without a line on the page, and lines without a dependency.
pub fn decided(project: &Project) -> Vec<Finding> {
    let document = Document::parse(project.tree.text(PAGE).unwrap_or_default());
    let mut decided: Vec<(usize, String)> = Vec::new();
    for (table, column) in document.tables_with("Package") {
        for row in &table.rows {
            let cell = row.cells.get(column).map_or("", String::as_str);
            decided.extend(spans(cell).map(|name| (row.line, name.to_string())));
        }
    }
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for manifest in project.crates() {
        for (_, name) in dependencies(manifest) {
            let is_ours = name.starts_with("everhash");
            if !is_ours && !decided.iter().any(|(_, decided)| *decided == name) {
                let what = format!(
                    "depends on `{name}`, which {PAGE} does not name; give the \
                                    reason there"
                );
                let line = manifest.line_starting(&name);
                findings.push(Finding::new(&manifest.path, line, what));
            }
            used.insert(name);
        }
    }
    for (line, name) in decided.into_iter().filter(|(_, name)| !used.contains(name)) {
        let what = format!("gives a reason for `{name}`, on which nothing depends; remove the row");
        findings.push(Finding::new(PAGE, line, what));
    }
    findings
}
