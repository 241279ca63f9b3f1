//! The judges of every engine: one row each.

use std::collections::BTreeMap;

use everhash_engines::{turbo, walsh, wophi};
use everhash_index::{Capabilities, Engine};
use everhash_pmem::Site;
use everhash_pmem::media::traced::{Change, Mutant};
use everhash_store::Form;
use everhash_testkit::Complaint;
use everhash_testkit::crash::{self, Effort, Fate, Report, Violation};

use crate::failure::{Failure, Outcome};

type Judge = fn(Form, &Effort, Option<Mutant>) -> Result<Report, Box<Violation>>;
type Seeds<'a> = &'a (dyn Fn(&Mutant) -> u64 + Sync);
type JudgeMutants = fn(Form, &[Effort], Seeds<'_>) -> Result<Vec<Fate>, Box<Violation>>;
type Replay = fn(Form, &Effort, Option<Mutant>, &str, &str) -> Result<(), Complaint>;

/// The judges of one engine.
pub struct Judges {
    /// Name of the engine.
    pub name: &'static str,
    capabilities: Capabilities,
    sites: &'static [&'static [Site]],
    /// The engine's file of exceptions: lines `"mutant" = "reason"`.
    exceptions: &'static str,
    /// Judges the engine, or a mutant of it.
    pub judge: Judge,
    /// Judges every mutant by as many seeds as it is told.
    pub mutants: JudgeMutants,
    /// Judges one state.
    pub replay: Replay,
}

/// Every engine; the first is the default.
pub const JUDGES: &[Judges] = &[
    row::<wophi::Wophi>(include_str!("../../../../engines/src/wophi/exceptions.toml")),
    row::<walsh::Walsh>(include_str!("../../../../engines/src/walsh/exceptions.toml")),
    row::<turbo::Turbo>(include_str!("../../../../engines/src/turbo/exceptions.toml")),
];

const fn row<E: Engine>(exceptions: &'static str) -> Judges {
    Judges {
        name: E::NAME,
        capabilities: E::CAPABILITIES,
        sites: E::SITES,
        exceptions,
        judge: crash::judge_mutant::<E>,
        mutants: crash::mutants_among::<E>,
        replay: crash::replay_mutant::<E>,
    }
}

impl Judges {
    /// Returns the places where the engine persists something.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        self.sites.iter().flat_map(|sites| sites.iter().copied())
    }

    /// Returns the forms that the engine holds.
    pub fn forms(&self) -> Vec<Form> {
        let mut forms = self.capabilities.forms.to_vec();
        if self.capabilities.byte_strings {
            forms.push(Form::Variable);
        }
        forms
    }

    /// Returns the mutants that may survive, with their reasons.
    pub fn exceptions(&self) -> BTreeMap<String, String> {
        let table: toml::Table =
            self.exceptions.parse().expect("a test reads the file of every engine");
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
        for judges in JUDGES {
            for (mutant, reason) in judges.exceptions() {
                judges.mutant(&mutant).unwrap();
                assert!(reason.len() > 20, "{mutant}: {reason}");
            }
        }
    }
}
