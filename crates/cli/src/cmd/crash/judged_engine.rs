//! The engines as the crash judge takes them: the registry's rows, on the medium that remembers.

use std::collections::BTreeMap;

use everhash_engines::{About, ENGINES, TRACED};
use everhash_index::Design;
use everhash_pmem::Site;
use everhash_pmem::media::traced::{Change, Mutant, Traced};

use crate::cmd::tiny_settings::changed;
use crate::failure::{Failure, Outcome};

/// One engine before the crash judge.
pub struct Subject {
    /// Its row in the registry.
    pub about: &'static About,
    /// The engine on the medium that remembers.
    pub design: Design<Traced>,
}

/// The mutants of an engine that may survive the workloads of the judge.
#[derive(serde::Deserialize)]
pub struct Exceptions {
    /// Mutants that a test of the engine kills, with its name.
    #[serde(default)]
    pub tests: BTreeMap<String, String>,
    /// Mutants that survive, with their reasons.
    #[serde(flatten)]
    pub reasons: BTreeMap<String, String>,
}

impl Exceptions {
    /// Returns what is written beside a mutant, if it may survive.
    pub fn word(&self, mutant: &Mutant) -> Option<&str> {
        let mutant = mutant.to_string();
        self.reasons.get(&mutant).or_else(|| self.tests.get(&mutant)).map(String::as_str)
    }
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

    /// Returns the mutants that may survive here.
    pub fn exceptions(&self) -> Exceptions {
        toml::from_str(self.about.exceptions).expect("a test reads the file of every engine")
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
            let Exceptions { tests, reasons } = subject.exceptions();
            for (mutant, reason) in tests.iter().chain(&reasons) {
                subject.mutant(mutant).unwrap();
                assert!(reason.len() > 20, "{mutant}: {reason}");
            }
        }
    }
}
