//! The report: medians over the rounds, as Markdown and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::plan::{Figure, Unit};

/// All figures of one store with one kind of durability.
#[derive(Debug, Serialize)]
pub struct Column {
    /// The store.
    pub store: String,
    /// When its writes survive.
    pub durability: String,
    /// How it is set up.
    pub settings: String,
    /// The figures, in the order in which they were first measured.
    pub rows: Vec<Row>,
    /// What went wrong, if the store could not be measured to the end.
    pub failures: Vec<String>,
}

/// A figure over all rounds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Threads that worked; 0 where that says nothing.
    pub threads: u64,
    /// The unit.
    pub unit: Unit,
    /// The values of each round: one, or one for each phase.
    pub values: Vec<f64>,
}

impl Row {
    /// Returns the middle value; the lower one of two.
    fn median(&self) -> f64 {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) / 2]
    }
}

impl Column {
    /// Adds a figure of one round.
    pub fn add(&mut self, figure: Figure) {
        let Figure { what, threads, value, unit } = figure;
        let same = |row: &&mut Row| row.what == what && row.threads == threads;
        match self.rows.iter_mut().find(same) {
            Some(row) => row.values.push(value),
            None => self.rows.push(Row { what, threads, unit, values: vec![value] }),
        }
    }
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine: names and values.
    pub machine: Vec<(String, String)>,
    /// What was run: names and values.
    pub run: Vec<(String, String)>,
    /// One for each store and durability.
    pub columns: Vec<Column>,
}

impl Report {
    /// Returns the report as Markdown: tables of medians, a row a figure and a column a store.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.machine.iter().chain(&self.run) {
            let _ = writeln!(text, "- {name}: {value}");
        }
        self.table(&mut text, "Operations", |unit| matches!(unit, Unit::Mops | Unit::Kops));
        let latency = |unit| matches!(unit, Unit::Nanoseconds | Unit::Microseconds);
        self.table(&mut text, "Latency", latency);
        let rest = |unit| !matches!(unit, Unit::Mops | Unit::Kops) && !latency(unit);
        self.table(&mut text, "Space, memory, reopening, losses", rest);
        let _ = writeln!(text);
        let settings: BTreeMap<_, _> =
            self.columns.iter().map(|column| (&column.store, &column.settings)).collect();
        for (store, settings) in settings {
            let _ = writeln!(text, "- `{store}`: {settings}.");
        }
        for column in &self.columns {
            for failure in &column.failures {
                let Column { store, durability, .. } = column;
                let _ = writeln!(
                    text,
                    "- `{store}` ({durability}) was not measured to the end: {failure}."
                );
            }
        }
        text
    }

    /// Adds a table of the figures whose unit `belongs`, if there are any.
    fn table(&self, text: &mut String, title: &str, belongs: impl Fn(Unit) -> bool) {
        let rows: Vec<_> = self.rows().into_iter().filter(|(_, _, unit)| belongs(*unit)).collect();
        let has = |column: &&Column| column.rows.iter().any(|row| belongs(row.unit));
        let columns: Vec<_> = self.columns.iter().filter(has).collect();
        if rows.is_empty() {
            return;
        }
        let head = columns.iter().map(|column| format!("{} ({})", column.store, column.durability));
        let head = head.collect::<Vec<_>>().join(" | ");
        let dashes = "|---:".repeat(columns.len());
        let _ = writeln!(text, "\n### {title}\n\n| | {head} |\n|---{dashes}|");
        for (what, threads, unit) in rows {
            let name = match threads {
                0 | 1 => format!("{what}, {unit}"),
                _ => format!("{what}, {threads} threads, {unit}"),
            };
            let cells = columns.iter().map(|column| {
                let same = |row: &&Row| row.what == what && row.threads == threads;
                let row = column.rows.iter().find(same);
                row.map_or_else(|| "–".to_owned(), |row| shown(row.median()))
            });
            let _ = writeln!(text, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
        }
    }

    /// Returns every figure that some store has, in the order of the first that has it.
    fn rows(&self) -> Vec<(String, u64, Unit)> {
        let mut rows = Vec::new();
        for row in self.columns.iter().flat_map(|column| &column.rows) {
            let name = (row.what.clone(), row.threads, row.unit);
            if !rows.contains(&name) {
                rows.push(name);
            }
        }
        rows
    }
}

/// Returns a value with three digits that count.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2e}").replace("e0", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_medians_and_gaps() {
        // Fails if a cell showed the best round, or what was not measured as zero.
        let column = |store: &str, values: &[f64]| {
            let mut column = Column {
                store: store.to_owned(),
                durability: "process".to_owned(),
                settings: "as it comes".to_owned(),
                rows: vec![],
                failures: vec![],
            };
            for value in values {
                let what = "get".to_owned();
                column.add(Figure { what, threads: 2, value: *value, unit: Unit::Mops });
            }
            column
        };
        let mut columns = vec![column("one", &[3.0, 1.0, 2.0]), column("other", &[])];
        let what = "put".to_owned();
        columns[1].add(Figure { what, threads: 1, value: 0.5, unit: Unit::Mops });
        let report = Report { machine: vec![], run: vec![], columns };
        let text = report.markdown();
        assert!(text.contains("| get, 2 threads, M/s | 2.00 | – |"), "{text}");
    }

    #[test]
    fn small_values_keep_their_digits() {
        // Fails if a small rate were rounded to nothing.
        assert_eq!(shown(0.0123), "1.23e-2");
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(1234.5), "1234");
    }
}
