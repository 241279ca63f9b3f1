//! The porting page names what there is.
#![allow(clippy::unwrap_used, reason = "this is a test, though not all in a test function")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the names of the functions in a code span: what stands before a parenthesis, or is the
/// last part of a path.
fn names(span: &str) -> Vec<&str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut calls: Vec<&str> = span
        .match_indices('(')
        .map(|(at, _)| span[..at].rsplit(|character| !is_name(character)).next().unwrap())
        .collect();
    if calls.is_empty() {
        calls.push(span.rsplit(['.', ':']).next().unwrap());
    }
    calls
}

/// Appends all sources of a folder.
fn read(folder: &Path, text: &mut String) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_name_of_the_porting_page_exists() {
    // Fails if the page promises a function that was renamed or never was.
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/porting.md")).unwrap();
    let mut source = String::new();
    read(&root.join("crates/store/src"), &mut source);
    let exists = |name: &str| {
        ["pub fn ", "pub struct "].iter().any(|kind| {
            let declared = [*kind, name].concat();
            source.match_indices(&declared).any(|(at, _)| {
                let next = source[at + declared.len()..].chars().next();
                !next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
            })
        })
    };
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Idea"));
    let mut found = BTreeSet::new();
    for row in rows {
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
        for span in cell.split('`').skip(1).step_by(2).filter(|span| *span != "Db") {
            for name in names(span) {
                assert!(exists(name), "there is no `{name}`: {row}");
                found.insert(name.to_owned());
            }
        }
    }
    assert!(found.len() > 50, "the table was read: {found:?}");
}
