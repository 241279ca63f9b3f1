//! The project keeps its own rules, and its printed pages say what the code says.

use std::path::PathBuf;

use everhash_engines::{ENGINES, common};
use everhash_pmem::Ruler;
use everhash_tidy::pages::{self, Chapter};
use everhash_tidy::rules::rooms::engines;
use everhash_tidy::{Finding, Project, Tree, rules};

/// The tree in which cargo runs the test, which need not be the one that it was built in.
fn root() -> PathBuf {
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where it runs");
    PathBuf::from(crate_folder).join("../..")
}

fn project() -> Project {
    Project::parse(Tree::read(&root()).expect("the tree can be read"))
}

/// Every record that lies on a medium. A ruler that is missing here is a finding.
fn chapters() -> Vec<Chapter> {
    let chapter = |title, path: &str, rulers: &[&Ruler]| {
        let rulers = rulers.iter().map(|ruler| **ruler).collect();
        Chapter { title, path: path.to_owned(), rulers }
    };
    let shared = [
        chapter(
            "The pool",
            "crates/pmem/src/pool/header.rs",
            &[&everhash_pmem::pool::Header::RULER, &everhash_pmem::pool::Unsynced::RULER],
        ),
        chapter(
            "Records of byte strings, in every engine",
            "crates/engines/src/common/record.rs",
            &[&common::record::RecordHead::RULER],
        ),
    ];
    let engines = ENGINES.iter().map(|engine| {
        let path = format!("crates/engines/src/{}/layout.rs", engine.name);
        chapter(engine.title, &path, engine.rulers)
    });
    shared.into_iter().chain(engines).collect()
}

#[track_caller]
fn assert_none(findings: &[Finding]) {
    let list: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    assert!(findings.is_empty(), "{} findings\n{list}", findings.len());
}

#[test]
fn the_project_keeps_its_rules() {
    // Fails if any file is against a rule: each line says where, what, and what to do.
    let project = project();
    assert!(project.sources.len() > 20, "the sources were not found");
    let findings: Vec<_> = rules::ALL.iter().flat_map(|rule| (rule.check)(&project)).collect();
    assert_none(&findings);
}

#[test]
fn p16_unsafe_code_stays_in_its_folder() {
    // Fails if the promise is broken anywhere, or if a rule that keeps it were dropped.
    let project = project();
    for name in ["unsafe-fence", "lints-in-force"] {
        let rule = rules::ALL.iter().find(|rule| rule.name == name).expect("the rule is there");
        assert_none(&(rule.check)(&project));
    }
}

#[test]
fn every_engine_is_registered_judged_and_documented() {
    // Fails if an engine has no row in the registry, if a judge has never seen it, or if the
    // README does not name it.
    let project = project();
    let folders: Vec<_> = engines(&project).iter().map(|engine| engine.name).collect();
    let mut rows: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
    rows.sort_unstable();
    assert_eq!(rows, folders, "crates/engines/src/registry.rs has a row for each folder");
    let readme = project.tree.text("README.md").expect("there is a README");
    for engine in ENGINES {
        let row = format!("| `{}` |", engine.name);
        let row = readme.lines().find(|line| line.starts_with(&row));
        assert!(row.is_some_and(|row| !row.contains("not yet")), "README.md: {}", engine.name);
    }
}

#[test]
fn the_printed_pages_say_what_the_code_says() {
    // Fails if a ruler, an engine's table, a promise's tests or a rule changed without its page.
    let project = project();
    if std::env::var_os("UPDATE").is_some() {
        for page in pages::print(&project, &chapters()) {
            std::fs::write(root().join(page.path), page.text).unwrap();
        }
    } else {
        assert_none(&pages::compare(&project, &chapters()));
    }
}
