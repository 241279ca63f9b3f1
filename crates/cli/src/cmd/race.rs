//! `everhash race`: a few threads on one table, under many schedules.

use std::time::Instant;

use clap::{Args, builder::PossibleValuesParser};
use everhash_engines::{About, ENGINES};
use everhash_pmem::crash::Model;
use everhash_store::Form;
use everhash_testkit::race::{Effort, Report, Violation, judge, replay};
use serde_json::json;

use super::judged_engines::{forms, subject};
use super::numbers::{SOME, whole};
use super::tiny_settings::{shown, variants};
use super::trust_figures::Record;
use super::{GREATEST_SEED, setting};
use crate::failure::{Failure, Outcome};
use crate::output;

/// How many programs of each kind run between two looks at how many schedules there were.
const BATCH: u64 = 4;

/// How many schedules a program has.
const SCHEDULES_EACH: usize = 60;

/// Run a few threads on one table under many schedules, and explain every answer
///
/// Short programs of two to four threads run on tiny tables under a scheduler that decides at every
/// access to the medium which thread goes on. Half of the programs begin with any table, and half
/// where one is about to grow, or a growth is about to end. Some order must explain all answers;
/// every tenth schedule is crashed at every moment, and what a reader saw must survive, where
/// writes are durable when they return. The last line has the figures; the status is 1 if there was
/// a violation, which is printed with a command that replays it.
#[derive(Clone, Debug, Args)]
pub struct Race {
    /// The engine
    #[arg(long, value_name = "NAME",
          value_parser = PossibleValuesParser::new(ENGINES.iter().map(|about| about.name)))]
    engine: String,
    /// The form of the pairs; by default all that the engine holds, one after the other
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// What a crash may leave: adr, eadr or file, as of everhash crash
    #[arg(long, default_value = "adr",
          value_parser = PossibleValuesParser::new(["adr", "eadr", "file"]))]
    model: String,
    /// How many schedules to run at least, for every form
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u64>(SOME))]
    schedules: u64,
    /// The first seed; every seed gives another program, and always the same one
    #[arg(long, default_value_t = 0,
          value_parser = whole::<u64>(0..=GREATEST_SEED))]
    seed: u64,
    /// Change a setting of the tiny tables, for example durability=1; may be given again
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
    /// Race on tiny tables with other settings, one kind after the other: those of the engine that
    /// lead to paths of their own
    #[arg(long, conflicts_with_all = ["replay", "settings", "record"])]
    variants: bool,
    /// Run the program that a violation names, under the schedules of its seed
    #[arg(long, value_name = "TEXT", requires = "form")]
    replay: Option<String>,
    #[command(flatten)]
    record: Record,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Race {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        if self.variants {
            let each = |settings| Race { settings, variants: false, ..self.clone() }.run();
            return variants(self.about()).try_for_each(each);
        }
        let subject = subject(&self.engine, &self.settings)?;
        let forms = forms(&subject.plain, self.form)?;
        if let Some(program) = &self.replay {
            return match replay(&subject, forms[0], program, self.seed, &self.effort(self.seed)) {
                Ok(()) => output::print("0 violations under the schedules replayed"),
                Err(failure) => {
                    output::print(&failure.to_string())?;
                    Err(Failure::no())
                }
            };
        }
        let (begun, mut all) = (Instant::now(), Report::default());
        for form in forms {
            let (mut report, mut seed) = (Report::default(), self.seed);
            while report.schedules < self.schedules {
                match judge(&subject, form, &self.effort(seed)) {
                    Ok(more) => add(&mut report, &more),
                    Err(violation) => return self.violated(&violation),
                }
                seed += BATCH;
            }
            add(&mut all, &report);
        }
        self.print(&all, begun.elapsed().as_secs_f64())
    }

    fn effort(&self, seed: u64) -> Effort {
        let seeds = seed..seed + BATCH;
        Effort {
            edge_seeds: seeds.clone(),
            seeds,
            schedules: SCHEDULES_EACH,
            model: Model::from_name(&self.model).expect("the parser admits no other name"),
            crash_every: 10,
            ..Effort::default()
        }
    }

    fn about(&self) -> &'static About {
        let about = ENGINES.iter().find(|about| about.name == self.engine);
        about.expect("the parser admits no other name")
    }

    fn print(&self, all: &Report, seconds: f64) -> Outcome {
        let Report { programs, schedules, crashed_schedules, states, undecided } = all;
        let figures = [
            ("schedules", *schedules),
            ("programs", *programs),
            ("crashed", *crashed_schedules),
            ("states", *states),
        ];
        self.record.keep(&self.engine, "race", &figures)?;
        if self.json {
            return output::print_json(&json!({
                "engine": self.engine,
                "model": self.model,
                "violations": 0,
                "programs": programs,
                "schedules": schedules,
                "crashed_schedules": crashed_schedules,
                "states": states,
                "undecided": undecided,
                "seconds": seconds,
            }));
        }
        output::print(&format!(
            "{}, {}{}: 0 violations; {schedules} schedules of {programs} programs, \
             {crashed_schedules} of them crashed at every moment: {states} states; {undecided} \
             undecided; in {seconds:.1} s",
            self.engine,
            self.model,
            shown(&self.settings)
        ))
    }

    /// Prints a violation and how to replay it.
    fn violated(&self, violation: &Violation) -> Outcome {
        let Violation { form, model, seed, program, failure, .. } = violation;
        let replay = format!(
            "everhash race --engine {} --form {form} --model {}{} --seed {seed} --replay \
             '{program}'",
            self.engine,
            model.name(),
            shown(&self.settings)
        );
        if self.json {
            output::print_json(&json!({
                "engine": self.engine,
                "form": form.to_string(),
                "model": model.name(),
                "violations": 1,
                "failure": failure.to_string(),
                "program": program.to_string(),
                "replay": replay,
            }))?;
        } else {
            output::print(&format!("form {form}, seed {seed}: {failure}"))?;
            output::print(&format!("  program: {program}\n  replay: {replay}"))?;
            output::print(&format!("{}, {}: 1 violation", self.engine, model.name()))?;
        }
        Err(Failure::no())
    }
}

fn add(sum: &mut Report, more: &Report) {
    // By name, so that a new figure is not left out.
    let Report { programs, schedules, crashed_schedules, states, undecided } = more;
    sum.programs += programs;
    sum.schedules += schedules;
    sum.crashed_schedules += crashed_schedules;
    sum.states += states;
    sum.undecided += undecided;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::parsed;

    #[test]
    fn variants_are_those_of_the_engine_that_races() {
        // Fails if an engine would be tried with the settings of another.
        for about in ENGINES {
            let race: Race = parsed(&["--engine", about.name]);
            assert_eq!(race.about().name, about.name);
        }
    }
}
