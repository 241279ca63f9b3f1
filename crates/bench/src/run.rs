//! A run: rounds of ceilings and phases, interleaved.

use everhash_engines::{IN_MEMORY, ON_FILES};
use everhash_index::{
    Choice, Design, Durability, Engine, Error, Form, HashKind, Result, Sizing, Table,
};
use everhash_pmem::{Dram, FileMedium, WriteBack};

use crate::ceilings::{Ceiling, Ground};
use crate::clock::Took;
use crate::medium::{changes, make};
use crate::phases::{Phase, Share, run_share};
use crate::report::{Latency, Report, Samples};

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Pairs that are loaded. Unit: pairs; at least one per thread.
    pub items: u64,
    /// The form of the pairs.
    pub form: Form,
    /// Numbers of threads; each is a series of its own.
    pub threads: Vec<u64>,
    /// How often everything is repeated.
    pub rounds: u32,
    /// The hash function of the tables.
    pub hash: HashKind,
    /// Whether tables are made for the number of pairs, or grow from their default size.
    pub presized: bool,
    /// Settings of the tables that are not as usual: names and values.
    pub settings: Vec<(String, u64)>,
    /// The instruction behind a flush.
    pub write_back: WriteBack,
    /// Whether the medium of the tables claims durable caches: nothing is flushed there. Ceilings
    /// flush all the same.
    pub durable_caches: bool,
}

/// An engine that takes part in a run.
#[derive(Clone, Copy)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    pub(crate) in_memory: Design<Dram>,
    /// For [`scale`](crate::scale()).
    pub(crate) in_file: Design<FileMedium>,
}

impl Candidate {
    /// Makes the candidate of an engine.
    pub const fn of<E: Engine>() -> Candidate {
        Candidate { name: E::NAME, in_memory: Design::of::<E>(), in_file: Design::of::<E>() }
    }

    /// Returns whether it can hold pairs of a form.
    pub fn holds(&self, form: Form) -> bool {
        self.in_memory.capabilities.holds(form)
    }

    /// Tells whether its tables have such settings.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn admit(&self, form: Form, settings: &[(String, u64)]) -> Result<()> {
        let choice = Choice { sizing: Sizing::Usual, changes: &changes(settings) };
        // All changes are made before a setting is looked for.
        self.in_memory.setting(form, choice, "").map(drop)
    }

    /// Returns whether it can make writes durable together.
    pub fn batches(&self) -> bool {
        self.in_memory.capabilities.durability.contains(&Durability::Batch)
    }
}

/// Returns every engine of the registry.
pub fn candidates() -> Vec<Candidate> {
    let one = |(in_memory, in_file): (&Design<Dram>, &Design<FileMedium>)| Candidate {
        name: in_memory.name,
        in_memory: *in_memory,
        in_file: *in_file,
    };
    IN_MEMORY.iter().zip(&ON_FILES).map(one).collect()
}

/// Runs `plan` with every candidate that can hold its form; `said` hears what begins.
///
/// # Errors
/// What a table or the medium returned, and a wrong answer of an engine.
pub fn run(plan: &Plan, candidates: &[Candidate], said: &mut dyn FnMut(&str)) -> Result<Report> {
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    if plan.items < most || plan.threads.contains(&0) {
        let what = "a run with fewer pairs than threads; use more pairs".to_owned();
        return Err(Error::Unsupported { what });
    }
    let ground =
        Ground::new(plan.items.saturating_mul(16).max(64 << 20), plan.write_back, plan.hash)?;
    let mut samples = Samples::default();
    for round in 1..=plan.rounds {
        for &threads in &plan.threads {
            said(&format!("round {round}: ceilings, {threads} thread(s)"));
            ceilings(plan, &ground, threads, &mut samples);
            for candidate in candidates.iter().filter(|each| each.holds(plan.form)) {
                said(&format!("round {round}: {}, {threads} thread(s)", candidate.name));
                phases(plan, candidate, threads, &mut samples)?;
            }
        }
    }
    Ok(samples.report(plan))
}

fn ceilings(plan: &Plan, ground: &Ground, threads: u64, samples: &mut Samples) {
    // A fraction of the items is enough: ceilings have no phases that change the memory's state.
    let count = (plan.items / threads / 2).max(1);
    for ceiling in Ceiling::ALL {
        let took = ground.measure(ceiling, threads, count);
        samples.add_ceiling(ceiling, threads, count * threads, took);
    }
}

fn phases(plan: &Plan, candidate: &Candidate, threads: u64, samples: &mut Samples) -> Result<()> {
    let table = make(plan, &candidate.in_memory)?;
    let loaded = plan.items / threads * threads;
    let has_bare = table.bare().is_some();
    for phase in Phase::ALL.into_iter().filter(|phase| has_bare || !phase.is_bare()) {
        let share = plan.items / threads;
        let results: Vec<_> = std::thread::scope(|scope| {
            let table = table.as_ref();
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let share = Share { first: thread * share, count: share, items: loaded };
                    scope.spawn(move || run_share(table, phase, share))
                })
                .collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined.map(|done| done.expect("a share returns its errors")).collect()
        });
        let mut took = Took::default();
        let mut latency = Latency::histogram();
        for measured in results {
            let measured = measured?;
            took = took.beside(measured.took);
            latency.add(measured.latency).expect("histograms of one precision add up");
        }
        expect_count(table.as_ref(), phase, loaded)?;
        samples.add_phase(candidate.name, phase, threads, loaded, took, Latency::of(&latency));
    }
    table.close()
}

/// Compares the number of pairs with the expected one: a run is a test, too.
fn expect_count(table: &dyn Table, phase: Phase, loaded: u64) -> Result<()> {
    let is_empty = matches!(phase, Phase::Remove | Phase::RemoveBlind);
    let expected = if is_empty { 0 } else { loaded };
    let found = table.len()?;
    if found != expected {
        let what = format!("{found} pairs after '{}', not {expected}", phase.label());
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use everhash_testkit::reference::Reference;

    use super::*;

    impl Plan {
        /// One round of so many pairs of words by one thread.
        pub fn of(items: u64) -> Plan {
            Plan {
                items,
                form: Form::WORDS,
                threads: vec![1],
                rounds: 1,
                hash: HashKind::Xxh3,
                presized: true,
                settings: Vec::new(),
                write_back: WriteBack::None,
                durable_caches: false,
            }
        }
    }

    #[test]
    fn an_engine_that_cannot_hold_the_pairs_is_left_out() {
        // Fails if a run ended with an engine that has not the form; or if one that makes each
        // write durable by itself were measured as one that waits for others.
        let mut words = Candidate::of::<Reference>();
        assert!(words.holds(Form::Variable) && !words.batches());
        words.in_memory.capabilities.byte_strings = false;
        words.in_memory.capabilities.durability = &[Durability::Immediate, Durability::Batch];
        assert!(words.holds(Form::WORDS) && !words.holds(Form::Variable) && words.batches());
        let plan = Plan { form: Form::Variable, ..Plan::of(10) };
        let report = run(&plan, &[words], &mut |_| {}).unwrap();
        assert_eq!(report.rows.len(), Ceiling::ALL.len());
    }
}
