//! The table in `docs/promises.md`: which tests stand behind which promise.

use core::fmt::Write;

use crate::Project;
use crate::rules::promises::{COUNT, kept};

/// Prints the table. A promise without a test says so.
pub fn print(project: &Project) -> String {
    let kept = kept(project);
    let mut table = String::from("| Promise | Tests |\n|---|---|\n");
    for promise in 1..=COUNT {
        let tests: Vec<String> = (kept.iter().filter(|kept| kept.promise == promise))
            .map(|kept| {
                let when = if kept.ignored { ", by hand: it takes long" } else { "" };
                format!("`{}` in `{}`{when}", kept.test, kept.path)
            })
            .collect();
        let tests = if tests.is_empty() { "none yet".into() } else { tests.join("<br>") };
        let _ = writeln!(table, "| P{promise} | {tests} |");
    }
    table
}
