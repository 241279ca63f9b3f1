//! Promises: tests that are named after some, `p06_p07_...` after the promises P6 and P7.

use proc_macro2::{Ident, TokenTree};

use crate::{Finding, Project};

/// How many promises there are.
pub const COUNT: usize = 16;

/// A test that is named after a promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Number of the promise.
    pub promise: usize,
    /// Path of the file.
    pub path: String,
    /// Name of the test.
    pub test: String,
    /// Line of the test.
    pub line: usize,
    /// Whether `cargo test` leaves it out, because it takes long.
    pub ignored: bool,
}

/// Returns every test that is named after a promise, in the order of the promises.
pub fn kept(project: &Project) -> Vec<Kept> {
    let mut all = Vec::new();
    for source in &project.sources {
        source.each(&mut |tokens| {
            let Some((name, ignored)) = test_at(tokens) else { return };
            let (line, test) = (name.span().start().line, name.to_string());
            let path = source.path.clone();
            let kept =
                |promise| Kept { promise, path: path.clone(), test: test.clone(), line, ignored };
            all.extend(promises(&test).map(kept));
        });
    }
    all.sort();
    all
}

/// Returns the name of the function whose attribute `#[test]` is at the head of `tokens`, and
/// whether it is ignored.
pub(super) fn test_at(tokens: &[TokenTree]) -> Option<(&Ident, bool)> {
    let [_, TokenTree::Group(attribute), ..] = tokens else { return None };
    if attribute.stream().to_string() != "test" {
        return None;
    }
    let (mut rest, mut ignored) = (tokens, false);
    while let [TokenTree::Punct(hash), TokenTree::Group(attribute), tail @ ..] = rest {
        if hash.as_char() != '#' {
            return None;
        }
        ignored |= attribute.stream().to_string().starts_with("ignore");
        rest = tail;
    }
    match rest {
        [TokenTree::Ident(keyword), TokenTree::Ident(name), ..] if keyword == "fn" => {
            Some((name, ignored))
        }
        _ => None,
    }
}

/// Returns 4 for `p04_sync_makes_durable`, and 6 and 7 for `p06_p07_damage_is_noticed`.
fn promises(test: &str) -> impl Iterator<Item = usize> {
    let number = |part: &str| {
        let digits = part.strip_prefix('p')?;
        (digits.len() == 2).then(|| digits.parse().ok()).flatten()
    };
    test.split('_').map_while(number)
}

/// Finds tests that are named after a promise that nobody made.
pub fn numbers(project: &Project) -> Vec<Finding> {
    let kept = kept(project);
    let wrong = kept.iter().filter(|kept| !(1..=COUNT).contains(&kept.promise));
    let finding = |kept: &Kept| {
        let what =
            format!("`{}` is named after a promise that is not in docs/promises.md", kept.test);
        Finding::new(&kept.path, kept.line, what + "; rename it")
    };
    wrong.map(finding).collect()
}
