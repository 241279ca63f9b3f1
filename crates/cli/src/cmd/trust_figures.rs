//! Figures of judges, kept in a file: `docs/trust.md` is printed from the project's own.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::failure::{Failure, Outcome};

/// Where figures are kept.
#[derive(Clone, Debug, Args)]
pub struct Record {
    /// Write the figures into this file, too, in place of those that the engine has from this
    /// judge; docs/trust.toml is the project's
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(regular))]
    record: Option<PathBuf>,
}

impl Record {
    /// Keeps the figures of a judge that found nothing, if that was asked for.
    ///
    /// # Errors
    /// Input, if the file is not one of figures; output, if it cannot be written.
    pub fn keep(&self, engine: &str, judge: &str, figures: &[(&str, u64)]) -> Outcome {
        let Some(path) = &self.record else { return Ok(()) };
        let mut file = read(path)?;
        let wrong = || Failure::input(format_args!("{}: '{engine}' is no table", path.display()));
        let row = file.entry(engine).or_insert_with(|| toml::Table::new().into());
        let row = row.as_table_mut().ok_or_else(wrong)?;
        let mut kept = toml::Table::new();
        for (name, figure) in figures {
            let figure = i64::try_from(*figure).unwrap_or(i64::MAX);
            kept.insert((*name).to_owned(), figure.into());
        }
        kept.insert("program".to_owned(), env!("EVERHASH_VERSION").into());
        row.insert(judge.to_owned(), kept.into());
        std::fs::write(path, printed(&file)).map_err(|error| Failure::output(path, &error))
    }
}

/// Refuses what is no file of the disk before anything is judged: a device may have no end.
fn regular(path: PathBuf) -> Result<PathBuf, &'static str> {
    match path.metadata() {
        Ok(found) if !found.is_file() => Err("is no regular file; name a file of figures"),
        _ => Ok(path),
    }
}

/// Writes a file of figures: tables of tables of numbers and texts.
fn printed(file: &toml::Table) -> String {
    let mut text = String::new();
    for (engine, row) in file {
        for (judge, kept) in row.as_table().into_iter().flatten() {
            let Some(kept) = kept.as_table() else { continue };
            let figures = kept.iter().map(|(name, figure)| match figure.as_str() {
                Some(words) => format!("{name} = {words:?}\n"),
                None => format!("{name} = {}\n", figure.as_integer().unwrap_or_default()),
            });
            text += &format!("[{engine}.{judge}]\n{}\n", figures.collect::<String>());
        }
        let mut texts = String::new();
        for (name, words) in row.as_table().into_iter().flatten() {
            if let Some(words) = words.as_str() {
                texts += &format!("{name:?} = {words:?}\n");
            }
        }
        if !texts.is_empty() {
            text += &format!("[{engine}]\n{texts}\n");
        }
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Reads the figures that are there; a file that is missing has none.
fn read(path: &Path) -> Outcome<toml::Table> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => text.parse().map_err(|error: toml::de::Error| {
            Failure::input(format_args!("{shown}: no file of figures: {}", error.message()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(toml::Table::new()),
        Err(error) => Err(Failure::input(format_args!("{shown}: cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_replace_those_of_their_judge_and_no_others() {
        // Fails if a run of one judge took the figures of another away, or did not replace its own;
        // or if nobody could tell of which program they are.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.toml");
        let record = Record { record: Some(path.clone()) };
        record.keep("walsh", "race", &[("schedules", 5)]).unwrap();
        record.keep("walsh", "fuzz", &[("executions", 7)]).unwrap();
        record.keep("walsh", "race", &[("schedules", 6)]).unwrap();
        let file = read(&path).unwrap();
        assert_eq!(file["walsh"]["race"]["schedules"].as_integer(), Some(6));
        assert_eq!(file["walsh"]["fuzz"]["executions"].as_integer(), Some(7));
        assert_eq!(file["walsh"]["race"]["program"].as_str(), Some(env!("EVERHASH_VERSION")));
        // Excuses, which somebody writes, stay.
        let text = std::fs::read_to_string(&path).unwrap() + "[excuses]\n\"a \\\"b\" = \"why\"\n";
        std::fs::write(&path, text).unwrap();
        record.keep("walsh", "race", &[("schedules", 8)]).unwrap();
        assert_eq!(read(&path).unwrap()["excuses"]["a \"b"].as_str(), Some("why"));
        std::fs::write(&path, "no figures").unwrap();
        assert!(record.keep("walsh", "race", &[]).is_err());
    }
}
