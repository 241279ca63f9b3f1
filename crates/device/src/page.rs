//! A report as one page of HTML that needs nothing else, and as files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::plot::svg;
use crate::probe::{Probe, WAITING};
use crate::table::{Row, number};

const STYLE: &str = "
body { font: 15px/1.45 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #e1e1e1; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.topic th { padding-top: 1.2rem; }
tr.fails td { background: #fbe3d6; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1rem; }
.figures svg { width: 100%; height: auto; }
small { color: #555; }
";

impl Probe {
    /// Returns everything as JSON.
    pub fn json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(|figure| figure.json()).collect();
        json!({
            "profile": self.profile,
            "title": self.title,
            "holds": self.table.holds(),
            "rows": self.table.json(),
            "figures": figures,
        })
    }
}

/// Returns the report as one page of HTML, with its pictures inside.
pub fn page(probe: &Probe) -> String {
    let (count, failures) = (probe.table.rows.len(), probe.table.failures());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Device " (probe.profile) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Device " (probe.profile) }
                p { (probe.title) }
                p {
                    @if failures == 0 { "All " (count) " values are within their tolerance." }
                    @else { (failures) " of " (count) " values are outside their tolerance." }
                }
                div class="figures" {
                    @for figure in &probe.figures { (PreEscaped(svg(figure))) }
                }
                (table(&probe.table.rows))
                h2 { "Measured elsewhere" }
                p { "These published results need whole indexes:" }
                ul { @for line in WAITING { li { (line) } } }
            }
        }
    };
    page.into_string()
}

fn table(rows: &[Row]) -> Markup {
    let topics = rows.chunk_by(|a, b| a.topic == b.topic);
    html! {
        table {
            thead {
                tr {
                    th { "Value" } th class="n" { "Measured" } th class="n" { "Published" }
                    th class="n" { "Accepted" } th { "Unit" } th { "Source" } th { "Holds" }
                }
            }
            @for topic in topics {
                tbody {
                    tr class="topic" { th colspan="7" { (topic[0].topic) } }
                    @for row in topic { (line(row)) }
                }
            }
        }
    }
}

fn line(row: &Row) -> Markup {
    let (low, high) = row.tolerance.bounds(row.published);
    let class = if row.holds() { "" } else { "fails" };
    html! {
        tr class=(class) {
            td { (row.what) }
            td class="n" { (number(row.measured)) }
            td class="n" { (number(row.published)) }
            td class="n" { (number(low)) " to " (number(high)) }
            td { (row.unit) }
            td { small { (row.source) } }
            td { @if row.holds() { "yes" } @else { "no" } }
        }
    }
}

/// Writes the page, the pictures and the values into a folder, which is made if it is not there.
/// Returns what was written.
///
/// # Errors
/// Errors of the file system.
pub fn write_report(probe: &Probe, folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    let mut write = |name: String, text: String| -> io::Result<()> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        written.push(path);
        Ok(())
    };
    write(format!("{}.html", probe.profile), page(probe))?;
    write(format!("{}.json", probe.profile), format!("{:#}\n", probe.json()))?;
    for figure in &probe.figures {
        write(format!("{}-{}.svg", probe.profile, figure.name), svg(figure))?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::table::{Table, Tolerance};

    /// A probe of three values in two topics, of which the second is wrong.
    fn probe() -> Probe {
        let row = |topic, measured| Row {
            topic,
            what: "value".to_string(),
            unit: "ns",
            published: 100.0,
            measured,
            tolerance: Tolerance::Absolute(10.0),
            source: "somebody",
        };
        let rows = vec![row("one", 101.0), row("one", 222.0), row("two", 99.0)];
        let figures = vec![Figure::empty().pair("", vec![(1.0, 2.0)], vec![(1.0, 3.0)])];
        let (profile, title) = ("mine".to_string(), "in one line".to_string());
        Probe { profile, title, table: Table { rows }, figures }
    }

    #[test]
    fn a_value_that_fails_is_shown_as_one() {
        // Fails if whoever reads the page, or a program that reads the values, takes a device for
        // one that behaves as published.
        let (probe, count) = (probe(), |text: &str, part| text.matches(part).count());
        let text = page(&probe);
        assert!(text.contains("1 of 3 values are outside their tolerance."), "{text}");
        assert_eq!([count(&text, "class=\"fails\""), count(&text, "<td>no</td>")], [1, 1]);
        assert_eq!([count(&text, "<td>yes</td>"), count(&text, "222.0")], [2, 1]);
        assert_eq!([count(&text, "class=\"topic\""), count(&text, "<svg")], [2, 1]);
        assert!(WAITING.iter().all(|line| text.contains(line)) && text.contains("in one line"));
        let json = probe.json();
        assert_eq!((&json["holds"], &json["title"]), (&json!(false), &json!("in one line")));
        assert_eq!(json["figures"], json!([probe.figures[0].json()]));
        let good = Table { rows: probe.table.rows[..1].to_vec() };
        let text = page(&Probe { table: good, ..probe });
        assert!(text.contains("All 1 values are within their tolerance."), "{text}");
    }
}
