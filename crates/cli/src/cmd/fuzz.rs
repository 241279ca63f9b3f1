//! `everhash fuzz`: mutated pools and mutated lines, as many as there is time for.

use std::time::Instant;

use clap::{Args, builder::PossibleValuesParser};
use everhash_engines::ENGINES;
use everhash_pmem::crash::Model;
use everhash_store::Form;
use everhash_testkit::fuzz::{Effort, Report, judge};
use serde_json::json;

use super::judged_engines::{forms, subject};
use super::numbers::{ANY, SOME, whole};
use super::tiny_settings::shown;
use super::trust_figures::Record;
use super::{mutated_lines, setting};
use crate::failure::{Failure, Outcome};
use crate::output;

/// How many lines are read for each image.
const LINES_EACH: u64 = 4;

/// Mutate pools of an engine and lines of an import at random, and work on what comes of them
///
/// An image is made of pieces of a pool at several moments of its life, each at its own place, or
/// has words overwritten, or lost its end. It is checked, opened, read, written, maintained, closed
/// and opened again. A panic, an endless scan, or more time, memory or growth than a sound pool
/// needs and a bound is a finding. Beside it lines are mutated and read as an import reads them. An
/// execution depends on the seed and on its number alone. The last line has the figures; the status
/// is 1 if there was a finding, which is printed with a command that repeats it.
#[derive(Debug, Args)]
pub struct Fuzz {
    /// The engine
    #[arg(long, value_name = "NAME",
          value_parser = PossibleValuesParser::new(ENGINES.iter().map(|about| about.name)))]
    engine: String,
    /// The form of the pairs; by default all that the engine holds, with a part of the executions
    /// each
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// How many images in all
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u64>(SOME))]
    executions: u64,
    /// The number of the first execution, of each form
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>(ANY))]
    first: u64,
    /// The seed
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>(ANY))]
    seed: u64,
    /// Stop after so many seconds although there are executions left
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>(ANY))]
    time: Option<u64>,
    /// Change a setting of the tiny tables; may be given again
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, u64)>,
    #[command(flatten)]
    record: Record,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Fuzz {
    /// Runs the command.
    pub fn run(self) -> Outcome {
        let design = subject(&self.engine, &self.settings)?.plain;
        let forms = forms(&design, self.form)?;
        let (begun, mut all) = (Instant::now(), Report::default());
        let mut lines = 0;
        let each = self.executions.div_ceil(forms.len() as u64);
        let end = self.first.saturating_add(each);
        for (number, form) in forms.iter().enumerate() {
            let mut next = self.first;
            // What time there is belongs to all forms alike.
            let until = self.time.map(|all| all as f64 * (number + 1) as f64 / forms.len() as f64);
            while next < end && until.is_none_or(|until| begun.elapsed().as_secs_f64() < until) {
                let batch = next..end.min(next + 500);
                let effort =
                    Effort { seed: self.seed, executions: batch.clone(), model: Model::Adr };
                let found = judge(&design, *form, &effort);
                add(&mut all, &found.map_err(|finding| self.found(*form, &finding))?);
                let read = batch.start * LINES_EACH..batch.end * LINES_EACH;
                lines += read.end - read.start;
                mutated_lines::read(self.seed, read).map_err(Failure::answer)?;
                next = batch.end;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let figures = [
            ("executions", all.executions),
            ("mixed", all.mixed),
            ("opened", all.opened),
            ("lines", lines),
        ];
        self.record.keep(&self.engine, "fuzz", &figures)?;
        if self.json {
            return output::print_json(&json!({
                "engine": self.engine,
                "findings": 0,
                "executions": all.executions,
                "mixed": all.mixed,
                "opened": all.opened,
                "closed": all.closed,
                "growth_bytes": all.growth_bytes,
                "allocated_bytes": all.allocated_bytes,
                "lines": lines,
                "seconds": seconds,
            }));
        }
        output::print(&format!(
            "{}: 0 findings; {all}; {lines} lines; in {seconds:.1} s",
            self.engine
        ))
    }

    fn found(&self, form: Form, finding: &everhash_testkit::fuzz::Finding) -> Failure {
        let (engine, set, seed) = (&self.engine, shown(&self.settings), self.seed);
        Failure::answer(format_args!(
            "{engine}, {form}: {finding}; repeat: everhash fuzz --engine {engine} --form \
             {form}{set} --seed {seed} --first {} --executions 1",
            finding.execution
        ))
    }
}

fn add(sum: &mut Report, more: &Report) {
    // By name, so that a new figure is not left out.
    let Report { executions, mixed, opened, closed, growth_bytes, allocated_bytes } = more;
    sum.executions += executions;
    sum.mixed += mixed;
    sum.opened += opened;
    sum.closed += closed;
    sum.growth_bytes = sum.growth_bytes.max(*growth_bytes);
    sum.allocated_bytes = sum.allocated_bytes.max(*allocated_bytes);
}
