//! `everhash engines`: what can lie in a database.

use clap::Args;
use everhash_store::engines;
use serde_json::json;

use crate::failure::Outcome;
use crate::output;

/// List the engines and their settings
#[derive(Debug, Args)]
pub struct Engines {
    /// Print the names alone, a line each
    #[arg(long, conflicts_with = "json")]
    names: bool,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl Engines {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if self.names {
            return engines().iter().try_for_each(|engine| output::print(engine.name));
        }
        if self.json {
            let list: Vec<_> = engines()
                .iter()
                .map(|engine| {
                    let setting = |setting: &everhash_store::Setting| {
                        json!({
                            "name": setting.name,
                            "default": setting.default,
                            "meaning": setting.meaning,
                        })
                    };
                    let settings: Vec<_> = engine.settings.iter().map(setting).collect();
                    json!({ "name": engine.name, "idea": engine.idea, "settings": settings })
                })
                .collect();
            return output::print_json(&list.into());
        }
        for (index, engine) in engines().iter().enumerate() {
            let default = if index == 0 { " (default)" } else { "" };
            output::print(&format!("{}{default}: {}", engine.name, engine.idea))?;
            for setting in engine.settings {
                let (name, meaning, default) = (setting.name, setting.meaning, setting.default);
                output::print(&format!("  {name}={default}  {meaning}"))?;
            }
        }
        Ok(())
    }
}
