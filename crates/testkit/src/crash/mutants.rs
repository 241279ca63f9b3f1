//! Mutants: one flush, fence or commit store of an engine is left out, and the judge must notice.

use core::fmt;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use everhash_index::{Design, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_pmem::media::traced::{Met, Mutant, Traced};

use super::checker::CrashChecker;
use super::effort::Effort;
use super::violation::Violation;
use super::{judge, parallel};
use crate::Failure;

/// How many executions of a workload show what an engine persists.
///
/// Source: ours; more than a workload has crash points.
const MEETING_EXECUTIONS: u64 = 1000;

/// Whether a mutant was killed.
#[derive(Clone, Debug)]
pub struct MutantOutcome {
    /// The site, and the instruction that was left out there.
    pub mutant: Mutant,
    /// How the judge noticed it; `None` if it survived.
    pub detection: Option<Detection>,
}

/// How the judge noticed a mutant.
#[derive(Clone, Debug)]
pub struct Detection {
    /// Under which model.
    pub model: Model,
    /// With which seed.
    pub seed: u64,
    /// After how many states of that seed.
    pub states: u64,
    /// What was wrong.
    pub failure: Failure,
}

impl fmt::Display for MutantOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mutant = self.mutant;
        match &self.detection {
            None => write!(f, "survived  {mutant}"),
            Some(Detection { model, seed, states, failure }) => {
                write!(f, "killed    {mutant}: {model}, seed {seed}, {states} states: {failure}")
            }
        }
    }
}

/// Mutates every site that the efforts reach, and judges each mutant by one effort after the other
/// that reaches it, until it is killed. Where caches are durable, a flush or a fence that is left
/// out changes nothing: only the order of stores is judged there.
///
/// A surviving mutant shows either a needless instruction or a blind spot of the judges. The sites
/// of the pool are not the engine's; a judge of the pool covers them.
///
/// # Errors
/// The violation of the unchanged engine, if a workload that kills a mutant finds one.
pub fn mutants(
    design: &Design<Traced>,
    form: Form,
    efforts: &[Effort],
) -> Result<Vec<MutantOutcome>, Box<Violation>> {
    mutants_among(design, form, efforts, &|_| u64::MAX, &|_| ())
}

/// As [`mutants`], but judges a mutant by as many seeds of each effort as `seeds` says at most;
/// one with 0 is left out. `told` hears of each outcome at once: a mutant that survives takes long.
///
/// # Errors
/// As [`mutants`].
pub fn mutants_among(
    design: &Design<Traced>,
    form: Form,
    efforts: &[Effort],
    seeds: &(dyn Fn(&Mutant) -> u64 + Sync),
    told: &(dyn Fn(&MutantOutcome) + Sync),
) -> Result<Vec<MutantOutcome>, Box<Violation>> {
    let threads = efforts.first().map_or(0, |effort| effort.threads);
    let ours: BTreeSet<Site> = design.sites.iter().copied().flatten().copied().collect();
    let durable = |effort: &Effort| effort.model == Model::Eadr;
    let with_durable = meet(design, form, efforts, durable)?.mutants_with_durable_caches();
    let with_volatile = meet(design, form, efforts, |effort| !durable(effort))?.mutants();
    let mut mutants: BTreeSet<Mutant> =
        with_durable.iter().chain(&with_volatile).copied().collect();
    mutants.retain(|mutant| ours.contains(&mutant.site) && seeds(mutant) > 0);
    let mutants = Vec::from_iter(mutants);
    let outcomes = parallel::until_first_error(threads, &mutants, |mutant| {
        let tells = |effort: &&Effort| {
            if durable(effort) { &with_durable } else { &with_volatile }.contains(mutant)
        };
        let mut kills = efforts.iter().filter(tells).map(|effort| {
            let Range { start, end } = effort.seeds;
            let end = end.min(start.saturating_add(seeds(mutant)));
            kill(design, form, &Effort { seeds: start..end, ..effort.clone() }, *mutant)
        });
        let detection = kills.find_map(|detection| detection);
        let outcome = MutantOutcome { mutant: *mutant, detection };
        told(&outcome);
        Ok::<_, core::convert::Infallible>(outcome)
    });
    let Ok(outcomes) = outcomes;
    confirm_baseline(design, form, efforts, &outcomes)?;
    Ok(outcomes)
}

/// As [`mutants`], for a test: for one engine with different settings and with some forms, first by
/// a little of every workload and then by all of it. Prints what became of each mutant, and returns
/// those of the engine's own sites that were noticed nowhere and that its `exceptions` do not name.
///
/// # Errors
/// As [`mutants`].
pub fn survivors(
    designs: &[Design<Traced>],
    forms: &[Form],
    efforts: &[Effort],
    exceptions: &str,
) -> Result<BTreeSet<Mutant>, Box<Violation>> {
    let (mut met, mut killed) = (BTreeSet::new(), BTreeSet::new());
    for executions in [MEETING_EXECUTIONS, u64::MAX] {
        let efforts: Vec<Effort> =
            efforts.iter().map(|effort| Effort { executions, ..effort.clone() }).collect();
        let each = designs.iter().flat_map(|design| forms.iter().map(move |form| (design, form)));
        for (design, form) in each {
            let seeds = |mutant: &Mutant| if killed.contains(mutant) { 0 } else { u64::MAX };
            let told = |outcome: &MutantOutcome| println!("{form}: {outcome}");
            for outcome in mutants_among(design, *form, &efforts, &seeds, &told)? {
                met.insert(outcome.mutant);
                if outcome.detection.is_some() {
                    killed.insert(outcome.mutant);
                }
            }
        }
    }
    println!("{} mutants killed", killed.len());
    let own = |mutant: &&Mutant| {
        let engine = mutant.site.name().split('/').next();
        designs.iter().any(|design| engine == Some(design.name))
    };
    let excused = |mutant: &Mutant| exceptions.contains(&format!("\"{mutant}\""));
    let survived = met.difference(&killed).filter(own);
    Ok(survived.filter(|mutant| !excused(mutant)).copied().collect())
}

/// Runs the workloads of those efforts that are `wanted`, with a few crashes of each; returns what
/// the engine persists in them.
fn meet(
    design: &Design<Traced>,
    form: Form,
    efforts: &[Effort],
    wanted: impl Fn(&Effort) -> bool,
) -> Result<Met, Box<Violation>> {
    let mut met = Met::default();
    for effort in efforts.iter().filter(|effort| wanted(effort)) {
        let limits = Limits::NONE_AND_ALL;
        let few = Effort { limits, depth: 1, executions: MEETING_EXECUTIONS, ..effort.clone() };
        met.merge(&judge(design, form, &few)?.met);
    }
    Ok(met)
}

fn kill(design: &Design<Traced>, form: Form, effort: &Effort, mutant: Mutant) -> Option<Detection> {
    effort.seeds.clone().find_map(|seed| {
        let mut checker = CrashChecker::new(design, form, effort, Some(mutant));
        let found = checker.try_seed(&effort.workload(seed).generate()).err()?;
        let (model, states) = (effort.model, checker.executions());
        Some(Detection { model, seed, states, failure: found.failure })
    })
}

/// Judges the unchanged engine by the workloads that killed a mutant, up to the same number of
/// executions: only the mutation may cause the violation.
fn confirm_baseline(
    design: &Design<Traced>,
    form: Form,
    efforts: &[Effort],
    outcomes: &[MutantOutcome],
) -> Result<(), Box<Violation>> {
    for effort in efforts {
        let mut executions = BTreeMap::new();
        let detections = outcomes.iter().filter_map(|outcome| outcome.detection.as_ref());
        for detection in detections.filter(|detection| detection.model == effort.model) {
            let most: &mut u64 = executions.entry(detection.seed).or_default();
            *most = detection.states.max(*most);
        }
        for (seed, executions) in executions {
            judge(design, form, &Effort { seeds: seed..seed + 1, executions, ..effort.clone() })?;
        }
    }
    Ok(())
}
