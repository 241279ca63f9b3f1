//! Citations: a comment refers to what the repository holds, not to rows of notes that it does not.

use crate::{Finding, Project};

/// How many promises there are.
const PROMISES: u32 = 16;

/// Finds comments that cite a row by a letter and a number. Of promises, which stand in
/// `docs/promises.md`, the comment says that they are: "promise P7", "promises P1 and P2".
pub fn resolvable(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        let mut of_promises = false;
        for comment in &source.comments {
            for word in comment.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
                let is_row = row(word);
                let is_link = is_row.is_none() && !["and", "to", ""].contains(&word);
                if is_link {
                    of_promises = word.eq_ignore_ascii_case("promise")
                        || word.eq_ignore_ascii_case("promises");
                }
                let Some((kind, number)) = is_row else { continue };
                let is_promise = kind == "P" && of_promises && (1..=PROMISES).contains(&number);
                if !is_promise {
                    let what = format!(
                        "cites `{word}`, which is in no document here; say what it says, or \
                         \"promise {word}\" if it is one"
                    );
                    findings.push(Finding::new(&source.path, comment.line, what));
                }
            }
        }
    }
    findings
}

/// Returns kind and number of a citation: a letter, or that of a trap behind a `T-`, and a number.
fn row(word: &str) -> Option<(&str, u32)> {
    let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
    let kind = &word[..word.len() - digits.len()];
    let is_trap = kind.len() == 3 && kind.starts_with("T-");
    let is_listed = ["B", "M", "P"].contains(&kind) || is_trap;
    let number = digits.parse().ok().filter(|_| digits.len() <= 2)?;
    is_listed.then_some((kind, number))
}
