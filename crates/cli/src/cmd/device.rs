//! `everhash device`: the emulated devices, and how well they agree with what was published.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use everhash_device::{Profile, probe, write_report};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output;

/// List, show and probe the emulated devices on which engines can be measured
#[derive(Debug, Args)]
pub struct Device {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Probe(Probe),
}

/// List the built-in devices
#[derive(Debug, Args)]
struct List {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Show every number of a device with its unit and source
#[derive(Debug, Args)]
struct Show {
    /// A built-in device, or a file in TOML that describes one
    #[arg(value_name = "NAME")]
    name: String,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

/// Measure a device and compare it with what was published; status 1 if a value is too far off
///
/// A device that is not built in is held to its own numbers.
#[derive(Debug, Args)]
struct Probe {
    /// A built-in device, or a file in TOML that describes one
    #[arg(value_name = "NAME")]
    name: String,
    /// Write a page, its pictures and the values into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the values as JSON
    #[arg(long)]
    json: bool,
}

impl Device {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        match self.command {
            Command::List(command) => command.run(),
            Command::Show(command) => command.run(),
            Command::Probe(command) => command.run(),
        }
    }
}

impl List {
    fn run(self) -> Outcome {
        let profiles: Vec<Profile> = Profile::names()
            .map(Profile::named)
            .collect::<Result<_, _>>()
            .map_err(Failure::device)?;
        if self.json {
            let list = profiles
                .iter()
                .map(|profile| json!({ "name": profile.name(), "title": profile.title() }));
            return output::print_json(&list.collect());
        }
        let width = profiles.iter().map(|profile| profile.name().len()).max().unwrap_or(0);
        profiles.iter().try_for_each(|profile| {
            output::print(&format!("{:width$}  {}", profile.name(), profile.title()))
        })
    }
}

impl Show {
    fn run(self) -> Outcome {
        let profile = find(&self.name)?;
        let entries = profile.entries();
        if self.json {
            let numbers: Vec<_> = entries
                .iter()
                .map(|entry| {
                    json!({ "key": entry.key, "value": entry.value, "unit": entry.unit,
                            "source": entry.source })
                })
                .collect();
            return output::print_json(&json!({
                "name": profile.name(), "title": profile.title(), "numbers": numbers,
            }));
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["key", "value", "unit", "source"]);
        for entry in &entries {
            table.add_row([entry.key, &entry.value, entry.unit, &entry.source]);
        }
        output::print(&format!("{}: {}", profile.name(), profile.title()))?;
        output::print(&table.trim_fmt())
    }
}

impl Probe {
    fn run(self) -> Outcome {
        let found = probe(&find(&self.name)?).map_err(Failure::device)?;
        if let Some(folder) = &self.out {
            write_report(&found, folder).map_err(|error| Failure::output(folder, &error))?;
        }
        let (count, failures) = (found.table.rows.len(), found.table.failures());
        if self.json {
            output::print_json(&found.json())?;
        } else {
            output::print(found.table.text().trim_end())?;
            let good = count - failures;
            output::print(&format!("{good} of {count} values are within their tolerance"))?;
        }
        if found.table.holds() { Ok(()) } else { Err(Failure::no()) }
    }
}

/// Finds a built-in device, or reads the file of that name.
fn find(name: &str) -> Outcome<Profile> {
    if Profile::names().any(|known| known == name) {
        return Profile::named(name).map_err(Failure::device);
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let known: Vec<&str> = Profile::names().collect();
        Failure::input(format_args!(
            "{name}: neither a built-in device nor a file that can be read ({error}); built in \
             are {}",
            known.join(", ")
        ))
    })?;
    Profile::parse(&text).map_err(|error| Failure::input(format_args!("{name}: {error}")))
}
