//! The keys of a profile's TOML text, with errors that name the key.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::value::Parameter;
use crate::{Error, Result};

/// The keys of a text that are not read yet.
pub(super) struct Entries {
    left: Table,
    sources: BTreeMap<String, String>,
}

fn wrong(what: String) -> Error {
    Error::Profile { what }
}

impl Entries {
    /// Reads a text.
    pub(super) fn parse(text: &str) -> Result<Entries> {
        let left = text.parse::<Table>().map_err(|error| wrong(format!("no TOML: {error}")))?;
        Ok(Entries { left, sources: BTreeMap::new() })
    }

    /// Takes over from the built-in profile that the text names as its base, and from that one's
    /// base, what the text does not have itself.
    pub(super) fn fall_back_to_base(&mut self) -> Result<()> {
        // Bounded, so that a circle of bases ends; the built-in ones are three deep.
        for _ in 0..8 {
            let Some(base) = self.optional_text("base")? else { return Ok(()) };
            let base = Entries::parse(super::builtin::text(&base)?)?;
            let own = |key: &str| key == "name" || key == "title";
            for (key, value) in base.left.into_iter().filter(|(key, _)| !own(key)) {
                self.left.entry(key).or_insert(value);
            }
        }
        Err(wrong("the bases run in a circle; name a built-in profile".to_string()))
    }

    /// Takes a bare text.
    pub(super) fn text(&mut self, key: &str) -> Result<String> {
        self.optional_text(key)?.ok_or_else(|| wrong(format!("{key} is missing; write a text")))
    }

    /// Takes a bare text that may be absent.
    pub(super) fn optional_text(&mut self, key: &str) -> Result<Option<String>> {
        match self.left.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(wrong(format!("{key} is no text; write {key} = \"...\""))),
        }
    }

    /// Takes one parameter and remembers its source.
    pub(super) fn parameter<T: Parameter>(
        &mut self,
        key: &'static str,
        unit: &str,
        low: f64,
        high: f64,
    ) -> Result<T> {
        let entry = self.left.remove(key);
        let entry = entry.ok_or_else(|| wrong(format!("{key} is missing; it has no default")))?;
        let Value::Table(mut entry) = entry else {
            return Err(wrong(format!("{key} needs a table of value, unit and source")));
        };
        match entry.remove("source") {
            Some(Value::String(source)) if !source.is_empty() => {
                self.sources.insert(key.to_string(), source);
            }
            _ => return Err(wrong(format!("{key} has no source; say where the number is from"))),
        }
        let written = match entry.remove("unit") {
            Some(Value::String(unit)) => unit,
            _ => String::new(),
        };
        if written != unit {
            return Err(wrong(format!("the unit of {key} is \"{unit}\" and not \"{written}\"")));
        }
        let value = entry.remove("value");
        let value = value.ok_or_else(|| wrong(format!("{key} has no value; write one")))?;
        if let Some((extra, _)) = entry.iter().next() {
            return Err(wrong(format!("{key} has an unknown part \"{extra}\"; remove it")));
        }
        T::read(&value, low, high).map_err(|what| wrong(format!("{key} must be {what}")))
    }

    /// Returns the sources, if every key was taken.
    pub(super) fn finish(self) -> Result<BTreeMap<String, String>> {
        match self.left.keys().next() {
            None => Ok(self.sources),
            Some(key) => Err(wrong(format!("unknown key \"{key}\"; correct or remove it"))),
        }
    }
}
