//! The engines as the crash judge takes them: the registry's rows, on the medium that remembers.

use std::collections::BTreeMap;

use everhash_engines::{About, ENGINES, TRACED};
use everhash_index::Design;
use everhash_pmem::Site;
use everhash_pmem::media::traced::{Change, Mutant, Traced};

use crate::cmd::tiny::changed;
use crate::failure::{Failure, Outcome};

/// One engine before the crash judge.
pub struct Subject {
    /// Its row in the registry.
    pub about: &'static About,
    /// The engine on the medium that remembers.
    pub design: Design<Traced>,
}

impl Subject {
    /// Returns every engine of the registry.
    pub fn all() -> impl Iterator<Item = Subject> {
        let rows = ENGINES.iter().zip(&TRACED);
        rows.map(|(about, design)| Subject { about, design: *design })
    }

    /// Returns the same engine with other settings of its tables.
    ///
    /// # Errors
    /// Usage, if the engine has no such setting or not with this value.
    pub fn with_settings(self, settings: &[(String, u64)]) -> Outcome<Subject> {
        Ok(Subject { design: changed(self.design, settings)?, ..self })
    }

    /// Returns the places where the engine persists something.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        self.design.sites.iter().copied().flatten().copied()
    }

    /// Returns the mutants that may survive, with their reasons.
    pub fn exceptions(&self) -> BTreeMap<String, String> {
        let table: toml::Table =
            self.about.exceptions.parse().expect("a test reads the file of every engine");
        let reason = |value: toml::Value| value.as_str().unwrap_or_default().to_owned();
        table.into_iter().map(|(mutant, value)| (mutant, reason(value))).collect()
    }

    /// Returns the mutant `site:change`.
    pub fn mutant(&self, text: &str) -> Outcome<Mutant> {
        let unknown = || Failure::usage(format_args!("'{text}' is no mutant; write SITE:CHANGE"));
        let (site, change) = text.split_once(':').ok_or_else(unknown)?;
        let site = self.sites().find(|known| known.name() == site).ok_or_else(unknown)?;
        let change: Change = change.parse().map_err(Failure::usage)?;
        Ok(Mutant { site, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exception_names_a_mutant_and_gives_a_reason() {
        // Fails if an exception outlived its site, or nobody wrote down why it is one.
        for subject in Subject::all() {
            for (mutant, reason) in subject.exceptions() {
                subject.mutant(&mutant).unwrap();
                assert!(reason.len() > 20, "{mutant}: {reason}");
            }
        }
    }
}
