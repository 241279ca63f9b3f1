//! The list in `docs/style.md`: what is checked by a program.

use core::fmt::Write;

use crate::rules::ALL;

/// Prints the list of rules.
pub fn print() -> String {
    let mut list = String::from("| Rule | What it says |\n|---|---|\n");
    for rule in ALL {
        let _ = writeln!(list, "| `{}` | {} |", rule.name, rule.says);
    }
    list
}
