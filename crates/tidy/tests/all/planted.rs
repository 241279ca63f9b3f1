//! Every rule finds the violation that is planted for it, and nothing in the same tree without it.

use everhash_tidy::{Finding, Project, Tree, rules};

/// A file of a planted tree: path and text.
type File = (&'static str, &'static str);

/// A violation: the rule that must find it, where, and by which words.
struct Planted {
    rule: &'static str,
    /// The tree with the violation.
    files: &'static [File],
    /// The finding begins with this place, and contains these words.
    place: &'static str,
    words: &'static str,
    /// The nearest tree without the violation: these files replace those of the same path.
    cured: &'static [File],
}

fn findings(rule: &str, files: &[File]) -> Vec<Finding> {
    let rule = rules::ALL.iter().find(|known| known.name == rule).expect("the rule exists");
    (rule.check)(&Project::parse(Tree::of(files)))
}

fn cured(planted: &Planted) -> Vec<File> {
    let kept = planted.files.iter().filter(|(path, _)| {
        let replaced = planted.cured.iter().any(|(other, _)| other == path);
        !replaced
    });
    kept.chain(planted.cured).copied().collect()
}

#[test]
fn every_rule_finds_what_is_planted_for_it() {
    // Fails if a rule is blind, or points at another place than the one that is wrong.
    for planted in PLANTED {
        let found = findings(planted.rule, planted.files);
        let shown: Vec<String> = found.iter().map(Finding::to_string).collect();
        let hit = |text: &&String| text.starts_with(planted.place) && text.contains(planted.words);
        let rule = planted.rule;
        let (place, words) = (planted.place, planted.words);
        assert!(shown.iter().any(|text| hit(&text)), "{rule}: no {place} {words}: {shown:?}");
        assert_eq!(shown.len(), 1, "{rule}: one violation, one finding: {shown:?}");
    }
}

#[test]
fn no_rule_finds_anything_in_the_cured_tree() {
    // Fails if a rule cries wolf: it would be switched off and then find nothing.
    for planted in PLANTED {
        let found = findings(planted.rule, &cured(planted));
        assert!(found.is_empty(), "{}: {}", planted.rule, found[0]);
    }
}

#[test]
fn every_rule_has_a_planted_violation() {
    // Fails if a rule is added that nothing shows to work.
    let measured = ["columns", "file-length", "function-length"];
    for rule in rules::ALL.iter().filter(|rule| !measured.contains(&rule.name)) {
        let is_planted = PLANTED.iter().any(|planted| planted.rule == rule.name);
        assert!(is_planted, "plant a violation of the rule `{}`", rule.name);
    }
}

const LAYOUT: File = ("crates/engines/src/demo/layout.rs", "//! L.\n");

/// A `mod.rs` with both tables, the rest accounted for.
const FACE: File = (
    "crates/engines/src/demo/mod.rs",
    "//! Demo.\n//!\n//! | Section | File |\n//! |---|---|\n//! | 3.1 | `token.rs` |\n//!\n\
     //! | The paper says | We do | Why |\n//! |---|---|---|\n//! | a | b | c |\n//!\n\
     //! There is no `setup.rs`, no `concurrency.rs`, no `resize.rs`, no `ops.rs`,\n\
     //! no `state.rs`, no `recovery.rs`, no `table.rs`, no `check.rs` and no `tests.rs`.\n",
);

const TOKEN: File = ("crates/engines/src/demo/token.rs", "//! T.\nuse super::layout::A;\n");

const OTHER: File = (
    "crates/engines/src/other/mod.rs",
    "//! Other.\n//!\n//! | Section | File |\n//! |---|---|\n//!\n\
     //! | The paper says | We do | Why |\n//! |---|---|---|\n",
);

const WORKSPACE: File =
    ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"deny\"\n");

const ALLOWED: File = (
    "ARCHITECTURE.md",
    "| Crate | May depend on | In its tests also |\n|---|---|---|\n\
     | `pmem` | nothing | |\n| `index` | `pmem` | `testkit` |\n",
);

const PLANTED: &[Planted] = &[
    Planted {
        rule: "parses",
        files: &[("crates/a/src/lib.rs", "//! A.\n\nfn f( {}\n")],
        place: "crates/a/src/lib.rs:3",
        words: "cannot be parsed",
        cured: &[("crates/a/src/lib.rs", "//! A.\n\nfn f() {}\n")],
    },
    Planted {
        rule: "parses",
        files: &[("crates/a/Cargo.toml", "[package\n")],
        place: "crates/a/Cargo.toml:1",
        words: "make cargo read it",
        cured: &[("crates/a/Cargo.toml", "[package]\n")],
    },
    Planted {
        rule: "first-line",
        files: &[("crates/a/src/lib.rs", "// A.\nfn f() {}\n")],
        place: "crates/a/src/lib.rs:1",
        words: "say the one idea",
        cured: &[("crates/a/src/lib.rs", "//! A.\nfn f() {}\n")],
    },
    Planted {
        rule: "open-ends",
        files: &[("docs/a.md", "# A\n\nTODO: more\n\nWe never write `TODO: x`.\n")],
        place: "docs/a.md:3",
        words: "without an issue",
        cured: &[("docs/a.md", "# A\n\nTODO #12: more\n")],
    },
    Planted {
        rule: "open-ends",
        files: &[("src/a.rs", "//! A.\nfn f() {\n    g(\"TODO\"); // FIXME soon\n}\n")],
        place: "src/a.rs:3",
        words: "FIXME without",
        cured: &[("src/a.rs", "//! A.\nfn f() {\n    g(\"TODO\"); // FIXME(#3) soon\n}\n")],
    },
    Planted {
        rule: "open-ends",
        files: &[("src/a.rs", "//! A.\nfn f() {\n    let t = \"todo!()\";\n    todo!()\n}\n")],
        place: "src/a.rs:4",
        words: "write the code",
        cured: &[("src/a.rs", "//! A.\nfn f() {\n    let t = \"todo!()\";\n}\n")],
    },
    Planted {
        rule: "unsafe-fence",
        files: &[
            ("crates/pmem/src/sys/map.rs", "//! M.\nfn f() { unsafe { g() } }\n"),
            (
                "crates/store/src/lib.rs",
                "//! S: `unsafe`.\nm! {\n    unsafe { g(\"unsafe\") }\n}\n",
            ),
        ],
        place: "crates/store/src/lib.rs:3",
        words: "move it there",
        cured: &[("crates/store/src/lib.rs", "//! S: `unsafe`.\nm! {\n    g(\"unsafe\")\n}\n")],
    },
    Planted {
        rule: "unsafe-fence",
        files: &[("crates/pmem/src/media.rs", "//! M.\n#[allow(unsafe_code)]\nmod sys;\n")],
        place: "crates/pmem/src/media.rs:2",
        words: "only crates/pmem/src/sys.rs may",
        cured: &[
            ("crates/pmem/src/media.rs", "//! M.\n"),
            ("crates/pmem/src/sys.rs", "//! S.\n#[allow(unsafe_code)]\nmod map;\n"),
        ],
    },
    Planted {
        rule: "lints-in-force",
        files: &[WORKSPACE, ("crates/store/Cargo.toml", "[package]\n\n[lints.rust]\n")],
        place: "crates/store/Cargo.toml:3",
        words: "workspace = true",
        cured: &[("crates/store/Cargo.toml", "[lints]\nworkspace = true\n")],
    },
    Planted {
        rule: "lints-in-force",
        files: &[WORKSPACE, ("crates/pmem/Cargo.toml", "[lints.rust]\nunsafe_code = \"deny\"\n")],
        place: "crates/pmem/Cargo.toml:1",
        words: "copy them",
        cured: &[(
            "crates/pmem/Cargo.toml",
            "[lints.rust]\nunsafe_code = \"deny\"\nmissing_docs = \"deny\"\n",
        )],
    },
    Planted {
        rule: "lints-in-force",
        files: &[("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n")],
        place: "Cargo.toml:1",
        words: "does not forbid",
        cured: &[WORKSPACE],
    },
    Planted {
        rule: "rooms",
        files: &[FACE, LAYOUT, TOKEN, ("crates/engines/src/demo/helpers.rs", "//! H.\n")],
        place: "crates/engines/src/demo/helpers.rs:1",
        words: "no room and no mechanism",
        cured: &[
            ("crates/engines/src/demo/helpers.rs", "//! H.\n"),
            (
                "crates/engines/src/demo/mod.rs",
                "//! Demo.\n//!\n//! | Section | File |\n//! |---|---|\n//! | 3.1 | `token.rs` |\n\
             //! | 3.2 | `helpers.rs` |\n//!\n//! | The paper says | We do |\n//! |---|---|\n//!\n\
             //! no `setup.rs` no `concurrency.rs` no `resize.rs` no `ops.rs` no `recovery.rs`\n\
             //! no `state.rs` no `table.rs`\n\
             //! no `check.rs` no `tests.rs`\n",
            ),
        ],
    },
    Planted {
        rule: "rooms",
        files: &[FACE, LAYOUT],
        place: "crates/engines/src/demo/mod.rs:5",
        words: "names `token.rs`, which is not there",
        cured: &[TOKEN],
    },
    Planted {
        rule: "rooms",
        files: &[FACE, TOKEN],
        place: "crates/engines/src/demo/mod.rs:1",
        words: "there is no `layout.rs`",
        cured: &[LAYOUT],
    },
    Planted {
        rule: "arrows",
        files: &[
            FACE,
            LAYOUT,
            (
                "crates/engines/src/demo/token.rs",
                "//! T.\nuse super::{layout::A, resize::{self, B}};\n",
            ),
            ("crates/engines/src/demo/resize.rs", "//! R.\nuse super::token::C;\n"),
        ],
        place: "crates/engines/src/demo/token.rs:2",
        words: "`token` imports `resize`",
        cured: &[("crates/engines/src/demo/token.rs", "//! T.\nuse super::layout::A;\n")],
    },
    Planted {
        rule: "arrows",
        files: &[
            FACE,
            LAYOUT,
            TOKEN,
            (
                "crates/engines/src/demo/check.rs",
                "//! C.\nuse super::layout::A;\nfn f() { crate::common::record::read(1) }\n",
            ),
        ],
        place: "crates/engines/src/demo/check.rs:3",
        words: "shares no code",
        cured: &[(
            "crates/engines/src/demo/check.rs",
            "//! C.\nuse super::layout::A;\nuse crate::common::hash::KeyedHash;\n",
        )],
    },
    Planted {
        rule: "arrows",
        files: &[
            FACE,
            LAYOUT,
            OTHER,
            ("crates/engines/src/demo/token.rs", "//! T.\nuse crate::other::Other;\n"),
        ],
        place: "crates/engines/src/demo/token.rs:2",
        words: "names the engine `other`",
        cured: &[("crates/engines/src/demo/token.rs", "//! T.\nuse crate::common::Other;\n")],
    },
    Planted {
        rule: "arrows",
        files: &[FACE, ("crates/engines/src/common/hash.rs", "//! H.\nuse crate::demo::layout;\n")],
        place: "crates/engines/src/common/hash.rs:2",
        words: "serves all and knows none",
        cured: &[("crates/engines/src/common/hash.rs", "//! H.\nuse super::record;\n")],
    },
    Planted {
        rule: "circles",
        files: &[
            FACE,
            ("crates/engines/src/demo/token.rs", "//! T.\nuse super::shard::Shard;\n"),
            ("crates/engines/src/demo/shard.rs", "//! S.\nuse super::log::Log;\n"),
            ("crates/engines/src/demo/log.rs", "//! L.\nuse super::token::{self, Token};\n"),
        ],
        place: "crates/engines/src/demo/mod.rs:1",
        words: "in a circle: log, shard, token",
        cured: &[("crates/engines/src/demo/log.rs", "//! L.\nuse super::layout::Line;\n")],
    },
    Planted {
        rule: "judged",
        files: &[
            FACE,
            (
                "crates/engines/src/demo/tests.rs",
                "//! T.\nuse everhash_testkit::crash::{Effort, judge};\n\
                 fn f() { all_forms::model(); all_forms::conformance(); all_forms::room();\n\
                 all_forms::schedules(); all_forms::threads(); hostile::judge(); }\n",
            ),
        ],
        place: "crates/engines/src/demo/tests.rs:1",
        words: "never calls `damage::judge`",
        cured: &[(
            "crates/engines/src/demo/tests.rs",
            "//! T.\nuse everhash_testkit::crash::{Effort, judge};\nuse everhash_testkit::damage;\n\
             fn f() { all_forms::model(); all_forms::conformance(); all_forms::room();\n\
             all_forms::schedules(); all_forms::threads(); damage::judge();\n\
             hostile::judge(); }\n",
        )],
    },
    Planted {
        rule: "constants",
        files: &[
            FACE,
            (
                "crates/engines/src/demo/layout.rs",
                "//! L.\n/// Slots. Unit: slots. Source: III-A.\nconst SLOTS: u64 = 3;\n\
             /// Bytes. Unit: bytes.\npub const SIZE: usize = 64;\nconst NAME: &str = \"demo\";\n",
            ),
        ],
        place: "crates/engines/src/demo/layout.rs:5",
        words: "`SIZE` has no `Source:`",
        cured: &[(
            "crates/engines/src/demo/layout.rs",
            "//! L.\n/// Bytes. Unit: bytes. Source: ours.\npub const SIZE: usize = 64;\n",
        )],
    },
    Planted {
        rule: "addresses",
        files: &[
            FACE,
            LAYOUT,
            (
                "crates/engines/src/demo/token.rs",
                "//! T.\nfn f() {\n    let at = Addr::new(8192);\n}\n",
            ),
        ],
        place: "crates/engines/src/demo/token.rs:3",
        words: "name the place in `layout.rs`",
        cured: &[(
            "crates/engines/src/demo/token.rs",
            "//! T.\nfn f() {\n    let at = Addr::new(layout::ROOT + 8);\n}\n",
        )],
    },
    Planted {
        rule: "addresses",
        files: &[
            FACE,
            LAYOUT,
            (
                "crates/engines/src/demo/token.rs",
                "//! T.\nfn f() {\n    pm.block::<1>(at)?.load(0) + block.load(3)\n}\n",
            ),
        ],
        place: "crates/engines/src/demo/token.rs:3",
        words: "`load` with a number",
        cured: &[(
            "crates/engines/src/demo/token.rs",
            "//! T.\nfn f() {\n    block.load(Bucket::NEXT) + block.load(0)\n}\n",
        )],
    },
    Planted {
        rule: "sites",
        files: &[
            ("crates/a/src/a.rs", "//! A.\nsites! {\n    /// X.\n    X = \"a/put/pair\";\n}\n"),
            ("crates/a/src/b.rs", "//! B.\nsites! {\n    /// Y.\n    Y = \"a/put/pair\";\n}\n"),
        ],
        place: "crates/a/src/b.rs:4",
        words: "is also at crates/a/src/a.rs:4",
        cured: &[("crates/a/src/b.rs", "//! B.\nsites! {\n    Y = \"a/put/token\";\n}\n")],
    },
    Planted {
        rule: "sites",
        files: &[("crates/a/src/a.rs", "//! A.\npmem::sites! {\n    X = \"a/Put\";\n}\n")],
        place: "crates/a/src/a.rs:3",
        words: "does not read",
        cured: &[("crates/a/src/a.rs", "//! A.\npmem::sites! {\n    X = \"a/put/pair\";\n}\n")],
    },
    Planted {
        rule: "exceptions",
        files: &[
            ("crates/a/src/e/mod.rs", "//! E.\n#[test]\nfn it_dies() {}\n"),
            (
                "crates/a/src/e/exceptions.toml",
                "# Why.\n[tests]\n\"e/put/pair:drop-flush\" = \"it_lives\"\n",
            ),
        ],
        place: "crates/a/src/e/exceptions.toml:3",
        words: "no test `it_lives` in crates/a/src/e/",
        cured: &[(
            "crates/a/src/e/exceptions.toml",
            "# Why.\n[tests]\n\"e/put/pair:drop-flush\" = \"it_dies\"\n",
        )],
    },
    Planted {
        rule: "edges",
        files: &[
            ALLOWED,
            (
                "crates/pmem/Cargo.toml",
                "[dependencies]\nthiserror = \"2\"\neverhash-index.workspace = true\n",
            ),
        ],
        place: "crates/pmem/Cargo.toml:3",
        words: "depends on `index`",
        cured: &[("crates/pmem/Cargo.toml", "[dependencies]\nthiserror = \"2\"\n")],
    },
    Planted {
        rule: "edges",
        files: &[
            ALLOWED,
            ("crates/index/Cargo.toml", "[dependencies]\neverhash-testkit.workspace = true\n"),
        ],
        place: "crates/index/Cargo.toml:2",
        words: "depends on `testkit`",
        cured: &[(
            "crates/index/Cargo.toml",
            "[dev-dependencies]\neverhash-testkit.workspace = true\n",
        )],
    },
    Planted {
        rule: "edges",
        files: &[ALLOWED, ("crates/extra/Cargo.toml", "[package]\n")],
        place: "crates/extra/Cargo.toml:1",
        words: "has no row",
        cured: &[
            ("crates/extra/Cargo.toml", "[package]\n"),
            ("ARCHITECTURE.md", "| Crate | May depend on |\n|---|---|\n| `extra` | nothing |\n"),
        ],
    },
    Planted {
        rule: "dependencies",
        files: &[
            ("docs/decisions/0006-dependencies.md", "| Package | Reason |\n|---|---|\n"),
            ("crates/a/Cargo.toml", "[package]\n[dev-dependencies]\nserde.workspace = true\n"),
        ],
        place: "crates/a/Cargo.toml:3",
        words: "depends on `serde`",
        cured: &[(
            "docs/decisions/0006-dependencies.md",
            "| Package | Reason |\n|---|---|\n| `serde` | needed |\n",
        )],
    },
    Planted {
        rule: "dependencies",
        files: &[
            (
                "docs/decisions/0006-dependencies.md",
                "# D\n\n| Package | Reason |\n|---|---|\n| `serde` | gone |\n",
            ),
            ("crates/a/Cargo.toml", "[package]\n"),
        ],
        place: "docs/decisions/0006-dependencies.md:5",
        words: "remove the row",
        cured: &[("crates/a/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nserde = \"1\"\n")],
    },
    Planted {
        rule: "links",
        files: &[("docs/a.md", "# A\n\nSee [b](b.md) and [c](https://example.org/c.md).\n")],
        place: "docs/a.md:3",
        words: "links to b.md, which is not there",
        cured: &[("docs/b.md", "# B\n")],
    },
    Planted {
        rule: "links",
        files: &[("docs/a.md", "See [b](../docs/b.md#part).\n"), ("docs/b.md", "# B\n")],
        place: "docs/a.md:1",
        words: "has no such heading",
        cured: &[("docs/b.md", "# B\n\n## Part\n")],
    },
    Planted {
        rule: "paths",
        files: &[("docs/a.md", "# A\n\nSee `crates/a/src/gone.rs`, `docs/decisions/*.md`.\n")],
        place: "docs/a.md:3",
        words: "names `crates/a/src/gone.rs`",
        cured: &[("docs/a.md", "# A\n\nSee `docs/a.md`, `docs/`.\n")],
    },
    Planted {
        rule: "paths",
        files: &[("src/a.rs", "//! A.\n\n// As `docs/model.md` says.\n")],
        place: "src/a.rs:3",
        words: "names `docs/model.md`",
        cured: &[("docs/model.md", "# M\n")],
    },
    Planted {
        rule: "hidden-lines",
        files: &[(
            "docs/a.md",
            "# A\n\n```sh\n# why\n```\n\n```rust\nlet a = 1;\n    # let b = 2;\n```\n",
        )],
        place: "docs/a.md:9",
        words: "begins with `# `",
        cured: &[("docs/a.md", "# A\n\n```rust,no_run\nlet a = 1;\n#[test]\n```\n")],
    },
    Planted {
        rule: "citations",
        files: &[(
            "crates/a/src/a.rs",
            "//! A. Keeps the promises P1 and P2.\n// Fails as in promise P3, or by B1.\n",
        )],
        place: "crates/a/src/a.rs:2",
        words: "cites `B1`, which is in no document",
        cured: &[(
            "crates/a/src/a.rs",
            "//! A. Keeps the promises P1 and P2.\n// Fails as in promise P3; 8 MiB.\n",
        )],
    },
    Planted {
        rule: "set-up",
        files: &[
            (
                "README.md",
                "# R\n\n## Set-up\n\n```sh\n# first\nmake\n```\n\n## Use\n\n```sh\nuse\n```\n",
            ),
            (".ci/run", "cargo test\n"),
        ],
        place: "README.md:1",
        words: "1 commands",
        cured: &[("README.md", "# R\n\n## Set-up\n\n```sh\nmake\ncargo test\n```\n")],
    },
    Planted {
        rule: "set-up",
        files: &[
            ("README.md", "# R\n\n## Set-up\n\n```sh\nmake\n\ncargo test --workspace\n```\n"),
            (".ci/run", "cargo test\n"),
        ],
        place: "README.md:8",
        words: "is not in .ci/run",
        cured: &[(".ci/run", "section cargo test --workspace\n")],
    },
    Planted {
        rule: "failing",
        files: &[(
            "crates/a/tests/a.rs",
            "//! A.\n#[test]\nfn good() {\n    // Fails if.\n}\n\n#[test]\n#[ignore]\nfn bad() {\n\
             let a = 1; // Fails if.\n    // Fails if.\n}\nfn help() {\n}\n",
        )],
        place: "crates/a/tests/a.rs:9",
        words: "`bad` does not say first",
        cured: &[("crates/a/tests/a.rs", "//! A.\n#[test]\nfn good() {\n    // Fails if.\n}\n")],
    },
    Planted {
        rule: "promises",
        files: &[(
            "crates/a/tests/a.rs",
            "//! A.\n#[test]\nfn p04_good() {}\n\n/// Doc.\n#[test]\n#[ignore]\nfn p17_bad() {}\n\
             fn p99_no_test() {}\n",
        )],
        place: "crates/a/tests/a.rs:8",
        words: "`p17_bad`",
        cured: &[("crates/a/tests/a.rs", "//! A.\n#[test]\nfn p04_good() {}\n")],
    },
];

/// Makes a file with a function of so many lines, and of so many lines in all.
fn long(function_lines: usize, file_lines: usize, end: &str) -> String {
    let body = "    g();\n".repeat(function_lines - 2);
    let head = format!("//! A.\nfn f() {{\n{body}}}\n");
    let rest = file_lines - head.lines().count();
    head + &"// .\n".repeat(rest) + end
}

#[test]
fn lengths_are_measured_to_the_line() {
    // Fails if a limit is off by one, or tests count.
    let found = |rule: &str, path: &str, text: &str| {
        let rule = rules::ALL.iter().find(|known| known.name == rule).expect("the rule exists");
        (rule.check)(&Project::parse(Tree::of(&[(path, text)]))).len()
    };
    let path = "crates/a/src/a.rs";
    assert_eq!(found("function-length", path, &long(70, 100, "")), 0);
    assert_eq!(found("function-length", path, &long(71, 100, "")), 1);
    assert_eq!(found("file-length", path, &long(10, 600, "")), 0);
    assert_eq!(found("file-length", path, &long(10, 601, "")), 1);
    let tests = "#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
    assert_eq!(found("file-length", path, &long(10, 600, tests)), 0);
    assert_eq!(found("file-length", "crates/a/tests/a.rs", &long(10, 900, "")), 0);
    let method = long(71, 100, "").replace("fn f", "impl A { fn f").replace("}\n// .", "}}\n// .");
    assert_eq!(found("function-length", path, &method), 1);
    // Columns are characters and not bytes.
    assert_eq!(found("columns", ".ci/run", &"é".repeat(100)), 0);
    assert_eq!(found("columns", ".ci/run", &"é".repeat(101)), 1);
    assert_eq!(found("columns", "docs/a.md", &"é".repeat(101)), 0);
    let table = |width: usize| {
        let row = "x".repeat(width - "const A: &str = \"\";".len());
        format!("//! A.\n#[rustfmt::skip]\nconst A: &str = \"{row}\";\n")
    };
    let row = format!("//! | {} |\n", "x".repeat(200));
    assert_eq!(found("columns", path, &row), 0);
    assert_eq!(found("columns", path, &row.replace(" |", "  ")), 1);
    assert_eq!(found("columns", path, &table(130)), 0);
    assert_eq!(found("columns", path, &table(131)), 1);
}
