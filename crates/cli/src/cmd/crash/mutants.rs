//! The mutants of an engine: which of them are noticed, and which are excused.

use std::collections::BTreeMap;
use std::time::Instant;

use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Mutant;
use everhash_store::Form;
use everhash_testkit::crash::{Effort, MutantOutcome, mutants_among};
use serde_json::json;

use super::judged_engine::Subject;
use super::{Crash, MUTANT_SEEDS};
use crate::failure::{Failure, Outcome};
use crate::output;

/// How many seeds a mutant has to survive that is excused, and every mutant under the rules of Arm
/// and with durable caches.
///
/// Source: ours; an excuse that is none shows at once, and what only these need is there in every
/// workload.
const EXCUSED_SEEDS: u64 = 4;

/// How many executions of a workload are judged at first.
///
/// Source: ours; most mutants are noticed at one of the first crash points behind what they change.
const FIRST_EXECUTIONS: u64 = 1000;

/// How many mutants may survive, each with its reason in the engine's file of exceptions.
///
/// Source: ours; more would hide dead instructions.
const MAX_EXCEPTIONS: usize = 5;

/// What became of the mutants.
struct Tally {
    killed: usize,
    /// How many survived here, and are killed by a test of the engine.
    tested: usize,
    /// Mutants that no judge noticed and no exception excuses.
    survivors: Vec<String>,
    /// Mutants that survived by an exception.
    excused: Vec<String>,
    /// Mutants that were killed in spite of their exception.
    needless: Vec<String>,
    seconds: f64,
}

impl Tally {
    /// Returns whether every mutant was noticed or is excused, by no more exceptions than allowed.
    fn holds(&self, exceptions: usize) -> bool {
        self.survivors.is_empty() && self.needless.is_empty() && exceptions <= MAX_EXCEPTIONS
    }
}

impl Crash {
    /// Judges the mutants form by form, first by a little of every workload and then by all of it.
    /// One that was noticed is judged no more: the forms share the code.
    pub(super) fn judge_mutants(&self, subject: &Subject, forms: &[Form]) -> Outcome {
        let begun = Instant::now();
        let exceptions = subject.exceptions();
        let reason = |mutant: &Mutant| exceptions.word(mutant);
        let is_tested = |mutant: &Mutant| exceptions.tests.contains_key(&mutant.to_string());
        let mut killed: BTreeMap<Mutant, bool> = BTreeMap::new();
        for (executions, form) in [FIRST_EXECUTIONS, u64::MAX]
            .into_iter()
            .flat_map(|executions| forms.iter().map(move |form| (executions, form)))
        {
            let first = executions == FIRST_EXECUTIONS;
            let seeds = |mutant: &Mutant| match (killed.get(mutant), reason(mutant)) {
                (Some(true), _) => 0,
                (_, Some(_)) if first => EXCUSED_SEEDS,
                (_, Some(_)) => 0,
                (_, None) => MUTANT_SEEDS,
            };
            let told = |outcome: &MutantOutcome| {
                if !self.json {
                    let reason = reason(&outcome.mutant).filter(|_| outcome.detection.is_none());
                    let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
                    // Who reads no further still gets the figures of the end, or their error.
                    let _ = output::print(&format!("{form}: {outcome}{reason}"));
                }
            };
            let efforts = self.mutant_efforts(executions);
            let judged = match mutants_among(&subject.design, *form, &efforts, &seeds, &told) {
                Ok(judged) => judged,
                Err(violation) => return self.violated(&violation),
            };
            for outcome in judged {
                killed.insert(outcome.mutant, outcome.detection.is_some());
            }
        }
        let count = |noticed, excused| {
            let like = |(mutant, killed): &(&Mutant, &bool)| {
                **killed == noticed && reason(mutant).is_some() == excused && !is_tested(mutant)
            };
            killed.iter().filter(like).map(|(mutant, _)| mutant.to_string()).collect::<Vec<_>>()
        };
        let tally = Tally {
            killed: killed.values().filter(|killed| **killed).count(),
            tested: killed.iter().filter(|(mutant, killed)| !**killed && is_tested(mutant)).count(),
            survivors: count(false, false),
            excused: count(false, true),
            needless: count(true, true),
            seconds: begun.elapsed().as_secs_f64(),
        };
        self.print_tally(&tally)?;
        if !tally.holds(exceptions.reasons.len()) {
            return Err(Failure::no());
        }
        let figures = [
            ("killed", tally.killed as u64),
            ("killed-by-tests", tally.tested as u64),
            ("excused", tally.excused.len() as u64),
        ];
        self.record.keep(&self.engine, "mutants", &figures)
    }

    fn print_tally(&self, tally: &Tally) -> Outcome {
        let Tally { killed, tested, survivors, excused, needless, seconds } = tally;
        if self.json {
            return output::print_json(&json!({
                "engine": self.engine,
                "killed": killed,
                "killed_by_tests": tested,
                "excused": excused,
                "survivors": survivors,
                "needless_exceptions": needless,
                "seconds": seconds,
            }));
        }
        for mutant in needless {
            output::print(&format!("{mutant} is noticed: it needs no exception"))?;
        }
        for mutant in survivors {
            output::print(&format!("{mutant} was noticed with no form"))?;
        }
        output::print(&format!(
            "{}: {killed} mutants killed, {tested} by tests of the engine, {} survived by \
             exceptions, {} survived without; {seconds:.1} s",
            self.engine,
            excused.len(),
            survivors.len()
        ))
    }

    /// The efforts by which mutants are judged. Only few get as far as the last one.
    fn mutant_efforts(&self, executions: u64) -> [Effort; 4] {
        let effort = Effort { executions, watch: |_| (), ..self.all_seeds() };
        let seeds = self.seed..self.seed.saturating_add(EXCUSED_SEEDS);
        let few = Effort { seeds, ..effort.clone() };
        let few = |model| few.clone().under(model);
        let [arm, eadr] = [few(Model::Arm), few(Model::Eadr)];
        [effort.clone().under(Model::Adr), effort.under(Model::File), arm, eadr]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_or_an_exception_too_many_is_a_no() {
        // Fails if an engine were accepted with an instruction that nothing needs.
        let tally = |survivors: &[&str], needless: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let (survivors, needless) = (owned(survivors), owned(needless));
            Tally {
                killed: 9,
                tested: 1,
                survivors,
                excused: owned(&["a"]),
                needless,
                seconds: 1.0,
            }
        };
        assert!(tally(&[], &[]).holds(0) && tally(&[], &[]).holds(MAX_EXCEPTIONS));
        assert!(!tally(&[], &[]).holds(MAX_EXCEPTIONS + 1));
        assert!(!tally(&["s"], &[]).holds(0));
        assert!(!tally(&[], &["n"]).holds(1));
    }
}
