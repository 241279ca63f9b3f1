//! Documents: links lead somewhere, paths name files, and programs are shown as they are.

use crate::markdown::{Document, spans};
use crate::{Finding, Project};

/// Folders in which a path in a text begins.
const FOLDERS: [&str; 6] = ["crates/", "docs/", "data/", "bench/", "fuzz/", ".ci/"];

/// Endings of file names; a path that begins in no folder of ours needs one.
const ENDINGS: [&str; 3] = [".rs", ".md", ".toml"];

/// Finds links that lead nowhere inside the repository.
pub fn links(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.tree.ending(".md") {
        for (line, target) in Document::parse(text).links {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { path.to_string() } else { beside(path, file) };
            if !project.tree.has(&file) {
                let what = format!("links to {target}, which is not there; correct the link");
                findings.push(Finding::new(path, line, what));
            } else if !anchor.is_empty() && !has_anchor(project, &file, anchor) {
                let what = format!("links to {target}, but {file} has no such heading; correct it");
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// Finds lines of a page's program that only rustdoc hides: a reader of the page is shown them, and
/// cannot compile them.
pub fn hidden_lines(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.tree.ending(".md") {
        let fences = Document::parse(text).fences;
        for fence in fences.iter().filter(|fence| fence.language.starts_with("rust")) {
            for (index, line) in fence.text.lines().enumerate() {
                if line.trim_start().starts_with("# ") {
                    let what = "a line of a program begins with `# `; show it, or leave it out";
                    findings.push(Finding::new(path, fence.line + index, what));
                }
            }
        }
    }
    findings
}

fn has_anchor(project: &Project, file: &str, anchor: &str) -> bool {
    let text = project.tree.text(file).unwrap_or_default();
    Document::parse(text).anchors.iter().any(|known| known == anchor)
}

/// Returns the path of `file` as seen from the folder of `path`.
fn beside(path: &str, file: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Finds paths of files that are not there, in documents and in comments.
pub fn paths(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.tree.ending(".md") {
        for (line, code) in Document::parse(text).code {
            judge(project, path, line, &code, &mut findings);
        }
    }
    for source in &project.sources {
        for comment in &source.comments {
            for code in spans(&comment.text) {
                judge(project, &source.path, comment.line, code, &mut findings);
            }
        }
    }
    findings
}

fn judge(project: &Project, path: &str, line: usize, code: &str, findings: &mut Vec<Finding>) {
    let name = code.trim_end_matches('/');
    if is_path(code) && !project.tree.has(name) && !project.tree.has(&beside(path, name)) {
        let what = format!("names `{code}`, which is not there; correct the path");
        findings.push(Finding::new(path, line, what));
    }
}

/// A path begins in a folder of ours; one with a gap to be filled (`<name>`, `*`) is a pattern.
fn is_path(code: &str) -> bool {
    let is_plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_whole = ENDINGS.iter().any(|ending| code.ends_with(ending)) || code.ends_with('/');
    let in_folder = FOLDERS.iter().any(|folder| code.starts_with(folder));
    is_plain && in_folder && (is_whole || !code.contains('.') || code.starts_with(".ci/"))
}
