//! `docs/papers.md`: which section of a paper lies in which file, and where we depart from it.

use core::fmt::Write;

use super::cell;
use crate::Project;
use crate::markdown::Table;
use crate::rules::rooms::{self, Engine};

const HEAD: &str = "\
# The papers

Which section of each paper lies in which file, and where we depart from what it says and why.
This page is printed from the documentation of the engines' `mod.rs`; to change it, change that and
run `UPDATE=1 cargo test -p everhash-tidy`.
";

/// Prints the page.
pub fn print(project: &Project) -> String {
    let mut page = String::from(HEAD);
    let engines = rooms::engines(project);
    if engines.is_empty() {
        page.push_str("\nThere is no engine yet.\n");
    }
    for engine in &engines {
        chapter(&mut page, engine);
    }
    page
}

fn chapter(page: &mut String, engine: &Engine<'_>) {
    let Some(face) = engine.face() else { return };
    let about = rooms::about(face);
    // The first paragraph says what it is, the second which paper it comes from.
    let mut paragraphs = about.split("\n\n").map(str::trim);
    let (what, citation) = (paragraphs.next().unwrap_or(""), paragraphs.next().unwrap_or(""));
    let _ = write!(page, "\n## {}\n\n{what}\n\n{citation}\n", engine.name);
    for title in ["File", "The paper says"] {
        for (table, _) in engine.about.tables_with(title) {
            page.push('\n');
            print_table(page, table);
        }
    }
}

fn print_table(page: &mut String, table: &Table) {
    let columns = table.head.cells.len();
    row(page, &table.head.cells);
    let _ = writeln!(page, "|{}", "---|".repeat(columns));
    for line in &table.rows {
        row(page, &line.cells);
    }
}

fn row(page: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
