//! `everhash crash`: crashes an engine wherever it matters, and looks at what is left.

mod judged_engine;
mod mutants;

use std::io::{IsTerminal, Write};
use std::time::Instant;

use clap::{Args, builder::PossibleValuesParser};
use everhash_engines::{ENGINES, Exploration};
use everhash_pmem::crash::{Model, Name};
use everhash_pmem::media::traced::{Change, Mutant};
use everhash_store::Form;
use everhash_testkit::crash::{Counts, Effort, Violation, judge_mutant, replay_mutant};
use everhash_testkit::workload::{parse, render};
use serde_json::json;

use self::judged_engine::Subject;
use super::numbers::{SOME, whole};
use super::tiny_settings::{shown, variants};
use super::trust_figures::Record;
use super::{GREATEST_SEED, setting};
use crate::failure::{Failure, Outcome};
use crate::output;

/// What a crash may leave, by name. Arm is left out: its model is experimental.
const MODELS: [&str; 3] = ["adr", "eadr", "file"];

/// The engine that is judged if none is named: its crash points have few states.
const DEFAULT_ENGINE: &str = "wophi";

/// How many seeds run between two looks at how many states there were.
///
/// Source: ours; enough for all processors, few enough to stop soon.
const BATCH: u64 = 8;

/// Where each of several settings is explored briefly: how many states at least, and how many
/// workloads before these are counted.
///
/// Source: ours; five kinds of settings take as long as the usual ones, or less.
const VARIANT_STATES: u64 = 5_000;
const VARIANT_BATCH: u64 = 2;

/// How many seeds a mutant has to survive.
///
/// Source: ours; those that are noticed are noticed by the first few.
const MUTANT_SEEDS: u64 = 24;

/// What separates operations and crashes in a text to replay.
const AND_THEN: &str = " / ";

/// Crash an engine wherever it matters, and check the states that are left
///
/// Workloads of the engine run with tiny tables on a medium that remembers every store, flush and
/// fence. The states that a crash may leave, by the rules of docs/persistence-model.md (all where
/// they are few, else a sample: the figures say how often), are recovered, read out, worked on, and
/// for a part crashed again. The last line has the figures; the status is 1 if there was a
/// violation, which is printed with a command that replays it.
#[derive(Clone, Debug, Args)]
pub struct Crash {
    /// The engine
    #[arg(long, value_name = "NAME", default_value = DEFAULT_ENGINE,
          value_parser = PossibleValuesParser::new(ENGINES.iter().map(|about| about.name)))]
    engine: String,
    /// The form of the pairs; by default all that the engine holds, one after the other
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// What a crash may leave: adr (persistent memory with volatile caches), eadr (with durable
    /// caches) or file (an ordinary file)
    #[arg(long, default_value = "adr", value_parser = PossibleValuesParser::new(MODELS))]
    model: String,
    /// The first seed; every seed gives another workload, and always the same one
    #[arg(long, default_value_t = 0,
          value_parser = whole::<u64>(0..=GREATEST_SEED))]
    seed: u64,
    /// How many distinct states to check at least, for every form
    #[arg(long, default_value_t = 100_000, value_parser = whole::<u64>(SOME))]
    states: u64,
    /// How many operations a workload has
    #[arg(long, default_value_t = 100, value_parser = whole::<u16>(1..=u64::from(u16::MAX)))]
    operations: u16,
    /// How many crashes follow each other at most
    #[arg(long, default_value_t = 2, value_parser = whole::<u8>(1..=8))]
    depth: u8,
    /// Crash every state once more, at every point of its recovery and of the work after it; for
    /// small workloads: --operations 8
    #[arg(long, conflicts_with_all = ["mutants", "list_sites", "drop"])]
    twice: bool,
    /// Check as many states, operations and forms as fit into a minute of this engine, instead of
    /// those that the options say
    #[arg(long, conflicts_with_all = ["mutants", "list_sites", "drop", "replay", "form"])]
    brief: bool,
    /// Change a setting of the tiny tables, for example durability=1; may be given again
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
    /// Judge tiny tables with other settings, one kind after the other: those of the engine that
    /// lead to paths of their own
    #[arg(long,
          conflicts_with_all = ["mutants", "list_sites", "drop", "replay", "settings", "record"])]
    variants: bool,
    /// How many workloads are explored before the states are counted.
    #[arg(skip = BATCH)]
    batch: u64,
    /// Threads; 0 is one per processor. The figures do not depend on it
    #[arg(long, default_value_t = 0, value_parser = whole::<u16>(0..=u64::from(u16::MAX)))]
    threads: u16,
    /// Leave out every flush, fence and commit store in turn, under adr, file, and the rules of Arm
    /// with its weaker order, and every commit store under eadr; status 0 only if every mutant is
    /// noticed with some form, or stands in the engine's exceptions, of which there are at most 5
    /// and none is noticed
    #[arg(long, conflicts_with_all = ["list_sites", "drop", "replay"])]
    mutants: bool,
    /// List the places in the engine that persist something
    #[arg(long, conflicts_with_all = ["drop", "replay"])]
    list_sites: bool,
    /// Leave out what the engine does at this place, for example wophi/insert/token or
    /// wophi/insert/token:drop-flush; the judge must notice: status 1
    #[arg(long, value_name = "SITE")]
    drop: Option<String>,
    /// Judge the one state that a violation names
    #[arg(long, value_name = "TEXT", requires = "form")]
    replay: Option<String>,
    #[command(flatten)]
    record: Record,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Crash {
    /// Runs the command.
    pub fn run(mut self) -> Outcome {
        let subject = Subject::all().find(|subject| subject.about.name == self.engine);
        let subject = subject.expect("the parser admits no other name");
        if self.brief {
            self.shorten(&subject.about.exploration);
        }
        if self.variants {
            let each = |settings| Crash { settings, variants: false, ..self.clone() }.run();
            return variants(subject.about).try_for_each(each);
        }
        let subject = &subject.with_settings(&self.settings)?;
        if self.list_sites {
            return subject.sites().try_for_each(|site| output::print(site.name()));
        }
        let forms = match self.form {
            Some(form) if subject.about.capabilities.holds(form) => vec![form],
            Some(form) => {
                return Err(Failure::usage(format_args!(
                    "engine {} holds no pairs of the form {form}",
                    subject.about.name
                )));
            }
            None => subject.about.capabilities.all_forms(),
        };
        if let Some(text) = &self.replay {
            return self.replay(subject, forms[0], text);
        }
        if self.mutants {
            return self.judge_mutants(subject, &forms);
        }
        if let Some(place) = &self.drop {
            return self.drop_site(subject, &forms, place);
        }
        self.judge(subject, &forms)
    }

    /// Takes the effort that the registry says is enough for the check of a change, once.
    fn shorten(&mut self, brief: &Exploration) {
        self.brief = false;
        self.form = self.form.or(brief.words_only.then_some(Form::WORDS));
        self.states = brief.states;
        self.operations = brief.operations;
        self.depth = brief.depth;
        if self.twice {
            (self.form, self.states) = (Some(Form::WORDS), 1);
            (self.operations, self.depth) = (brief.twice, 2);
        } else if self.variants {
            // In a minute there is time for one form of each, and for some states.
            (self.form, self.states) = (Some(Form::WORDS), VARIANT_STATES);
            self.batch = VARIANT_BATCH;
        }
    }

    fn effort(&self) -> Effort {
        let effort = Effort {
            model: Model::from_name(&self.model).expect("the parser admits no other name"),
            seeds: self.seed..self.seed + self.batch,
            operations: self.operations.into(),
            depth: self.depth.into(),
            threads: self.threads.into(),
            watch: show_progress,
            ..Effort::default()
        };
        match self.twice {
            true => Effort { nested_one_in: 1, killed_one_in: 1, growth_one_in: 1, ..effort },
            false => effort,
        }
    }

    /// Judges the engine as it is.
    fn judge(&self, subject: &Subject, forms: &[Form]) -> Outcome {
        let begun = Instant::now();
        let mut all = Counts::default();
        for form in forms {
            let mut counts = Counts::default();
            let mut effort = self.effort();
            while states(&counts) < self.states {
                match judge_mutant(&subject.design, *form, &effort, None) {
                    Ok(report) => add(&mut counts, &report.counts),
                    Err(violation) => return self.violated(&violation),
                }
                effort.seeds = effort.seeds.end..effort.seeds.end + self.batch;
            }
            if !self.json && forms.len() > 1 {
                output::print(&format!("form {form}: {}", text(&counts)))?;
            }
            add(&mut all, &counts);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let figures = [
            ("states", states(&all)),
            ("nested", all.nested),
            ("points", all.points),
            ("operations", all.operations),
        ];
        self.record.keep(&self.engine, &format!("crash-{}", self.model), &figures)?;
        if self.json {
            return output::print_json(&json!({
                "engine": self.engine,
                "model": self.model,
                "violations": 0,
                "seeds": all.seeds,
                "operations": all.operations,
                "crash_points": all.points,
                "states": all.states,
                "ended_processes": all.killed,
                "nested_states": all.nested,
                "complete_points": all.complete,
                "sampled_points": all.sampled,
                "seconds": seconds,
                "states_per_second": states(&all) as f64 / seconds,
            }));
        }
        output::print(&format!(
            "{}, {}{}: 0 violations; {} in {seconds:.1} s",
            self.engine,
            self.model,
            shown(&self.settings),
            text(&all)
        ))
    }

    /// Judges the engine without what it does at a place.
    fn drop_site(&self, subject: &Subject, forms: &[Form], place: &str) -> Outcome {
        let (site, change) = match place.split_once(':') {
            Some((site, change)) => {
                let change: Change = change.parse().map_err(Failure::usage)?;
                (site, Some(change))
            }
            None => (place, None),
        };
        if !subject.sites().any(|known| known.name() == site) {
            return Err(Failure::usage(format_args!(
                "engine {} has no site '{site}'; see --list-sites",
                subject.about.name
            )));
        }
        let all = self.all_seeds();
        let mut tried = Vec::new();
        for form in forms {
            let wanted = |mutant: &Mutant| {
                mutant.site.name() == site && change.is_none_or(|change| mutant.change == change)
            };
            let mutants = match self.met(subject, *form, wanted) {
                Ok(mutants) => mutants,
                Err(violation) => return self.violated(&violation),
            };
            for mutant in mutants {
                if let Err(violation) = judge_mutant(&subject.design, *form, &all, Some(mutant)) {
                    return self.violated(&violation);
                }
                tried.push(mutant.to_string());
            }
        }
        if tried.is_empty() {
            return output::print(&format!(
                "{site}: no workload comes by under {}, so nothing was left out",
                self.model
            ));
        }
        output::print(&format!("{}: 0 violations without {}", self.engine, tried.join(", ")))
    }

    /// Returns the wanted ones of the mutants that the first workloads allow which allow any.
    fn met(
        &self,
        subject: &Subject,
        form: Form,
        wanted: impl Fn(&Mutant) -> bool,
    ) -> Result<Vec<Mutant>, Box<Violation>> {
        for seed in self.all_seeds().seeds {
            let effort = Effort { seeds: seed..seed + 1, ..self.effort() };
            let mut mutants = judge_mutant(&subject.design, form, &effort, None)?.met.mutants();
            mutants.retain(&wanted);
            if !mutants.is_empty() {
                return Ok(mutants);
            }
        }
        Ok(Vec::new())
    }

    /// The effort by which mutants are judged.
    fn all_seeds(&self) -> Effort {
        let seeds = self.seed..self.seed + MUTANT_SEEDS;
        Effort { seeds, ..self.effort() }
    }

    fn replay(&self, subject: &Subject, form: Form, replayed: &str) -> Outcome {
        let (operations, crashes) = replayed.split_once(AND_THEN).ok_or_else(|| {
            Failure::usage("a text to replay has operations, a slash, and crashes; copy all of it")
        })?;
        // A text that is none says nothing about the engine.
        parse(operations).map_err(Failure::usage)?;
        for crash in crashes.split_whitespace() {
            crash.parse::<Name>().map_err(Failure::usage)?;
        }
        let mutant = self.drop.as_deref().map(|text| subject.mutant(text)).transpose()?;
        match replay_mutant(&subject.design, form, &self.effort(), mutant, operations, crashes) {
            Ok(()) => output::print("0 violations in the state replayed"),
            Err(failure) if failure.is_stale() => Err(Failure::stale(failure)),
            Err(failure) => {
                output::print(&failure.to_string())?;
                Err(Failure::no())
            }
        }
    }

    /// Prints a violation and how to replay it.
    fn violated(&self, violation: &Violation) -> Outcome {
        let Violation { form, model, seed, mutant, failure, .. } = violation;
        let crashes: Vec<_> = violation.crashes.iter().map(ToString::to_string).collect();
        let state = format!("{}{AND_THEN}{}", render(&violation.operations), crashes.join(" "));
        let sites: Vec<_> =
            violation.sites.iter().map(|site| site.map(|site| site.name())).collect();
        let dropped = mutant.map_or(String::new(), |mutant| format!(" --drop {mutant}"));
        let set = shown(&self.settings);
        let replay = format!(
            "everhash crash --engine {} --form {form} --model {} --depth {}{set}{dropped} \
             --replay '{state}'",
            self.engine,
            model.name(),
            self.depth
        );
        if self.json {
            output::print_json(&json!({
                "engine": self.engine,
                "form": form.to_string(),
                "model": model.name(),
                "violations": 1,
                "seed": seed,
                "mutant": mutant.map(|mutant| mutant.to_string()),
                "failure": failure.to_string(),
                "operations": render(&violation.operations),
                "crashes": crashes,
                "sites": sites,
                "replay": replay,
            }))?;
        } else {
            let told = violation.to_string();
            // The last line replays it from a test; here a command does.
            let lines: Vec<_> =
                told.lines().filter(|line| !line.starts_with("  replay:")).collect();
            output::print(&lines.join("\n"))?;
            output::print(&format!("  replay: {replay}"))?;
            output::print(&format!("{}, {}: 1 violation", self.engine, model.name()))?;
        }
        Err(Failure::no())
    }
}

/// Shows a person that a violation was found, and how short it is by now.
fn show_progress(violation: &Violation) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let (count, failure) = (violation.operations.len(), &violation.failure);
        // A terminal that is gone is no reason to stop.
        let _ = writeln!(terminal, "violation with {count} operations, being shortened: {failure}");
    }
}

fn states(counts: &Counts) -> u64 {
    counts.states + counts.killed + counts.nested
}

fn add(sum: &mut Counts, more: &Counts) {
    // By name, so that a new figure is not left out.
    let Counts { seeds, operations, points, states, killed, nested, complete, sampled } = more;
    sum.seeds += seeds;
    sum.operations += operations;
    sum.points += points;
    sum.states += states;
    sum.killed += killed;
    sum.nested += nested;
    sum.complete += complete;
    sum.sampled += sampled;
}

fn text(counts: &Counts) -> String {
    let Counts { seeds, operations, points, states, killed, nested, complete, sampled } = counts;
    format!(
        "{states} states at {points} crash points, {nested} of nested crashes, {killed} ended \
         processes; {seeds} seeds, {operations} operations; {complete} points complete, {sampled} \
         sampled"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::parsed;

    fn crash(options: &[&str]) -> Crash {
        parsed(options)
    }

    #[test]
    fn the_effort_is_what_was_asked_for() {
        // Fails if an option were ignored: no figure says so.
        for model in MODELS {
            let effort = crash(&["--model", model]).effort();
            assert_eq!(effort.model.name(), model);
        }
        let asked = ["--seed", "7", "--operations", "9", "--depth", "3", "--threads", "2"];
        let effort = crash(&asked).effort();
        assert_eq!((effort.seeds, effort.operations), (7..7 + BATCH, 9));
        assert_eq!((effort.depth, effort.threads), (3, 2));
        let usual = Effort::default();
        let often = |effort: Effort| {
            let Effort { nested_one_in, killed_one_in, growth_one_in, .. } = effort;
            [nested_one_in, killed_one_in, growth_one_in]
        };
        assert_eq!(often(crash(&[]).effort()), often(usual));
        assert_eq!(often(crash(&["--twice"]).effort()), [1; 3]);
        assert_eq!(crash(&asked).all_seeds().seeds, 7..7 + MUTANT_SEEDS);
    }

    #[test]
    fn a_brief_run_takes_its_effort_from_the_registry() {
        // Fails if the check of a change were that of another engine, or of a whole night.
        let words_only = Exploration { words_only: true, ..ENGINES[0].exploration };
        let shortened = |arguments: &[&str], brief: &Exploration| {
            let mut crash = crash(arguments);
            crash.shorten(brief);
            assert!(!crash.brief);
            crash
        };
        for about in ENGINES {
            let brief = about.exploration;
            let plain = shortened(&["--brief"], &brief);
            assert_eq!((plain.states, plain.operations), (brief.states, brief.operations));
            assert_eq!((plain.depth, plain.batch), (brief.depth, BATCH));
            assert_eq!(plain.form, brief.words_only.then_some(Form::WORDS));
            let twice = shortened(&["--brief", "--twice"], &brief);
            assert_eq!((twice.form, twice.states), (Some(Form::WORDS), 1));
            assert_eq!((twice.operations, twice.depth), (brief.twice, 2));
            let each = shortened(&["--brief", "--variants"], &brief);
            assert_eq!((each.form, each.states), (Some(Form::WORDS), VARIANT_STATES));
            assert_eq!(each.batch, VARIANT_BATCH);
        }
        assert_eq!(shortened(&["--brief"], &words_only).form, Some(Form::WORDS));
    }

    #[test]
    fn every_figure_of_the_forms_is_summed() {
        // Fails if the figures of the last form were told as those of all.
        let counts = |one: u64| Counts {
            seeds: one,
            operations: 2 * one,
            points: 3 * one,
            states: 4 * one,
            killed: 5 * one,
            nested: 6 * one,
            complete: 7 * one,
            sampled: 8 * one,
        };
        let mut sum = counts(1);
        add(&mut sum, &counts(10));
        assert_eq!(text(&sum), text(&counts(11)));
        assert_eq!(states(&sum), 11 * (4 + 5 + 6));
        let expected = "44 states at 33 crash points, 66 of nested crashes, 55 ended processes; 11 \
                        seeds, 22 operations; 77 points complete, 88 sampled";
        assert_eq!(text(&sum), expected);
    }
}
