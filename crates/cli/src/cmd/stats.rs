//! `everhash stats`: figures of a database.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::figures::Source;
use super::numbers::{SOME, whole};
use super::top::{interval, print_lines};
use super::{Database, open_to_read};
use crate::failure::Outcome;
use crate::output;

/// Print figures: items, load, bytes on the device and in DRAM
///
/// Items are records here, as check counts them: the pairs of all tables, the names of tables, and
/// what is left of pairs whose table was dropped or whose time has ended.
#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    database: Database,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Print the figures as Prometheus reads them; those of a program that has the database open,
    /// if it writes them to DB.prom, are in that file
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
    /// Print a line every so many seconds; while a program has the database open, from what it
    /// writes to DB.prom
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          require_equals = true, value_parser = interval, conflicts_with = "json")]
    watch: Option<f64>,
    /// End after so many lines of --watch
    #[arg(long, value_name = "COUNT", requires = "watch",
          value_parser = whole::<u64>(SOME))]
    count: Option<u64>,
}

impl Stats {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if let Some(every) = self.watch {
            let source = Source::new(&self.database.database);
            let (looks, every) = (self.count.unwrap_or(u64::MAX), Duration::from_secs_f64(every));
            return print_lines(looks, every, || source.read());
        }
        let db = open_to_read(&self.database.database)?;
        if self.prometheus {
            return output::bytes(&[db.metrics().to_string().as_bytes()]);
        }
        let (info, stats) = (db.info(), db.stats()?);
        let per_item = |bytes: u64| (stats.items > 0).then(|| bytes as f64 / stats.items as f64);
        let own: Map<String, Value> =
            stats.own.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let figures = json!({
            "engine": info.engine.name,
            "form": info.form.to_string(),
            "items": stats.items,
            "slots": stats.slots,
            "load_factor": stats.load_factor(),
            "device_bytes": stats.device_bytes,
            "used_bytes": stats.used_bytes,
            "live_bytes": stats.live_bytes,
            "dead_bytes": stats.dead_bytes,
            "device_bytes_per_item": per_item(stats.device_bytes),
            "used_bytes_per_item": per_item(stats.used_bytes),
            "dram_bytes": stats.dram_bytes,
            "dram_bytes_per_item": per_item(stats.dram_bytes),
            "growth_steps_since_open": stats.growth_steps,
            "own": own,
        });
        if self.json {
            return output::print_json(&figures);
        }
        print_table("", &figures)
    }
}

fn print_table(prefix: &str, figures: &Value) -> Outcome {
    for (name, value) in figures.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        let text = match value {
            Value::Object(_) => {
                print_table(&format!("{name}."), value)?;
                continue;
            }
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) if number.is_f64() => {
                format!("{:.2}", number.as_f64().unwrap_or_default())
            }
            other => other.to_string(),
        };
        output::print(&format!("{name:<24} {text}"))?;
    }
    Ok(())
}
