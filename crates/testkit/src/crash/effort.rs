//! How much the crash judge does, and what it has done.

use core::fmt;
use core::ops::Range;
use std::collections::BTreeSet;

use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_pmem::media::traced::Met;

use super::Violation;
use crate::workload::Workload;

/// How much the crash judge does.
#[derive(Clone, Debug)]
pub struct Effort {
    /// What a crash may leave.
    pub model: Model,
    /// One workload for each seed.
    pub seeds: Range<u64>,
    /// How many operations a workload has.
    pub operations: usize,
    /// How many different keys it has.
    pub keys: u16,
    /// To what length the medium can grow. Unit: bytes.
    pub capacity_bytes: u64,
    /// How many crashes follow each other at most; 1 for no crash inside a recovery.
    pub depth: u32,
    /// States of a crash point of the workload.
    pub limits: Limits,
    /// States of a crash point of a recovery and of the work after it.
    pub nested_limits: Limits,
    /// Of how many states one is crashed again.
    pub nested_one_in: u64,
    /// At how many crash points it is tried once that only the process ends.
    pub killed_one_in: u64,
    /// At how many crash points every state is read by the check before it is opened. It reads all
    /// of a pool, so that many more states of such a point differ.
    pub checked_one_in: u64,
    /// After how many states one dies, recovers, works on, closes and opens; the others remove and
    /// add again the key that was under way.
    pub restart_one_in: u64,
    /// After how many states one goes on long enough to grow, too.
    pub growth_one_in: u64,
    /// After how many states power is lost once more when the process after the crash has closed
    /// the pool.
    pub closed_one_in: u64,
    /// How many executions of one workload are judged at most.
    pub executions: u64,
    /// How many executions a violation may take to become short.
    pub shorten_executions: u64,
    /// Whether the medium overwrites a span as soon as the engine frees it, so that space freed
    /// before its unlinking is durable is found. Half of the seeds keep what was freed all the
    /// same, but for mutants: else nobody would meet old content that looks sound.
    pub overwrite_freed: bool,
    /// Whether operations are those of two threads, as it were, one after the other.
    pub by_turns: bool,
    /// How many threads; 0 for one per core.
    pub threads: usize,
    /// Called with a violation as it was found, and whenever it became shorter: shortening may take
    /// minutes.
    pub watch: fn(&Violation),
}

impl Default for Effort {
    /// 24 workloads of 100 operations on up to 40 keys, two crashes deep: some seconds.
    fn default() -> Effort {
        let small = Limits { product: 8, lazy: 0, single: 4, pairs: 2, random: 2, ..LIMITS };
        Effort {
            model: Model::Adr,
            seeds: 0..24,
            operations: 100,
            keys: 40,
            capacity_bytes: 256 << 10,
            depth: 2,
            limits: LIMITS,
            nested_limits: small,
            nested_one_in: 128,
            killed_one_in: 4,
            checked_one_in: 8,
            restart_one_in: 2,
            growth_one_in: 16,
            closed_one_in: 8,
            executions: u64::MAX,
            shorten_executions: 500_000,
            overwrite_freed: true,
            by_turns: false,
            threads: 0,
            watch: |_| (),
        }
    }
}

const LIMITS: Limits = Limits {
    product: 64,
    lazy: 128,
    single: 64,
    pairs: 64,
    random: 32,
    seed: 1,
    whole_places: false,
};

impl Effort {
    /// A few operations and crashes three deep: what power loss has torn is repeated by a recovery,
    /// and torn again. Nothing else is tried beside that.
    pub fn three_in_a_row() -> Effort {
        Effort {
            operations: 4,
            depth: 3,
            nested_one_in: 4,
            killed_one_in: 1,
            restart_one_in: 1 << 20,
            growth_one_in: 1 << 20,
            closed_one_in: 1 << 20,
            ..Effort::default()
        }
    }

    /// The same effort under another model.
    pub fn under(self, model: Model) -> Effort {
        Effort { model, ..self }
    }

    /// The effort for the workload of one seed.
    pub(super) fn of_seed(&self, seed: u64) -> Effort {
        // In pairs: every second seed restarts.
        let overwrite_freed = self.overwrite_freed && seed % 4 < 2;
        Effort { overwrite_freed, ..self.clone() }
    }

    /// Returns the workload of a seed: every bias in turn, with few keys and with many.
    pub fn workload(&self, seed: u64) -> Workload {
        Workload::of_seed(seed, self.operations, self.keys)
    }
}

/// What the crash judge counted. Equal for equal efforts on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Workloads.
    pub seeds: u64,
    /// Operations of the workloads.
    pub operations: u64,
    /// Crash points of the workloads.
    pub points: u64,
    /// Distinct states that a crash of power may leave in a workload.
    pub states: u64,
    /// How often only the process ended.
    pub killed: u64,
    /// Distinct states that a second or later crash may leave.
    pub nested: u64,
    /// Crash points, of all depths, whose states were all judged.
    pub complete: u64,
    /// Crash points, of all depths, of whose states a part was judged.
    pub sampled: u64,
}

/// What the crash judge did without finding anything.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was counted.
    pub counts: Counts,
    /// The sites that persisted something, and how.
    pub met: Met,
    /// How long it took. Unit: seconds.
    pub seconds: f64,
}

impl Report {
    /// Returns the states of all depths that were judged in a second, on all threads together.
    pub fn states_per_second(&self) -> f64 {
        (self.counts.states + self.counts.killed + self.counts.nested) as f64 / self.seconds
    }

    /// Returns those of the engine's sites that the judge never saw it use: paths that the
    /// workloads do not reach, or names that are left over.
    pub fn never_met(&self, sites: &[&[Site]]) -> Vec<Site> {
        let met: BTreeSet<Site> = self.met.sites().map(|(site, _, _)| site).collect();
        let all = sites.iter().copied().flatten();
        all.filter(|site| !met.contains(*site)).copied().collect()
    }

    pub(super) fn merge(&mut self, other: &Report) {
        let (ours, theirs) = (&mut self.counts, &other.counts);
        ours.operations += theirs.operations;
        ours.points += theirs.points;
        ours.states += theirs.states;
        ours.killed += theirs.killed;
        ours.nested += theirs.nested;
        ours.complete += theirs.complete;
        ours.sampled += theirs.sampled;
        self.met.merge(&other.met);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { seeds, operations, points, states, killed, nested, complete, sampled } =
            self.counts;
        write!(
            f,
            "{seeds} seeds, {operations} operations, {points} crash points, {states} states, \
             {killed} ended processes, {nested} states of nested crashes; {complete} points \
             complete, {sampled} sampled; {} sites met; {:.1} s, {:.0} states a second",
            self.met.sites().count(),
            self.seconds,
            self.states_per_second(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Bias;

    #[test]
    fn half_of_the_seeds_keep_what_was_freed() {
        // Fails if no judge meets old content that looks sound, or none a span that was freed too
        // early; or if only workloads of one kind do.
        let effort = Effort::default();
        for restarts in [true, false] {
            let kept =
                effort.seeds.clone().map(|seed| (effort.workload(seed), effort.of_seed(seed)));
            let kept = kept.filter(|(workload, _)| workload.restarts == restarts);
            let (kept, freed): (Vec<_>, Vec<_>) = kept.partition(|(_, it)| !it.overwrite_freed);
            assert_eq!(kept.len(), freed.len());
        }
        let keeping = Effort { overwrite_freed: false, ..effort };
        assert!((0..8).all(|seed| !keeping.of_seed(seed).overwrite_freed));
    }

    #[test]
    fn workloads_have_every_bias_with_few_keys_and_with_many() {
        // Fails if a kind of workload, or a table that grows or whose slots are used again, is
        // never crashed, with restarts or without.
        let effort = Effort { seeds: 0..60, ..Effort::default() };
        let kinds = effort.seeds.clone().map(|seed| {
            let Workload { bias, keys, restarts, .. } = effort.workload(seed);
            (format!("{bias:?}"), keys, restarts)
        });
        let kinds: BTreeSet<_> = kinds.collect();
        assert_eq!(kinds.len(), Bias::ALL.len() * 2 * 2, "{kinds:?}");
        assert!(kinds.iter().all(|(_, keys, _)| [6, effort.keys].contains(keys)));
    }

    #[test]
    fn the_counts_of_all_workloads_are_added_up() {
        // Fails if a report tells less than was done; or if a site that nobody came to is left out.
        let one = Counts {
            seeds: 0,
            operations: 1,
            points: 2,
            states: 3,
            killed: 4,
            nested: 5,
            complete: 6,
            sampled: 7,
        };
        let mut report = Report { counts: one, seconds: 2.0, ..Report::default() };
        report.merge(&Report { counts: one, ..Report::default() });
        let Counts { operations, points, states, killed, nested, complete, sampled, .. } =
            report.counts;
        assert_eq!([operations, points, states, killed], [2, 4, 6, 8]);
        assert_eq!([nested, complete, sampled], [10, 12, 14]);
        assert_eq!(report.states_per_second(), 12.0);
        const NEVER: Site = Site::new("effort/never");
        assert_eq!(report.never_met(&[&[NEVER]]), [NEVER]);
    }
}
