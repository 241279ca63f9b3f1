//! The module paths that a file names: `use` items and paths in code, macros included.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Source;

/// A path that a file names, from the root of its crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The segments; the last one of a glob is `*`.
    pub path: Vec<String>,
    /// Line, counted from 1.
    pub line: usize,
}

/// Returns every path in `source` that begins with `crate`, `self` or `super`, resolved.
///
/// `module` is the path of the file itself. Test modules are passed over.
pub fn named(source: &Source, module: &[String]) -> Vec<Named> {
    let mut reader = Reader { source, found: Vec::new() };
    reader.read(&source.tokens, &mut module.to_vec());
    reader.found
}

struct Reader<'a> {
    source: &'a Source,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: &TokenStream, module: &mut Vec<String>) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut index = 0;
        while index < tokens.len() {
            let rest = &tokens[index..];
            if let Some((name, body)) = inline_module(rest) {
                module.push(name);
                self.read(&body, module);
                module.pop();
                index += 3;
            } else if let Some(first) = root(rest) {
                let behind_path = index > 0 && is_punct(&tokens[index - 1], ':');
                if !behind_path {
                    let base = resolve(module, &first);
                    self.path(&rest[1..], base);
                }
                index += 1;
            } else {
                if let TokenTree::Group(group) = &tokens[index] {
                    self.read(&group.stream(), module);
                }
                index += 1;
            }
        }
    }

    /// Follows `:: segment :: segment`, and `:: { a, b::c }` into every branch.
    fn path(&mut self, tokens: &[TokenTree], mut path: Vec<String>) {
        let mut rest = tokens;
        let mut line = 0;
        while let [a, b, next, tail @ ..] = rest {
            if !(is_punct(a, ':') && is_punct(b, ':')) {
                break;
            }
            line = next.span().start().line;
            match next {
                TokenTree::Ident(name) if name == "super" => drop(path.pop()),
                TokenTree::Ident(name) if name == "self" => {}
                TokenTree::Ident(name) => path.push(name.to_string()),
                TokenTree::Punct(star) if star.as_char() == '*' => path.push("*".into()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    return self.branches(&group.stream(), &path);
                }
                _ => break,
            }
            rest = tail;
        }
        if line > 0 && !self.source.in_test(line) {
            self.found.push(Named { path, line });
        }
    }

    fn branches(&mut self, tokens: &TokenStream, path: &[String]) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        for branch in tokens.split(|token| is_punct(token, ',')) {
            let Some(first) = branch.first() else { continue };
            // `a::b` is read as `::a::b`: the two colons in front are made up.
            let colon = TokenTree::Punct(proc_macro2::Punct::new(':', proc_macro2::Spacing::Joint));
            let mut whole = vec![colon.clone(), colon];
            whole.extend_from_slice(branch);
            if is_punct(first, ':') {
                continue;
            }
            self.path(&whole, path.to_vec());
        }
    }
}

fn root(tokens: &[TokenTree]) -> Option<String> {
    let [TokenTree::Ident(name), colon, ..] = tokens else { return None };
    let is_root = name == "crate" || name == "super" || name == "self";
    (is_root && is_punct(colon, ':')).then(|| name.to_string())
}

fn resolve(module: &[String], first: &str) -> Vec<String> {
    match first {
        "crate" => Vec::new(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        _ => module.to_vec(),
    }
}

fn inline_module(tokens: &[TokenTree]) -> Option<(String, TokenStream)> {
    let [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Group(body), ..] = tokens
    else {
        return None;
    };
    let is_module = keyword == "mod" && body.delimiter() == Delimiter::Brace;
    is_module.then(|| (name.to_string(), body.stream()))
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_module_is_resolved() {
        // Fails if a group, a macro, an inline module or a second `super` hid an import.
        let text = "use super::layout::{A, self, deep::B};\nuse crate::common::*;\n\
                    fn f() { assert!(super::ops::g() == 1); self::h(); }\n\
                    mod inner { fn k() { super::super::resize::go(); } }\n\
                    pub(crate) fn h() { self.x(); super_::y(); a::super::z; }\n\
                    #[cfg(test)]\nmod tests { use super::super::ops; }\n";
        let source = Source::parse("src/demo/setup.rs", text).unwrap();
        let module = ["demo".to_string(), "setup".to_string()];
        let found: Vec<_> =
            named(&source, &module).iter().map(|n| (n.line, n.path.join("::"))).collect();
        let expected = [
            (1, "demo::layout::A"),
            (1, "demo::layout"),
            (1, "demo::layout::deep::B"),
            (2, "common::*"),
            (3, "demo::ops::g"),
            (3, "demo::setup::h"),
            (4, "demo::resize::go"),
        ];
        assert_eq!(found, expected.map(|(line, path)| (line, path.to_string())));
    }
}
