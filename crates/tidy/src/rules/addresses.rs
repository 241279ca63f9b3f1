//! Addresses: a place on the medium has a name, which `layout.rs` gives it.

use proc_macro2::TokenTree;

use super::rooms::engines;
use crate::{Finding, Project};

/// Finds addresses and word indexes that are written as numbers in an engine.
pub fn literals(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for engine in engines(project) {
        for source in &engine.sources {
            if source.path.contains("/layout") {
                continue;
            }
            source.each(&mut |tokens| {
                let line = tokens[0].span().start().line;
                if let Some(call) = place(tokens).filter(|_| !source.in_test(line)) {
                    let what = format!("`{call}` with a number; name the place in `layout.rs`");
                    findings.push(Finding::new(&source.path, line, what));
                }
            });
        }
    }
    findings
}

/// Returns the call at the head of `tokens` if it takes a place that is written as a number.
fn place(tokens: &[TokenTree]) -> Option<&'static str> {
    match tokens {
        [TokenTree::Ident(ty), a, b, TokenTree::Ident(name), arguments, ..]
            if ty == "Addr" && is_punct(a, ':') && is_punct(b, ':') && name == "new" =>
        {
            first_number(arguments).map(|_| "Addr::new")
        }
        [dot, TokenTree::Ident(name), arguments, ..] if is_punct(dot, '.') => {
            // Word 0 of a window is where the window is, which has a name already.
            first_number(arguments).filter(|number| number != "0")?;
            ["plus", "load", "load_relaxed"].into_iter().find(|call| name == call)
        }
        _ => None,
    }
}

/// Returns the first argument of a call if it is an integer and nothing more.
fn first_number(arguments: &TokenTree) -> Option<String> {
    let TokenTree::Group(group) = arguments else { return None };
    let mut inside = group.stream().into_iter();
    let TokenTree::Literal(number) = inside.next()? else { return None };
    let is_alone = inside.next().is_none_or(|next| is_punct(&next, ','));
    let text = number.to_string();
    (is_alone && text.starts_with(|c: char| c.is_ascii_digit())).then_some(text)
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}
