//! Tells a released program of which commit it is, where it is built from a repository. A debug
//! build does not say: it would have to be built anew after every commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let released = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = released.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    let version = env!("CARGO_PKG_VERSION");
    let version = commit.map_or(version.into(), |commit| format!("{version} (commit {commit})"));
    println!("cargo::rustc-env=EVERHASH_VERSION={version}");
    // Named by git: in a work tree they lie elsewhere.
    let path = released.then(|| git(&["rev-parse", "--git-path", "logs/HEAD"])).flatten();
    if let Some(path) = path.filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// Returns what git prints, if there is git and it succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
