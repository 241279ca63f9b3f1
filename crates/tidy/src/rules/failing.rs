//! Failing: a test says first how it could fail.

use proc_macro2::{Delimiter, TokenTree};

use super::promises::test_at;
use crate::{Finding, Project};

/// Finds tests whose body does not begin with a comment.
pub fn said(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        source.each(&mut |tokens| {
            let Some((name, _)) = test_at(tokens) else { return };
            let is_body = |token: &&TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            let Some(TokenTree::Group(body)) = tokens.iter().find(is_body) else { return };
            // Lines count from 1: this is the index of the one behind the brace.
            let first = source.text.lines().nth(body.span_open().start().line);
            if !first.is_some_and(|line| line.trim_start().starts_with("//")) {
                let what = format!("`{name}` does not say first how it could fail; say it");
                findings.push(Finding::new(&source.path, name.span().start().line, what));
            }
        });
    }
    findings
}
