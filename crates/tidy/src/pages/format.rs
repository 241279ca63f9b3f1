//! `docs/format.md`: every byte that lies on a medium, from the rulers.

use core::fmt::Write;

use everhash_pmem::{Ruler, WORD};
use proc_macro2::TokenTree;

use super::{Chapter, cell};
use crate::{Finding, Project};

const HEAD: &str = "\
# The format

Every record that lies on a medium, as its ruler declares it. Offsets and lengths are in bytes;
every field is a sequence of 8-byte words in little-endian order. This page is printed from the
code: a wrong offset does not compile, and a page that differs fails the tests. To change the
format, change the ruler, raise the version in the pool's header, and run
`UPDATE=1 cargo test -p everhash-tidy`.
";

/// Prints the page.
pub fn print(chapters: &[Chapter]) -> String {
    let mut page = String::from(HEAD);
    for chapter in chapters {
        let _ = write!(page, "\n## {}\n\nDeclared in `{}`.\n", chapter.title, chapter.path);
        for ruler in &chapter.rulers {
            record(&mut page, ruler);
        }
    }
    page
}

fn record(page: &mut String, ruler: &Ruler) {
    let about: Vec<&str> = ruler.about.lines().map(str::trim).collect();
    let _ = write!(page, "\n### {}: {} bytes\n\n", ruler.name, ruler.bytes);
    let _ = write!(page, "{}\n\n", plain(&about.join("\n")));
    page.push_str("| Offset | Bytes | Field | Meaning |\n|---:|---:|---|---|\n");
    for field in ruler.fields {
        let bytes = field.words as u64 * WORD;
        let meaning = cell(field.meaning);
        let _ = writeln!(page, "| {} | {bytes} | `{}` | {meaning} |", field.at, field.name);
    }
}

/// Turns links to items into their names: they lead nowhere outside the documentation.
fn plain(about: &str) -> String {
    about.replace("[`", "`").replace("`]", "`")
}

/// The crates whose records lie on the media of users; the judges' own engine is for tests alone.
const FORMATS: [&str; 2] = ["crates/pmem/src/", "crates/engines/src/"];

/// Finds rulers in the sources that no chapter lists.
pub fn unlisted(project: &Project, chapters: &[Chapter]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_format = |path: &str| FORMATS.iter().any(|folder| path.starts_with(folder));
    for source in project.sources.iter().filter(|source| is_format(&source.path)) {
        let chapter = chapters.iter().find(|chapter| chapter.path == source.path);
        source.each(&mut |tokens| {
            let Some((name, line)) = declared(tokens) else { return };
            let is_listed = chapter
                .is_some_and(|chapter| chapter.rulers.iter().any(|ruler| ruler.name == name));
            if !is_listed && !source.in_test(line) {
                let what = format!(
                    "the ruler `{name}` is not printed in docs/format.md; add it to \
                                    `RULERS` of its layout.rs"
                );
                findings.push(Finding::new(&source.path, line, what));
            }
        });
    }
    findings
}

/// Returns name and line of the ruler that a call of `ruler!` at the head of `tokens` declares.
fn declared(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let [TokenTree::Ident(call), TokenTree::Punct(mark), TokenTree::Group(body), ..] = tokens
    else {
        return None;
    };
    if call != "ruler" || mark.as_char() != '!' {
        return None;
    }
    let mut inside = body.stream().into_iter();
    inside.find(|token| matches!(token, TokenTree::Ident(word) if word == "struct"))?;
    let name = inside.next()?;
    Some((name.to_string(), name.span().start().line))
}
