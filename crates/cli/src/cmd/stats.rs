//! `everhash stats`: figures of a database.

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Database, open_to_read};
use crate::failure::Outcome;
use crate::output;

/// Print figures: items, load, bytes on the device and in DRAM
#[derive(Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    database: Database,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let db = open_to_read(&self.database.database)?;
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
