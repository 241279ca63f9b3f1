//! What was measured beside what was published.

use serde_json::{Value, json};

/// How far a measured value may be from the published one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// By this share of the published value.
    Relative(f64),
    /// By this much.
    Absolute(f64),
    /// It lies between these, whatever the published value.
    Between(f64, f64),
}

impl Tolerance {
    /// Returns the smallest and the largest value that is accepted.
    pub fn bounds(self, published: f64) -> (f64, f64) {
        match self {
            Tolerance::Relative(share) => {
                (published - published.abs() * share, published + published.abs() * share)
            }
            Tolerance::Absolute(much) => (published - much, published + much),
            Tolerance::Between(low, high) => (low, high),
        }
    }
}

/// One value of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The group of rows that belong together.
    pub topic: &'static str,
    /// What was measured.
    pub what: String,
    /// The unit.
    pub unit: &'static str,
    /// The published value.
    pub published: f64,
    /// What the emulated device showed.
    pub measured: f64,
    /// How far the two may be apart.
    pub tolerance: Tolerance,
    /// Its publication, or the profile's number from which it follows.
    pub source: &'static str,
}

impl Row {
    /// Returns whether the measured value is accepted. A value that is no number is not.
    pub fn holds(&self) -> bool {
        let (low, high) = self.tolerance.bounds(self.published);
        (low..=high).contains(&self.measured)
    }

    fn json(&self) -> Value {
        let (low, high) = self.tolerance.bounds(self.published);
        json!({
            "topic": self.topic,
            "what": self.what,
            "unit": self.unit,
            "published": self.published,
            "measured": self.measured,
            "low": low,
            "high": high,
            "holds": self.holds(),
            "source": self.source,
        })
    }
}

/// All values of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The rows, topic by topic.
    pub rows: Vec<Row>,
}

impl Table {
    /// Returns whether every value is accepted, and there is at least one.
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(Row::holds)
    }

    /// Returns how many values are not accepted.
    pub fn failures(&self) -> usize {
        self.rows.iter().filter(|row| !row.holds()).count()
    }

    /// Returns the rows as a JSON list.
    pub fn json(&self) -> Value {
        self.rows.iter().map(Row::json).collect()
    }

    /// Returns the table as text, one line for each row.
    pub fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        let mut topic = "";
        for row in &self.rows {
            if row.topic != topic {
                topic = row.topic;
                text.push_str(&format!("{topic}\n"));
            }
            let (low, high) = row.tolerance.bounds(row.published);
            text.push_str(&format!(
                "  {} {:width$}  {:>9} {:<8} published {:>9}  accepted {} to {}  ({})\n",
                if row.holds() { "ok  " } else { "FAIL" },
                row.what,
                number(row.measured),
                row.unit,
                number(row.published),
                number(low),
                number(high),
                row.source,
            ));
        }
        text
    }
}

/// Returns a number with the digits that matter.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: f64, tolerance: Tolerance) -> Row {
        Row {
            topic: "topic",
            what: "value".to_string(),
            unit: "ns",
            published: 100.0,
            measured,
            tolerance,
            source: "somebody",
        }
    }

    #[test]
    fn a_value_outside_its_tolerance_fails_the_table() {
        // Fails if a probe could report success over a wrong value, or over none at all.
        assert!(row(110.0, Tolerance::Relative(0.1)).holds());
        assert!(!row(110.1, Tolerance::Relative(0.1)).holds());
        assert!(!row(89.0, Tolerance::Absolute(10.0)).holds());
        assert!(row(109.0, Tolerance::Absolute(10.0)).holds());
        assert_eq!(Tolerance::Relative(0.5).bounds(-4.0), (-6.0, -2.0));
        assert!(row(7.0, Tolerance::Between(3.0, 8.0)).holds());
        assert!(!row(f64::NAN, Tolerance::Between(3.0, 8.0)).holds());
        let good = row(100.0, Tolerance::Relative(0.1));
        let bad = row(200.0, Tolerance::Relative(0.1));
        let table = Table { rows: vec![good.clone(), bad] };
        assert_eq!((table.holds(), table.failures()), (false, 1));
        assert!(Table { rows: vec![good] }.holds());
        assert!(!Table::default().holds());
        assert!(table.text().contains("FAIL") && table.text().contains("ok"));
        assert_eq!(table.json()[1]["holds"], false);
    }

    #[test]
    fn what_is_printed_of_a_row_is_what_was_judged() {
        // Fails if a value that fails were shown as one that holds, to people or to programs.
        let tolerance = Tolerance::Between(90.0, 1200.0);
        let table =
            Table { rows: vec![row(80.0, tolerance), row(120.5, tolerance), row(70.0, tolerance)] };
        assert_eq!(table.failures(), 2);
        let json = table.json();
        assert_eq!((&json[0]["holds"], &json[1]["holds"]), (&false.into(), &true.into()));
        assert_eq!((&json[0]["low"], &json[0]["high"]), (&90.0.into(), &1200.0.into()));
        assert_eq!((&json[1]["measured"], &json[1]["published"]), (&120.5.into(), &100.0.into()));
        let text = table.text();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("FAIL value") && lines[2].contains("ok   value"), "{text}");
        assert!(lines[1].contains(" 80.00 ns") && lines[2].contains(" 120.5 ns"), "{text}");
        assert!(lines[1].contains("published     100.0  accepted 90.00 to 1200  "), "{text}");
    }
}
