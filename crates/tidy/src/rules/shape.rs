//! Shape: the first line, the width, the length of files and of functions.

use proc_macro2::Span;
use syn::visit::Visit;

use crate::{Finding, Project, Source};

/// Widest line. Unit: columns.
const COLUMNS: usize = 100;

/// Widest line of a table that rustfmt is told to leave alone. Unit: columns.
const TABLE_COLUMNS: usize = 130;

/// Longest file without its tests. Unit: lines.
const FILE_LINES: usize = 600;

/// Longest function, from `fn` to its closing brace. Unit: lines.
const FUNCTION_LINES: usize = 70;

/// Finds files that do not begin with the one idea they hold.
pub fn first_line(project: &Project) -> Vec<Finding> {
    let what = "the first line is no `//! ...`; say the one idea of the file there";
    let sources = project.sources.iter();
    let bare = sources.filter(|source| !source.text.starts_with("//! "));
    bare.map(|source| Finding::new(&source.path, 1, what)).collect()
}

/// Finds lines that are too wide.
pub fn columns(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.tree.texts() {
        let is_bound = [".rs", "Cargo.toml"].iter().any(|ending| path.ends_with(ending))
            || path.starts_with(".ci/");
        if !is_bound {
            continue;
        }
        let tables = project.source(path).map(Source::set_by_hand).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            let in_table = tables.iter().any(|lines| lines.contains(&(index + 1)));
            let most = if in_table { TABLE_COLUMNS } else { COLUMNS };
            let width = line.chars().count();
            if width > most && !is_row_of_documentation(line) {
                let what = format!("{width} columns; break the line at {most}");
                findings.push(Finding::new(path, index + 1, what));
            }
        }
    }
    findings
}

/// A row of a table cannot be broken.
fn is_row_of_documentation(line: &str) -> bool {
    let line = line.trim_start();
    ["//! |", "/// |"].iter().any(|start| line.starts_with(start)) && line.ends_with('|')
}

/// Finds files that are too long.
pub fn file_length(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in project.sources.iter().filter(|source| !source.is_test()) {
        let lines = source.lines_without_tests();
        if lines > FILE_LINES {
            let what = format!("{lines} lines without tests; split it into files of one idea");
            findings.push(Finding::new(&source.path, FILE_LINES, what));
        }
    }
    findings
}

/// Finds functions that are too long.
pub fn function_length(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        let mut functions = Functions { path: &source.path, findings: &mut findings };
        functions.visit_file(&source.syntax);
    }
    findings
}

struct Functions<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.fn_token.span.start().line;
        let end: Span = body.brace_token.span.close();
        let lines = end.end().line - start + 1;
        if lines > FUNCTION_LINES {
            let name = &signature.ident;
            let what = format!(
                "`{name}` has {lines} lines; give its parts names, {FUNCTION_LINES} \
                                are the most"
            );
            self.findings.push(Finding::new(self.path, start, what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.measure(&item.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}
