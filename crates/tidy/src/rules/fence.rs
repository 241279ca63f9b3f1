//! The fence: unsafe code in one place, and the lints that keep it there in force everywhere.

use proc_macro2::TokenTree;

use crate::{Finding, Project};

/// The folder that may hold unsafe code.
const FENCED: &str = "crates/pmem/src/sys/";

/// The module file of that folder.
const FENCED_MODULE: &str = "crates/pmem/src/sys.rs";

/// Finds `unsafe` outside the fence, and lints that would let it in.
pub fn unsafe_code(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &project.sources {
        if source.path.starts_with(FENCED) || source.path == FENCED_MODULE {
            continue;
        }
        source.each(&mut |tokens| {
            let (TokenTree::Ident(name), line) = (&tokens[0], tokens[0].span().start().line) else {
                return;
            };
            if name == "unsafe" {
                let what = format!("`unsafe` outside {FENCED}; move it there behind a safe face");
                findings.push(Finding::new(&source.path, line, what));
            }
            if (name == "allow" || name == "expect") && names_unsafe_code(&tokens[1..]) {
                let what = format!("unsafe code is allowed here; only {FENCED_MODULE} may do that");
                findings.push(Finding::new(&source.path, line, what));
            }
        });
    }
    findings
}

fn names_unsafe_code(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(group)) = tokens.first() else { return false };
    let mut inside = group.stream().into_iter();
    inside.any(|token| matches!(token, TokenTree::Ident(name) if name == "unsafe_code"))
}

/// Finds crates for which the workspace's lints do not hold.
pub fn lints(project: &Project) -> Vec<Finding> {
    let Some(root) = project.manifests.iter().find(|manifest| manifest.name.is_empty()) else {
        return vec![Finding::new("Cargo.toml", 1, "there is no workspace; check from its root")];
    };
    let shared = root.table.get("workspace").and_then(|workspace| workspace.get("lints"));
    let mut findings = Vec::new();
    if level(shared) != Some("forbid") {
        let what =
            "the workspace does not forbid `unsafe_code`; set it under [workspace.lints.rust]";
        findings.push(Finding::new(&root.path, 1, what));
    }
    for manifest in project.crates() {
        let own = manifest.table.get("lints");
        let what = match manifest.name.as_str() {
            "pmem" => differs_elsewhere(shared, own),
            _ => inherits(own),
        };
        let line = manifest.line_starting("[lints");
        findings.extend(what.map(|what| Finding::new(&manifest.path, line, what)));
    }
    findings
}

fn level(lints: Option<&toml::Value>) -> Option<&str> {
    lints?.get("rust")?.get("unsafe_code")?.as_str()
}

fn inherits(own: Option<&toml::Value>) -> Option<String> {
    let inherited = own.and_then(|own| own.get("workspace")).and_then(toml::Value::as_bool);
    let what = "the crate has lints of its own; write `[lints] workspace = true`";
    (inherited != Some(true)).then(|| what.into())
}

fn differs_elsewhere(shared: Option<&toml::Value>, own: Option<&toml::Value>) -> Option<String> {
    if level(own) != Some("deny") {
        return Some(
            "`unsafe_code` must be \"deny\" here, so that `sys` alone can allow it".into(),
        );
    }
    let mut expected = shared?.clone();
    if let Some(rust) = expected.get_mut("rust").and_then(toml::Value::as_table_mut) {
        rust.insert("unsafe_code".into(), "deny".into());
    }
    let what = "the lints differ from the workspace's in more than `unsafe_code`; copy them";
    (own != Some(&expected)).then(|| what.into())
}
