//! The project keeps its own rules, and its printed pages say what the code says.

use std::path::PathBuf;

use everhash_engines::{common, turbo, walsh, wophi};
use everhash_pmem::Ruler;
use everhash_tidy::pages::{self, Chapter};
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
    let chapter = |title, path, rulers: &[&Ruler]| {
        let rulers = rulers.iter().map(|ruler| **ruler).collect();
        Chapter { title, path, rulers }
    };
    vec![
        chapter("The pool", "crates/pmem/src/pool.rs", &[&everhash_pmem::pool::Header::RULER]),
        chapter(
            "Records of byte strings, in every engine",
            "crates/engines/src/common/record.rs",
            &[&common::record::RecordHead::RULER],
        ),
        chapter("WALSH", "crates/engines/src/walsh/layout.rs", walsh::layout::RULERS),
        chapter("TurboHash", "crates/engines/src/turbo/layout.rs", turbo::layout::RULERS),
        chapter("WOPHI", "crates/engines/src/wophi/layout.rs", wophi::layout::RULERS),
    ]
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
