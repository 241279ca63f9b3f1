//! Pages that repeat what the code says: printed from it, compared, and rewritten on request.

mod format;
mod papers;
mod promises;
mod style;
mod trust;

use everhash_pmem::Ruler;

use crate::{Finding, Project};

/// Where a printed part of a page begins.
const BEGIN: &str = "<!-- printed from the code: begin -->\n";

/// Where it ends.
const END: &str = "<!-- printed from the code: end -->\n";

/// The rulers of one part of the format.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// What the records belong to, for example `The pool`.
    pub title: &'static str,
    /// The file that declares them.
    pub path: String,
    /// The records.
    pub rulers: Vec<Ruler>,
}

/// A page as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Path from the root of the repository.
    pub path: &'static str,
    /// The whole text.
    pub text: String,
}

/// Prints every page, with the rulers of the whole program.
pub fn print(project: &Project, chapters: &[Chapter]) -> Vec<Page> {
    vec![
        Page { path: "docs/format.md", text: format::print(chapters) },
        Page { path: "docs/papers.md", text: papers::print(project) },
        within(project, "docs/promises.md", &promises::print(project)),
        within(project, "docs/style.md", &style::print()),
        within(project, "docs/trust.md", &trust::print(project)),
    ]
}

/// Finds pages that differ from what the code says, and rulers that are in no chapter.
pub fn compare(project: &Project, chapters: &[Chapter]) -> Vec<Finding> {
    let mut findings = format::unlisted(project, chapters);
    for page in print(project, chapters) {
        let present = project.tree.text(page.path).unwrap_or_default();
        if present != page.text {
            let same = present.lines().zip(page.text.lines()).take_while(|(a, b)| a == b).count();
            let what = "differs from what the code says; run UPDATE=1 cargo test -p everhash-tidy";
            findings.push(Finding::new(page.path, same + 1, what));
        }
    }
    findings
}

/// Replaces the printed part of a page that is otherwise written by hand.
fn within(project: &Project, path: &'static str, printed: &str) -> Page {
    let present = project.tree.text(path).unwrap_or_default();
    let (before, rest) = present.split_once(BEGIN).unwrap_or((present, ""));
    let (_, after) = rest.split_once(END).unwrap_or(("", rest));
    Page { path, text: format!("{before}{BEGIN}\n{printed}\n{END}{after}") }
}

/// Escapes what would end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
