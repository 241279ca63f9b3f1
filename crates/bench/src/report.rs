//! What a run found: medians with their spread, ratios within a round, percentiles.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::ceilings::Ceiling;
use crate::clock::Took;
use crate::{Phase, Plan};

/// Minimum, median and maximum over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle one; of an even number the lower of the two.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Spread { min, median: values[(values.len() - 1) / 2], max })
    }
}

/// Percentiles of the operations that were timed on their own. Unit: nanoseconds, wall time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of them took at most this.
    pub p50: u64,
    /// 99 of 100 took at most this.
    pub p99: u64,
    /// 999 of 1000 took at most this.
    pub p99_9: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// Returns an empty histogram for up to a minute; longer counts as a minute.
    pub(crate) fn histogram() -> Histogram<u64> {
        const MINUTE_NS: u64 = 60_000_000_000;
        Histogram::new_with_bounds(1, MINUTE_NS, 3).expect("the bounds and digits are valid")
    }

    /// Returns the percentiles, or `None` where nothing was timed on its own.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        (!histogram.is_empty()).then(|| Latency {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p99_9: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

/// One line of a report: an engine's phase, or a ceiling of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The engine, or `machine`.
    pub who: &'static str,
    /// The phase or ceiling.
    pub what: &'static str,
    /// How many threads, side by side.
    pub threads: u64,
    /// Operations per second of CPU time of the slowest thread. Unit: millions.
    pub cpu_mops: Spread,
    /// Operations per second by the wall. Unit: millions.
    pub wall_mops: Spread,
    /// The ceiling that the phase is compared with.
    pub ceiling: Option<Ceiling>,
    /// CPU rate as a part of that ceiling in the same round.
    pub ratio: Option<Spread>,
    /// Percentiles over all rounds: the median of each round's.
    pub latency: Option<Latency>,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Pairs that were loaded.
    pub items: u64,
    /// The form of the pairs.
    pub form: String,
    /// The hash function of the tables.
    pub hash: String,
    /// Whether tables were made for the number of pairs.
    pub presized: bool,
    /// The instruction behind a flush.
    pub write_back: String,
    /// Whether the medium of the tables claimed durable caches: they did not flush.
    pub durable_caches: bool,
    /// How often everything was repeated.
    pub rounds: u32,
    /// Ceilings first, then engines in order.
    pub rows: Vec<Row>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Ceiling(Ceiling),
    Phase(&'static str, Phase),
}

struct Sample {
    what: What,
    threads: u64,
    cpu_mops: f64,
    wall_mops: f64,
    ratio: Option<f64>,
    latency: Option<Latency>,
}

/// Everything that a run measured, round by round.
#[derive(Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    pub(crate) fn add_ceiling(&mut self, ceiling: Ceiling, threads: u64, count: u64, took: Took) {
        self.push(What::Ceiling(ceiling), threads, count, took, None);
    }

    pub(crate) fn add_phase(
        &mut self,
        engine: &'static str,
        phase: Phase,
        threads: u64,
        count: u64,
        took: Took,
        latency: Option<Latency>,
    ) {
        self.push(What::Phase(engine, phase), threads, count, took, latency);
    }

    fn push(&mut self, what: What, threads: u64, count: u64, took: Took, latency: Option<Latency>) {
        let per = |time: core::time::Duration| count as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        let (cpu_mops, wall_mops) = (per(took.cpu), per(took.wall));
        let ratio = match what {
            What::Ceiling(_) => None,
            // The last one measured is that of this round and this number of threads.
            What::Phase(_, phase) => self.latest(phase.ceiling(), threads).map(|c| cpu_mops / c),
        };
        self.0.push(Sample { what, threads, cpu_mops, wall_mops, ratio, latency });
    }

    fn latest(&self, ceiling: Ceiling, threads: u64) -> Option<f64> {
        let wanted = |s: &&Sample| s.what == What::Ceiling(ceiling) && s.threads == threads;
        self.0.iter().rev().find(wanted).map(|sample| sample.cpu_mops)
    }

    pub(crate) fn report(&self, plan: &Plan) -> Report {
        let mut series: Vec<(What, u64)> = Vec::new();
        for sample in &self.0 {
            if !series.contains(&(sample.what, sample.threads)) {
                series.push((sample.what, sample.threads));
            }
        }
        series.sort_by_key(|(what, _)| matches!(what, What::Phase(..)));
        Report {
            items: plan.items,
            form: plan.form.to_string(),
            hash: plan.hash.to_string(),
            presized: plan.presized,
            write_back: format!("{:?}", plan.write_back).to_lowercase(),
            durable_caches: plan.durable_caches,
            rounds: plan.rounds,
            rows: series
                .into_iter()
                .filter_map(|(what, threads)| self.row(what, threads))
                .collect(),
        }
    }

    fn row(&self, what: What, threads: u64) -> Option<Row> {
        let of: Vec<_> = self.0.iter().filter(|s| s.what == what && s.threads == threads).collect();
        let spread = |f: fn(&Sample) -> f64| Spread::of(of.iter().map(|s| f(s)).collect());
        let (who, label, ceiling) = match what {
            What::Ceiling(ceiling) => ("machine", ceiling.label(), None),
            What::Phase(engine, phase) => (engine, phase.label(), Some(phase.ceiling())),
        };
        Some(Row {
            who,
            what: label,
            threads,
            cpu_mops: spread(|s| s.cpu_mops)?,
            wall_mops: spread(|s| s.wall_mops)?,
            ceiling,
            ratio: Spread::of(of.iter().filter_map(|s| s.ratio).collect()),
            latency: median_latency(of.iter().filter_map(|s| s.latency).collect()),
        })
    }
}

fn median_latency(all: Vec<Latency>) -> Option<Latency> {
    let median = |f: fn(&Latency) -> u64| {
        let mut values: Vec<_> = all.iter().map(f).collect();
        values.sort_unstable();
        values.get(values.len().saturating_sub(1) / 2).copied()
    };
    Some(Latency {
        p50: median(|l| l.p50)?,
        p99: median(|l| l.p99)?,
        p99_9: median(|l| l.p99_9)?,
        max: all.iter().map(|l| l.max).max()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_second_is_not_cut_short() {
        // Fails if the histogram saturated below what an operation can take.
        let mut histogram = Latency::histogram();
        histogram.saturating_record(1_000_000_000);
        assert!(Latency::of(&histogram).unwrap().max >= 1_000_000_000);
    }

    #[test]
    fn a_ratio_compares_with_the_ceiling_of_its_own_round() {
        // Fails if the rounds were mixed: then a slow moment of the machine would count once.
        let took = |ms| Took { wall: Duration::from_millis(ms), cpu: Duration::from_millis(ms) };
        let mut samples = Samples::default();
        for ms in [10, 20, 40] {
            samples.add_ceiling(Ceiling::Read, 1, 1000, took(ms));
            samples.add_phase("demo", Phase::Get, 1, 1000, took(4 * ms), None);
        }
        let row = samples.row(What::Phase("demo", Phase::Get), 1).unwrap();
        let ratio = row.ratio.unwrap();
        assert!((ratio.min - 0.25).abs() < 1e-9 && (ratio.max - 0.25).abs() < 1e-9);
        assert!(row.cpu_mops.min < row.cpu_mops.median && row.cpu_mops.median < row.cpu_mops.max);
    }

    #[test]
    fn a_spread_is_the_least_the_middle_and_the_most() {
        // Fails if a figure that is printed as the median were another one.
        let spread = Spread::of(vec![5.0, 1.0, 4.0, 2.0]).unwrap();
        assert_eq!([spread.min, spread.median, spread.max], [1.0, 2.0, 5.0]);
        assert_eq!(Spread::of(vec![3.0, 9.0, 1.0]).unwrap().median, 3.0);
        assert!(Spread::of(vec![]).is_none());
    }

    #[test]
    fn a_latency_is_that_of_its_part_of_the_calls() {
        // Fails if a tail were that of fewer or of more calls, or if the longest call were averaged
        // away.
        let mut histogram = Latency::histogram();
        (1..=1000).for_each(|nanoseconds| histogram.saturating_record(nanoseconds));
        let latency = Latency::of(&histogram).unwrap();
        assert_eq!([latency.p50, latency.p99, latency.p99_9, latency.max], [500, 990, 999, 1000]);
        let round = |p50, max| Latency { p50, p99: 7, p99_9: 8, max };
        let all = median_latency(vec![round(1, 10), round(3, 90), round(2, 20)]).unwrap();
        assert_eq!([all.p50, all.p99, all.p99_9, all.max], [2, 7, 8, 90]);
    }

    #[test]
    fn a_ratio_compares_with_as_many_threads() {
        // Fails if one thread were held against two, or if an operation had another one's ceiling.
        let took = |ms| Took { wall: Duration::from_millis(ms), cpu: Duration::from_millis(ms) };
        let mut samples = Samples::default();
        for (ceiling, ms) in
            [(Ceiling::Read, 10), (Ceiling::Persist, 20), (Ceiling::DoublePersist, 40)]
        {
            samples.add_ceiling(ceiling, 1, 1000, took(ms));
            samples.add_ceiling(ceiling, 2, 1000, took(ms / 10));
        }
        for phase in Phase::ALL {
            let ratio = match phase {
                Phase::Get | Phase::GetAbsent | Phase::GetMany => 0.125,
                Phase::Remove | Phase::RemoveBlind => 0.25,
                // A pair and what makes it true.
                _ => 0.5,
            };
            samples.add_phase("demo", phase, 1, 1000, took(80), None);
            let row = samples.row(What::Phase("demo", phase), 1).unwrap();
            assert!((row.ratio.unwrap().median - ratio).abs() < 1e-9, "{phase:?}: {row:?}");
        }
    }

    #[test]
    fn a_row_has_the_figures_of_its_series_and_its_own_clock() {
        // Fails if CPU time stood for time by the wall, if a unit were another one, or if a row
        // were made of the samples of other threads.
        let took = Took { wall: Duration::from_millis(4), cpu: Duration::from_millis(2) };
        let mut samples = Samples::default();
        samples.add_phase("demo", Phase::Get, 1, 8000, took, None);
        samples.add_ceiling(Ceiling::Read, 1, 16_000, took);
        samples.add_ceiling(Ceiling::Persist, 2, 8000, took);
        samples.add_phase("demo", Phase::Get, 1, 8000, took, None);
        samples.add_phase("demo", Phase::Remove, 2, 4000, took, None);
        samples.add_phase("demo", Phase::Get, 2, 2000, took, None);
        let plan = Plan {
            items: 9,
            form: everhash_index::Form::WORDS,
            threads: vec![1, 2],
            rounds: 3,
            hash: everhash_index::HashKind::Rapid,
            presized: true,
            settings: Vec::new(),
            write_back: everhash_pmem::WriteBack::Clflushopt,
            durable_caches: true,
        };
        let report = samples.report(&plan);
        assert_eq!((report.items, report.rounds, report.presized), (9, 3, true));
        assert_eq!(
            (&*report.form, &*report.hash, &*report.write_back),
            ("8/8", "rapid", "clflushopt")
        );
        assert!(report.durable_caches);
        let row =
            |row: &Row| (row.who, row.threads, row.cpu_mops.max, row.wall_mops.max, row.ceiling);
        let rows: Vec<_> = report.rows.iter().map(row).collect();
        assert_eq!(
            rows,
            [
                ("machine", 1, 8.0, 4.0, None),
                ("machine", 2, 4.0, 2.0, None),
                ("demo", 1, 4.0, 2.0, Some(Ceiling::Read)),
                ("demo", 2, 2.0, 1.0, Some(Ceiling::Persist)),
                ("demo", 2, 1.0, 0.5, Some(Ceiling::Read)),
            ]
        );
        let ratios: Vec<_> = report.rows.iter().map(|row| row.ratio.map(|it| it.max)).collect();
        assert_eq!(ratios, [None, None, Some(0.5), Some(0.5), None]);
    }
}
