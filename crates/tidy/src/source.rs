//! One Rust file, parsed: its syntax, its tokens, and its comments with their lines.

use core::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, LineColumn, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;

use crate::Finding;

/// One line of a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Line in the file, counted from 1.
    pub line: usize,
    /// The text, with its slashes.
    pub text: String,
}

/// One Rust file, parsed.
#[derive(Clone)]
pub struct Source {
    /// Path from the root of the repository.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The syntax tree. It ends at the borders of macro calls; [`Source::tokens`] do not.
    pub syntax: syn::File,
    /// All tokens.
    pub tokens: TokenStream,
    /// All comments, documentation included.
    pub comments: Vec<Comment>,
    tests: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Parses a file.
    ///
    /// # Errors
    /// A finding at the place where the parser stopped.
    pub fn parse(path: &str, text: &str) -> Result<Source, Finding> {
        let wrong = |place: LineColumn, why: String| {
            Finding::new(path, place.line, format!("cannot be parsed ({why}); make it compile"))
        };
        let tokens: TokenStream = text
            .parse()
            .map_err(|e: proc_macro2::LexError| wrong(e.span().start(), e.to_string()))?;
        let syntax: syn::File =
            syn::parse2(tokens.clone()).map_err(|e| wrong(e.span().start(), e.to_string()))?;
        let mut tests = Vec::new();
        test_modules(&syntax.items, &mut tests);
        let comments = comments(text, &tokens);
        Ok(Source { path: path.into(), text: text.into(), syntax, tokens, comments, tests })
    }

    /// Returns whether the whole file is a test or a benchmark.
    pub fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "examples", "fuzz_targets"];
        let mut parts = self.path.split('/').rev();
        let name = parts.next().unwrap_or_default();
        name == "tests.rs" || parts.any(|part| folders.contains(&part))
    }

    /// Returns whether a line belongs to a test.
    pub fn in_test(&self, line: usize) -> bool {
        self.is_test() || self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the lines of every item that rustfmt is told to leave as it is: tables.
    pub fn set_by_hand(&self) -> Vec<RangeInclusive<usize>> {
        let mut all = Vec::new();
        self.each(&mut |tokens| {
            let [hash, TokenTree::Group(attribute), ..] = tokens else { return };
            if attribute.stream().to_string() != "rustfmt :: skip" {
                return;
            }
            let is_end = |token: &&TokenTree| match token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                _ => false,
            };
            let end = tokens.iter().find(is_end).unwrap_or(hash);
            all.push(hash.span().start().line..=end.span().end().line);
        });
        all
    }

    /// Returns how many lines the file has without its test modules.
    pub fn lines_without_tests(&self) -> usize {
        let tests: usize = self.tests.iter().map(|lines| lines.clone().count()).sum();
        self.text.lines().count() - tests
    }

    /// Calls `visit` at every token, with that token and those that follow it in its group.
    ///
    /// Documentation is passed over.
    pub fn each(&self, visit: &mut dyn FnMut(&[TokenTree])) {
        each(&self.tokens, visit);
    }
}

fn each(tokens: &TokenStream, visit: &mut dyn FnMut(&[TokenTree])) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        visit(&tokens[index..]);
        match token {
            TokenTree::Group(group) if !says(group) => each(&group.stream(), visit),
            _ => {}
        }
    }
}

/// Returns whether a group is `[doc = ...]`.
fn says(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

fn test_modules(items: &[syn::Item], tests: &mut Vec<RangeInclusive<usize>>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let Some((_, inner)) = &module.content else { continue };
        if module.attrs.iter().any(is_cfg_test) {
            let span = module.span();
            tests.push(span.start().line..=span.end().line);
        } else {
            test_modules(inner, tests);
        }
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && list.tokens.to_string() == "test"
}

/// Comments are what lies between the tokens and is not white space; documentation is a token that
/// begins with a slash.
fn comments(text: &str, tokens: &TokenStream) -> Vec<Comment> {
    let mut code = vec![false; text.len()];
    mark(text, tokens, &mut code);
    let mut comments = Vec::new();
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let gap: Vec<u8> = (line.bytes().enumerate())
            .map(|(column, byte)| if code[start + column] { b' ' } else { byte })
            .collect();
        // Marks end at token borders, so the gap is as sound as the text.
        let gap = String::from_utf8_lossy(&gap).trim().to_string();
        if !gap.is_empty() {
            comments.push(Comment { line: number + 1, text: gap });
        }
        start += line.len();
    }
    comments
}

fn mark(text: &str, tokens: &TokenStream, code: &mut [bool]) {
    for token in tokens.clone() {
        match token {
            // The brackets that stand for documentation are its first and its last byte.
            TokenTree::Group(group) if is_documentation(&text[group.span().byte_range()]) => {}
            TokenTree::Group(group) => {
                mark_one(text, group.span_open(), code);
                mark_one(text, group.span_close(), code);
                mark(text, &group.stream(), code);
            }
            leaf => mark_one(text, leaf.span(), code),
        }
    }
}

fn mark_one(text: &str, span: Span, code: &mut [bool]) {
    let range = span.byte_range();
    if !is_documentation(&text[range.clone()]) {
        code[range].fill(true);
    }
}

fn is_documentation(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments_of(text: &str) -> Vec<(usize, String)> {
        let source = Source::parse("a.rs", text).unwrap();
        source.comments.into_iter().map(|comment| (comment.line, comment.text)).collect()
    }

    #[test]
    fn only_comments_are_comments() {
        // Fails if a string, a raw string or a character were taken for a comment, or a comment
        // behind code were lost.
        let text = "//! One.\nfn f() {\n    let a = \"// no\"; // two\n\
                    let b = r#\"/* \"no\" */\"#;\nlet c = '/'; /* three\n four */\n}\n";
        let expected = [(1, "//! One."), (3, "// two"), (5, "/* three"), (6, "four */")];
        let expected: Vec<_> = expected.map(|(line, text)| (line, text.to_string())).into();
        assert_eq!(comments_of(text), expected);
    }

    #[test]
    fn comments_of_every_script_are_read() {
        // Fails if byte and character offsets were mixed up.
        assert_eq!(comments_of("fn f() { \"äöü…\"; } // é"), [(1, "// é".to_string())]);
    }

    #[test]
    fn a_table_set_by_hand_ends_with_its_item() {
        // Fails if the attribute freed more of the file than the item it stands on.
        let text = "//! A.\n#[rustfmt::skip]\nconst A: &[u8] = &[\n    1,\n];\nfn f() {}\n";
        assert_eq!(Source::parse("a.rs", text).unwrap().set_by_hand(), [2..=5]);
    }

    #[test]
    fn test_modules_are_known_by_line() {
        // Fails if the length of a file counted its tests, or a rule judged them.
        let text = "//! A.\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let source = Source::parse("crates/a/src/a.rs", text).unwrap();
        assert!(!source.in_test(2) && source.in_test(5));
        assert_eq!(source.lines_without_tests(), 2);
        assert!(Source::parse("crates/a/tests/a.rs", text).unwrap().in_test(2));
    }
}
