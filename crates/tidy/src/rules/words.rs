//! Words: marks of unfinished work.

use proc_macro2::TokenTree;

use crate::markdown::Document;
use crate::{Finding, Project, Source};

/// Words that mark unfinished work.
const MARKS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Macros that stand for missing code.
const STUBS: [&str; 2] = ["todo", "unimplemented"];

/// Finds unfinished work: in comments, in documents, in code and in messages.
pub fn open_ends(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        for comment in &source.comments {
            judge(&source.path, comment.line, &comment.text, &mut findings);
            admits(source, comment.line, &comment.text, &mut findings);
        }
        stubs(source, &mut findings);
    }
    for (path, text) in project.tree.ending(".md") {
        for (line, prose) in Document::parse(text).prose {
            judge(path, line, &prose, &mut findings);
        }
    }
    findings
}

fn judge(path: &str, line: usize, text: &str, findings: &mut Vec<Finding>) {
    // What stands between back quotes is spoken of, not said.
    let said: String = text.split('`').step_by(2).collect();
    for mark in MARKS {
        if said.split(|c: char| !c.is_alphanumeric()).any(|word| word == mark)
            && !said.contains(&format!("{mark} #"))
            && !said.contains(&format!("{mark}(#"))
        {
            let what = format!("{mark} without an issue; write `{mark} #number` or do it");
            findings.push(Finding::new(path, line, what));
        }
    }
}

fn stubs(source: &Source, findings: &mut Vec<Finding>) {
    source.each(&mut |tokens| match tokens {
        [TokenTree::Ident(name), TokenTree::Punct(mark), TokenTree::Group(_), ..]
            if mark.as_char() == '!' && STUBS.iter().any(|stub| name == stub) =>
        {
            let what = format!("`{name}!` stands for missing code; write the code");
            findings.push(Finding::new(&source.path, name.span().start().line, what));
        }
        [TokenTree::Literal(text), ..] => {
            admits(source, text.span().start().line, &text.to_string(), findings);
        }
        _ => {}
    });
}

/// Finds a text that admits that something is missing.
fn admits(source: &Source, line: usize, text: &str, findings: &mut Vec<Finding>) {
    // In two parts, or this line would find itself.
    let phrase = ["not", "implemented"].join(" ");
    if text.to_lowercase().contains(&phrase) {
        let what = format!("a text says \"{phrase}\"; do it, or refuse with what to do instead");
        findings.push(Finding::new(&source.path, line, what));
    }
}
