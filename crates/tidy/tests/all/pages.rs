//! The printed pages: they hold what the code says, and a stale or incomplete one is found.

use everhash_pmem::pool::Header;
use everhash_tidy::pages::{self, Chapter};
use everhash_tidy::{Project, Tree};

const POOL: (&str, &str) = (
    "crates/pmem/src/pool.rs",
    "//! P.\ncrate::ruler! {\n    /// A header.\n    pub struct Header [512] {}\n}\n",
);

fn chapters() -> Vec<Chapter> {
    let path = "crates/pmem/src/pool.rs";
    vec![Chapter { title: "The pool", path: path.to_owned(), rulers: vec![Header::RULER] }]
}

fn printed(files: &[(&str, &str)], path: &str) -> String {
    let project = Project::parse(Tree::of(files));
    let mut pages = pages::print(&project, &chapters()).into_iter();
    pages.find(|page| page.path == path).expect("the page is printed").text
}

/// Returns the findings after the printed pages were written into the tree and `change` was made.
fn compared(change: impl FnOnce(&mut Vec<(&'static str, String)>)) -> Vec<String> {
    let project = Project::parse(Tree::of(&[POOL]));
    let mut files: Vec<_> = pages::print(&project, &chapters())
        .into_iter()
        .map(|page| (page.path, page.text))
        .chain([(POOL.0, POOL.1.to_string())])
        .collect();
    change(&mut files);
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let project = Project::parse(Tree::of(&files));
    pages::compare(&project, &chapters()).iter().map(ToString::to_string).collect()
}

#[test]
fn a_fresh_page_is_no_finding_and_a_stale_one_is() {
    // Fails if a changed table could go unnoticed, or a printed one never matched.
    assert_eq!(compared(|_| {}), [""; 0]);
    let stale = compared(|files| {
        let (_, text) = files.iter_mut().find(|file| file.0 == "docs/format.md").unwrap();
        *text = text.replace("| 16 | 8 |", "| 24 | 8 |");
    });
    assert_eq!(stale.len(), 1);
    let row = "docs/format.md:21: differs from what the code says";
    assert!(stale[0].starts_with(row), "{}", stale[0]);
}

#[test]
fn a_ruler_that_is_in_no_chapter_is_found() {
    // Fails if an engine could lay out bytes that no page shows.
    let more = compared(|files| {
        let text = "//! L.\nruler! {\n    /// B.\n    pub struct Bucket [64] {}\n}\n";
        files.push(("crates/engines/src/demo/layout.rs", text.into()));
    });
    assert!(more.iter().any(|finding| {
        finding.starts_with("crates/engines/src/demo/layout.rs:4: the ruler `Bucket`")
    }));
}

#[test]
fn the_format_holds_every_field() {
    // Fails if a field, its place or its meaning were left out, or a bar broke the table.
    let page = printed(&[POOL], "docs/format.md");
    for field in Header::RULER.fields {
        let row = format!("| {} | {} | `{}` | ", field.at, field.words * 8, field.name);
        assert!(page.contains(&row), "{row}");
    }
    assert!(page.contains(r"key bytes << 32 \| value bytes"));
    assert!(page.contains("One of the two header slots"));
}

#[test]
fn a_promise_without_a_test_says_so() {
    // Fails if the table showed a promise as kept that no test stands for.
    let test = "//! T.\n#[test]\nfn p04_sync_outlives_power() {}\n\nfn p05_is_no_test() {}\n";
    let page = printed(&[("crates/a/tests/a.rs", test)], "docs/promises.md");
    assert!(page.contains("| P4 | `p04_sync_outlives_power` in `crates/a/tests/a.rs` |"));
    assert!(page.contains("| P5 | none yet |") && page.contains("| P16 | none yet |"));
}

#[test]
fn what_is_written_by_hand_stays() {
    // Fails if printing a part of a page lost or doubled the rest of it.
    let hand = "# Style\n\nBefore.\n\n<!-- printed from the code: begin -->\nOutdated.\n\
                <!-- printed from the code: end -->\n\nAfter.\n";
    let once = printed(&[("docs/style.md", hand)], "docs/style.md");
    assert!(once.starts_with("# Style\n\nBefore.\n") && once.ends_with("\nAfter.\n"));
    assert!(!once.contains("Outdated") && once.contains("| `unsafe-fence` |"));
    assert_eq!(printed(&[("docs/style.md", &once)], "docs/style.md"), once);
}

#[test]
fn the_papers_page_holds_an_engines_tables() {
    // Fails if a section or a departure that `mod.rs` states were not on the page.
    let face = "//! Demo: one bucket.\n//!\n//! Doe: \"A bucket\", 2020.\n//!\n\
                //! | Section | File |\n//! |---|---|\n//! | 3.1 | `token.rs` |\n//!\n\
                //! | The paper says | We do | Why |\n//! |---|---|---|\n//! | a \\| b | c | d |\n";
    let page = printed(&[("crates/engines/src/demo/mod.rs", face)], "docs/papers.md");
    for part in
        ["## demo", "Doe: \"A bucket\", 2020.", "| 3.1 | `token.rs` |", r"| a \| b | c | d |"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
}
