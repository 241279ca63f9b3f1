//! Mutants: every site of an engine, with what it does left out, until the judge notices.

use core::fmt;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use everhash_index::{Engine, Form};
use everhash_pmem::Site;
use everhash_pmem::crash::{Limits, Model};
use everhash_pmem::media::traced::{Met, Mutant};

use super::court::Court;
use super::effort::Effort;
use super::violation::Violation;
use super::{judge, parallel};
use crate::Complaint;

/// How many lives of a workload show what an engine persists.
///
/// Source: ours; more than a workload has crash points.
const MEETING_LIVES: u64 = 1000;

/// What became of a mutant.
#[derive(Clone, Debug)]
pub struct Fate {
    /// The site and what it did no longer.
    pub mutant: Mutant,
    /// How it was noticed; `None` if it survived.
    pub death: Option<Death>,
}

/// How a mutant was noticed.
#[derive(Clone, Debug)]
pub struct Death {
    /// Under which model.
    pub model: Model,
    /// With which seed.
    pub seed: u64,
    /// After how many states of that seed.
    pub states: u64,
    /// What was wrong.
    pub complaint: Complaint,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mutant = self.mutant;
        match &self.death {
            None => write!(f, "survived  {mutant}"),
            Some(Death { model, seed, states, complaint }) => {
                write!(f, "killed    {mutant}: {model}, seed {seed}, {states} states: {complaint}")
            }
        }
    }
}

/// Mutates every site that the efforts meet, and judges each mutant by one effort after the other
/// until it is noticed.
///
/// A mutant that survives is either an instruction that nobody needs or a hole in the judges. The
/// sites of the pool are not the engine's: they have a judge of their own, which knows more of it.
///
/// # Errors
/// The violation of the engine as it is, if a workload that has noticed a mutant finds one.
pub fn mutants<E: Engine>(form: Form, efforts: &[Effort]) -> Result<Vec<Fate>, Box<Violation>> {
    mutants_among::<E>(form, efforts, &|_| u64::MAX)
}

/// As [`mutants`], but judges a mutant by as many seeds of each effort as `seeds` says at most;
/// one with 0 is left out.
///
/// # Errors
/// As [`mutants`].
pub fn mutants_among<E: Engine>(
    form: Form,
    efforts: &[Effort],
    seeds: &(dyn Fn(&Mutant) -> u64 + Sync),
) -> Result<Vec<Fate>, Box<Violation>> {
    let threads = efforts.first().map_or(0, |effort| effort.threads);
    let ours: BTreeSet<Site> = E::SITES.iter().copied().flatten().copied().collect();
    let mut mutants = meet::<E>(form, efforts)?.mutants();
    mutants.retain(|mutant| ours.contains(&mutant.site) && seeds(mutant) > 0);
    let fates = parallel::until_first_error(threads, &mutants, |mutant| {
        let mut kills = efforts.iter().map(|effort| {
            let Range { start, end } = effort.seeds;
            let end = end.min(start.saturating_add(seeds(mutant)));
            kill::<E>(form, &Effort { seeds: start..end, ..effort.clone() }, *mutant)
        });
        let death = kills.find_map(|death| death);
        Ok::<_, core::convert::Infallible>(Fate { mutant: *mutant, death })
    });
    let Ok(fates) = fates;
    acquit::<E>(form, efforts, &fates)?;
    Ok(fates)
}

/// Runs every workload, with a few crashes of each, and returns what the engine persists in them.
fn meet<E: Engine>(form: Form, efforts: &[Effort]) -> Result<Met, Box<Violation>> {
    let mut met = Met::default();
    for effort in efforts {
        let limits = Limits::NONE_AND_ALL;
        let few = Effort { limits, depth: 1, lives: MEETING_LIVES, ..effort.clone() };
        met.merge(&judge::<E>(form, &few)?.met);
    }
    Ok(met)
}

fn kill<E: Engine>(form: Form, effort: &Effort, mutant: Mutant) -> Option<Death> {
    effort.seeds.clone().find_map(|seed| {
        let mut court = Court::<E>::new(form, effort, Some(mutant));
        let found = court.try_seed(&effort.workload(seed).generate()).err()?;
        let (model, states) = (effort.model, court.lives());
        Some(Death { model, seed, states, complaint: found.complaint })
    })
}

/// Judges the engine as it is by the workloads that have noticed a mutant, as far as they needed to
/// go: what is noticed there shall be the mutant's doing.
fn acquit<E: Engine>(form: Form, efforts: &[Effort], fates: &[Fate]) -> Result<(), Box<Violation>> {
    for effort in efforts {
        let mut lives = BTreeMap::new();
        let deaths = fates.iter().filter_map(|fate| fate.death.as_ref());
        for death in deaths.filter(|death| death.model == effort.model) {
            let most: &mut u64 = lives.entry(death.seed).or_default();
            *most = death.states.max(*most);
        }
        for (seed, lives) in lives {
            judge::<E>(form, &Effort { seeds: seed..seed + 1, lives, ..effort.clone() })?;
        }
    }
    Ok(())
}
