//! The mutants of an engine: which of them are noticed, and which are excused.

use std::collections::BTreeMap;
use std::time::Instant;

use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Mutant;
use everhash_store::Form;
use everhash_testkit::crash::Effort;
use serde_json::json;

use super::judges::Judges;
use super::{Crash, MUTANT_SEEDS};
use crate::failure::{Failure, Outcome};
use crate::output;

/// How many seeds a mutant has to survive that is excused, and every mutant under the rules of Arm.
///
/// Source: ours; an excuse that is none shows at once, and what only Arm needs is there in every
/// workload.
const EXCUSED_SEEDS: u64 = 4;

/// How many lives of a workload are judged at first.
///
/// Source: ours; most mutants are noticed at one of the first crash points behind what they change.
const FIRST_LIVES: u64 = 1000;

/// How many mutants may survive, each with its reason in the engine's file of exceptions.
///
/// Source: ours; more would hide dead instructions.
const MAX_EXCEPTIONS: usize = 5;

impl Crash {
    /// Judges the mutants form by form, first by a little of every workload and then by all of it.
    /// One that was noticed is judged no more: the forms share the code.
    pub(super) fn judge_mutants(&self, judges: &Judges, forms: &[Form]) -> Outcome {
        let begun = Instant::now();
        let exceptions = judges.exceptions();
        let reason = |mutant: &Mutant| exceptions.get(&mutant.to_string()).map(String::as_str);
        let mut fates: BTreeMap<Mutant, bool> = BTreeMap::new();
        for (lives, form) in [FIRST_LIVES, u64::MAX]
            .into_iter()
            .flat_map(|lives| forms.iter().map(move |form| (lives, form)))
        {
            let first = lives == FIRST_LIVES;
            let seeds = |mutant: &Mutant| match (fates.get(mutant), reason(mutant)) {
                (Some(true), _) => 0,
                (_, Some(_)) if first => EXCUSED_SEEDS,
                (_, Some(_)) => 0,
                (_, None) => MUTANT_SEEDS,
            };
            let judged = match (judges.mutants)(*form, &self.mutant_efforts(lives), &seeds) {
                Ok(judged) => judged,
                Err(violation) => return self.violated(&violation),
            };
            for fate in judged {
                fates.insert(fate.mutant, fate.death.is_some());
                if !self.json {
                    let reason = reason(&fate.mutant).filter(|_| fate.death.is_none());
                    let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
                    output::print(&format!("{form}: {fate}{reason}"))?;
                }
            }
        }
        let count = |noticed, excused| {
            let like = |(mutant, fate): &(&Mutant, &bool)| {
                **fate == noticed && reason(mutant).is_some() == excused
            };
            fates.iter().filter(like).map(|(mutant, _)| mutant.to_string()).collect::<Vec<_>>()
        };
        let (survivors, excused, needless) =
            (count(false, false), count(false, true), count(true, true));
        let killed = count(true, false).len() + needless.len();
        let seconds = begun.elapsed().as_secs_f64();
        if self.json {
            output::print_json(&json!({
                "engine": self.engine,
                "killed": killed,
                "excused": excused,
                "survivors": survivors,
                "needless_exceptions": needless,
                "seconds": seconds,
            }))?;
        } else {
            for mutant in &needless {
                output::print(&format!("{mutant} is noticed: it needs no exception"))?;
            }
            for mutant in &survivors {
                output::print(&format!("{mutant} was noticed with no form"))?;
            }
            output::print(&format!(
                "{}: {killed} mutants killed, {} survived by exceptions, {} survived without; \
                 {seconds:.1} s",
                self.engine,
                excused.len(),
                survivors.len()
            ))?;
        }
        let few = exceptions.len() <= MAX_EXCEPTIONS;
        let sound = few && survivors.is_empty() && needless.is_empty();
        if sound { Ok(()) } else { Err(Failure::no()) }
    }

    /// The efforts by which mutants are judged. Only few get as far as the last one.
    fn mutant_efforts(&self, lives: u64) -> [Effort; 3] {
        let effort = Effort { lives, ..self.all_seeds() };
        let seeds = self.seed..self.seed.saturating_add(EXCUSED_SEEDS);
        let few = Effort { seeds, ..effort.clone() };
        [effort.clone().under(Model::Adr), effort.under(Model::File), few.under(Model::Arm)]
    }
}
