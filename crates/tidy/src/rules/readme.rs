//! The README: two commands to set up, and the second is the one that continuous integration runs.

use crate::markdown::Document;
use crate::{Finding, Project};

/// The heading under which the commands stand.
const HEADING: &str = "Set-up";

/// The script that runs the second of them.
const SCRIPT: &str = ".ci/run";

/// Finds a set-up of more or fewer than two commands, or one that is not what is tested.
pub fn set_up(project: &Project) -> Vec<Finding> {
    let text = project.tree.text("README.md").unwrap_or_default();
    let mut commands = Vec::new();
    for fence in Document::parse(text).fences.iter().filter(|fence| fence.under == HEADING) {
        for (index, line) in fence.text.lines().enumerate() {
            if !line.trim().is_empty() && !line.starts_with('#') {
                commands.push((fence.line + index, line.trim().to_string()));
            }
        }
    }
    let [_, (line, test)] = commands.as_slice() else {
        let count = commands.len();
        let what = format!("{count} commands under \"{HEADING}\"; there are two: import, and test");
        return vec![Finding::new("README.md", 1, what)];
    };
    let script = project.tree.text(SCRIPT).unwrap_or_default();
    if !script.lines().any(|line| line.contains(test.as_str())) {
        let what = format!("`{test}` is not in {SCRIPT}; run there what is promised here");
        return vec![Finding::new("README.md", *line, what)];
    }
    Vec::new()
}
