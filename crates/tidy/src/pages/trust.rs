//! The tables in `docs/trust.md`: what every judge has tried on every engine, from a file of
//! figures.

use core::fmt::Write;

use super::cell;
use crate::Project;

/// The file of figures, which the commands rewrite.
const FIGURES: &str = "docs/trust.toml";

/// The key under which the file lists what is excused.
const EXCUSES: &str = "excuses";

/// Prints a row for each engine and judge, and one for each excuse. A file that cannot be read
/// prints as that.
pub fn print(project: &Project) -> String {
    let text = project.tree.text(FIGURES).unwrap_or_default();
    let Ok(file) = text.parse::<toml::Table>() else {
        return format!("`{FIGURES}` is no file of figures.\n");
    };
    let mut page = String::from("| Engine | Judge | Tried without a finding | Program |\n");
    page += "|---|---|---|---|\n";
    let mut excuses = String::new();
    for (engine, judges) in &file {
        for (judge, figures) in judges.as_table().into_iter().flatten() {
            if engine == EXCUSES {
                let reason = figures.as_str().unwrap_or_default();
                let _ = writeln!(excuses, "| {} | {} |", cell(judge), cell(reason));
                continue;
            }
            let figures = figures.as_table().cloned().unwrap_or_default();
            let program = figures.get("program").and_then(toml::Value::as_str).unwrap_or_default();
            let tried: Vec<String> = figures
                .iter()
                .filter_map(|(name, figure)| Some((name, figure.as_integer()?)))
                .map(|(name, figure)| format!("{} {name}", grouped(figure)))
                .collect();
            let tried = tried.join(", ");
            let _ = writeln!(page, "| {engine} | {judge} | {tried} | {} |", cell(program));
        }
    }
    if !excuses.is_empty() {
        let _ = write!(page, "\n| Excused | Why |\n|---|---|\n{excuses}");
    }
    page
}

/// Writes a number in groups of three digits.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;

    #[test]
    fn every_figure_and_every_excuse_has_a_row() {
        // Fails if a judge's figures or an excuse could be missing from the page.
        let text =
            "[walsh.race]\nschedules = 1234567\nprogram = \"p\"\n[excuses]\n\"a b\" = \"why\"\n";
        let page = print(&Project::parse(Tree::of(&[(FIGURES, text)])));
        assert!(page.contains("| walsh | race | 1,234,567 schedules | p |"), "{page}");
        assert!(page.contains("| a b | why |"), "{page}");
    }
}
