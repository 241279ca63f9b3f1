//! Sites: their names are unique, so that a dropped one is one place in the code.

use std::collections::BTreeMap;

use proc_macro2::TokenTree;

use crate::{Finding, Project};

/// Finds names of sites that are used twice or do not read `part/operation/what`.
pub fn names(project: &Project) -> Vec<Finding> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in project.sources.iter().filter(|source| source.path.contains("/src/")) {
        source.each(&mut |tokens| {
            for (line, name) in declared(tokens) {
                if source.in_test(line) {
                    continue;
                }
                let place = format!("{}:{line}", source.path);
                if !is_well_formed(&name) {
                    let what = format!(
                        "the site \"{name}\" does not read `part/operation/what`; \
                                        rename it"
                    );
                    findings.push(Finding::new(&source.path, line, what));
                }
                if let Some(other) = first.insert(name.clone(), place) {
                    let what = format!("the site \"{name}\" is also at {other}; rename one");
                    findings.push(Finding::new(&source.path, line, what));
                }
            }
        });
    }
    findings
}

/// Returns the names in a call of `sites!` at the head of `tokens`, with their lines.
fn declared(tokens: &[TokenTree]) -> Vec<(usize, String)> {
    let [TokenTree::Ident(name), TokenTree::Punct(mark), TokenTree::Group(body), ..] = tokens
    else {
        return Vec::new();
    };
    if name != "sites" || mark.as_char() != '!' {
        return Vec::new();
    }
    let literals = body.stream().into_iter().filter_map(|token| match token {
        TokenTree::Literal(text) => Some((text.span().start().line, text.to_string())),
        _ => None,
    });
    literals.map(|(line, text)| (line, text.trim_matches('"').to_string())).collect()
}

fn is_well_formed(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let is_word = |word: &str| !word.is_empty() && word.chars().all(is_letter);
    name.split('/').count() >= 3 && name.split('/').all(is_word)
}
