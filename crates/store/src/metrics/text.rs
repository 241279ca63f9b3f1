//! The figures as Prometheus reads them: text format 0.0.4.

use core::fmt::{Display, Formatter, Result, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Durations, Metrics};

impl Display for Metrics {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Page { out: f, database: Label(&self.path.to_string_lossy()).to_string() }.print(self, true)
    }
}

impl Metrics {
    /// Returns the text for a database that has been closed.
    pub(super) fn text_of_closed(&self) -> String {
        let mut text = String::new();
        let database = Label(&self.path.to_string_lossy()).to_string();
        Page { out: &mut text, database }.print(self, false).expect("memory takes every text");
        text
    }
}

/// A value of a label, with its escapes.
struct Label<'a>(&'a str);

impl Display for Label<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            _ => f.write_char(character),
        })
    }
}

struct Page<'a, W> {
    out: &'a mut W,
    /// The value of the label that every figure has.
    database: String,
}

impl<W: Write> Page<'_, W> {
    fn print(&mut self, metrics: &Metrics, is_open: bool) -> Result {
        let info = &metrics.info;
        let labels = format!(
            ",engine=\"{}\",form=\"{}\",durability=\"{}\"",
            info.engine.name, info.form, info.durability
        );
        self.head("everhash_info", "gauge", "What the database is.")?;
        self.line("everhash_info", &labels, 1)?;
        let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.figure(
            "written_seconds",
            "When this was written, since 1970.",
            written.as_secs_f64(),
        )?;
        self.figure("open", "Whether the database is open.", u8::from(is_open))?;
        let open_for = metrics.open_for.as_secs_f64();
        self.figure("open_seconds", "How long it has been open.", open_for)?;
        let stopped = "Whether it has stopped after a failure that put durability in doubt.";
        self.figure("stopped", stopped, u8::from(metrics.stopped))?;
        let failed = u8::from(metrics.maintenance_failed);
        self.figure(
            "maintenance_failed",
            "Whether maintenance failed when last tried, or met damage.",
            failed,
        )?;
        self.total("device_syncs_total", "Syncs of the device since open.", metrics.device_syncs)?;
        self.stats(metrics)?;
        self.calls(metrics)
    }

    fn stats(&mut self, metrics: &Metrics) -> Result {
        let Some(stats) = &metrics.stats else { return Ok(()) };
        self.figure("pairs", "Pairs in the database.", stats.items)?;
        self.figure("slots", "Pairs that fit before the table grows or chains.", stats.slots)?;
        self.figure("file_bytes", "Length of the file.", stats.device_bytes)?;
        self.figure("used_bytes", "Part of the file that is in use.", stats.used_bytes)?;
        self.figure("live_bytes", "What present pairs take.", stats.live_bytes)?;
        if let Some(dead) = stats.dead_bytes {
            self.figure("dead_bytes", "What replaced and removed pairs take.", dead)?;
        }
        self.figure("memory_bytes", "Memory that the table holds.", stats.dram_bytes)?;
        self.total("growth_steps_total", "How often it grew since open.", stats.growth_steps)?;
        if !stats.own.is_empty() {
            self.head("everhash_engine", "gauge", "Figures that only this engine has.")?;
        }
        for (name, value) in &stats.own {
            self.line("everhash_engine", &format!(",figure=\"{}\"", Label(name)), value)?;
        }
        Ok(())
    }

    fn calls(&mut self, metrics: &Metrics) -> Result {
        let Some(calls) = &metrics.calls else { return Ok(()) };
        self.total("failed_calls_total", "Calls that failed.", calls.failed)?;
        let name = "everhash_call_seconds";
        self.head(name, "histogram", "How long calls took; one for many keys counts once.")?;
        for (kind, durations) in
            [("read", &calls.read), ("write", &calls.write), ("sync", &calls.sync)]
        {
            self.histogram(name, kind, durations)?;
        }
        Ok(())
    }

    /// Buckets from 128 ns on: shorter calls are in the first.
    fn histogram(&mut self, name: &str, kind: &str, durations: &Durations) -> Result {
        const FIRST: usize = 7;
        let last = durations.counts.len().saturating_sub(1);
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (power, count) in durations.counts.iter().enumerate() {
            below += count;
            if (FIRST..last).contains(&power) {
                let bound = (1u64 << power) as f64 / 1e9;
                self.line(&bucket, &format!(",kind=\"{kind}\",le=\"{bound}\""), below)?;
            }
        }
        self.line(&bucket, &format!(",kind=\"{kind}\",le=\"+Inf\""), below)?;
        let kind = format!(",kind=\"{kind}\"");
        self.line(&format!("{name}_sum"), &kind, durations.total.as_secs_f64())?;
        self.line(&format!("{name}_count"), &kind, below)
    }

    fn figure(&mut self, name: &str, meaning: &str, value: impl Display) -> Result {
        self.single(name, "gauge", meaning, value)
    }

    fn total(&mut self, name: &str, meaning: &str, value: u64) -> Result {
        self.single(name, "counter", meaning, value)
    }

    fn single(&mut self, name: &str, kind: &str, meaning: &str, value: impl Display) -> Result {
        let name = format!("everhash_{name}");
        self.head(&name, kind, meaning)?;
        self.line(&name, "", value)
    }

    fn head(&mut self, name: &str, kind: &str, meaning: &str) -> Result {
        writeln!(self.out, "# HELP {name} {meaning}\n# TYPE {name} {kind}")
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) -> Result {
        writeln!(self.out, "{name}{{database=\"{}\"{labels}}} {value}", self.database)
    }
}
