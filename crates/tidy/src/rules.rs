//! The rules, as a table: what each one says, and the function that checks it.

mod addresses;
mod circles;
mod citations;
mod constants;
mod dependencies;
mod documents;
mod edges;
mod exceptions;
mod failing;
mod fence;
mod judged;
pub mod promises;
mod readme;
pub mod rooms;
mod shape;
mod sites;
mod words;

use crate::{Finding, Project};

/// One rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name, by which a planted violation refers to it.
    pub name: &'static str,
    /// What it says; `docs/style.md` prints it.
    pub says: &'static str,
    /// Returns everything that is against it.
    pub check: fn(&Project) -> Vec<Finding>,
}

/// Every rule.
pub const ALL: &[Rule] = &[
    Rule {
        name: "parses",
        says: "Every Rust file and every manifest can be parsed.",
        check: |project| project.unreadable.clone(),
    },
    Rule {
        name: "first-line",
        says: "The first line of a Rust file is `//!` and says the file's one idea.",
        check: shape::first_line,
    },
    Rule {
        name: "columns",
        says: "A line of Rust, of a manifest or of shell has at most 100 columns, 130 in a table \
               that rustfmt is told to skip; a row of a table in documentation may be longer.",
        check: shape::columns,
    },
    Rule {
        name: "file-length",
        says: "A Rust file has at most 600 lines, tests apart.",
        check: shape::file_length,
    },
    Rule {
        name: "function-length",
        says: "A function has at most 70 lines.",
        check: shape::function_length,
    },
    Rule {
        name: "open-ends",
        says: "No comment or text marks work to be done without an issue number, and nothing is \
               a stub.",
        check: words::open_ends,
    },
    Rule {
        name: "unsafe-fence",
        says: "`unsafe` stands only below `crates/pmem/src/sys/`.",
        check: fence::unsafe_code,
    },
    Rule {
        name: "lints-in-force",
        says: "Every crate takes the workspace's lints, which forbid unsafe code; `pmem` differs \
               in that one line, for its module `sys`.",
        check: fence::lints,
    },
    Rule {
        name: "rooms",
        says: "An engine's folder holds the rooms every engine has and the mechanisms its section \
               table names; a room that is absent is accounted for.",
        check: rooms::rooms,
    },
    Rule {
        name: "arrows",
        says: "A room imports only the rooms below it; `check.rs` imports `layout.rs`, the hash \
               function and what checks share; no engine names another.",
        check: rooms::arrows,
    },
    Rule {
        name: "circles",
        says: "The rooms of an engine do not import one another in a circle.",
        check: circles::none,
    },
    Rule {
        name: "judged",
        says: "The tests of an engine call every judge of the testkit.",
        check: judged::by_every_judge,
    },
    Rule {
        name: "constants",
        says: "A number in a `layout.rs` has a unit and a source in its documentation.",
        check: constants::documented,
    },
    Rule {
        name: "addresses",
        says: "An engine writes no place on the medium as a number outside `layout.rs`.",
        check: addresses::literals,
    },
    Rule {
        name: "sites",
        says: "The name of a site is unique and reads `part/operation/what`.",
        check: sites::names,
    },
    Rule {
        name: "exceptions",
        says: "A test that an engine's file of exceptions names is in the engine's folder.",
        check: exceptions::tested,
    },
    Rule {
        name: "edges",
        says: "A crate depends only on the crates that `ARCHITECTURE.md` allows it.",
        check: edges::allowed,
    },
    Rule {
        name: "dependencies",
        says: "Every direct dependency has its line in `docs/decisions/0006-dependencies.md`, and \
               every line its dependency.",
        check: dependencies::decided,
    },
    Rule {
        name: "links",
        says: "A link inside the repository leads somewhere.",
        check: documents::links,
    },
    Rule {
        name: "paths",
        says: "A path to a file, in a document or a comment, names a file that exists.",
        check: documents::paths,
    },
    Rule {
        name: "hidden-lines",
        says: "A program in a document has no line that begins with `# `: only rustdoc hides it.",
        check: documents::hidden_lines,
    },
    Rule {
        name: "citations",
        says: "A comment cites no row by letter and number but a promise, and says that it is one.",
        check: citations::resolvable,
    },
    Rule {
        name: "set-up",
        says: "The README sets up with exactly two commands, and `.ci/run` runs the second.",
        check: readme::set_up,
    },
    Rule {
        name: "failing",
        says: "The first line of a test is a comment: it says how the test could fail.",
        check: failing::said,
    },
    Rule {
        name: "promises",
        says: "A test that is named after a promise names one of P1 to P16.",
        check: promises::numbers,
    },
];
