//! Mutants: one site of an engine with one change of its work.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use crate::Site;

/// A verb that names its site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// The begin of a write-back.
    Flush,
    /// A wait for write-backs.
    Fence,
    /// A sync of everything.
    Sync,
    /// A store that makes a change true.
    Commit,
    /// A store past the caches.
    NonTemporal,
}

/// The change that a mutant makes at its site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Change {
    /// The flush is omitted.
    DropFlush,
    /// Of several lines, only the first is written back.
    FirstLineOnly,
    /// Of several lines, the last is not written back.
    AllButLastLine,
    /// The fence is omitted; write-backs stay pending.
    DropFence,
    /// The sync is omitted.
    DropSync,
    /// The commit store is omitted.
    DropCommit,
    /// The commit store happens before the store of the same thread that preceded it.
    SwapCommit,
    /// The fence does not cover the stores past the caches.
    UnfencedStore,
}

impl Change {
    const ALL: [Change; 8] = [
        Change::DropFlush,
        Change::FirstLineOnly,
        Change::AllButLastLine,
        Change::DropFence,
        Change::DropSync,
        Change::DropCommit,
        Change::SwapCommit,
        Change::UnfencedStore,
    ];

    /// Returns the short name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Change::DropFlush => "drop-flush",
            Change::FirstLineOnly => "first-line-only",
            Change::AllButLastLine => "all-but-last-line",
            Change::DropFence => "drop-fence",
            Change::DropSync => "drop-sync",
            Change::DropCommit => "drop-commit",
            Change::SwapCommit => "swap-commit",
            Change::UnfencedStore => "unfenced-store",
        }
    }
}

impl FromStr for Change {
    type Err = UnknownChange;

    fn from_str(name: &str) -> Result<Change, UnknownChange> {
        let found = Self::ALL.into_iter().find(|change| change.name() == name);
        found.ok_or_else(|| UnknownChange(name.to_string()))
    }
}

/// A text does not name a change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no mutant \"{0}\"; names are like drop-flush and swap-commit")]
pub struct UnknownChange(String);

/// A site and its change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mutant {
    /// The site.
    pub site: Site,
    /// The change.
    pub change: Change,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.site.name(), self.change.name())
    }
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The verbs of the sites of an engine in one or more runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Met {
    sites: BTreeMap<(Site, Verb), Seen>,
}

/// How often a site used a verb, and which mutants are meaningful there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    times: u64,
    /// A flush wrote back several lines at once.
    several_lines: bool,
    /// A commit store followed another store of its thread.
    follows_store: bool,
}

impl Met {
    pub(super) fn note(&mut self, site: Site, verb: Verb) {
        self.sites.entry((site, verb)).or_default().times += 1;
    }

    pub(super) fn note_several_lines(&mut self, site: Site) {
        self.sites.entry((site, Verb::Flush)).or_default().several_lines = true;
    }

    pub(super) fn note_follows_store(&mut self, site: Site) {
        self.sites.entry((site, Verb::Commit)).or_default().follows_store = true;
    }

    /// Adds the verbs of other runs.
    pub fn merge(&mut self, other: &Met) {
        for (key, theirs) in &other.sites {
            let ours = self.sites.entry(*key).or_default();
            ours.times += theirs.times;
            ours.several_lines |= theirs.several_lines;
            ours.follows_store |= theirs.follows_store;
        }
    }

    /// Returns every site with each verb that it used and how often, sorted.
    pub fn sites(&self) -> impl Iterator<Item = (Site, Verb, u64)> {
        self.sites.iter().map(|((site, verb), seen)| (*site, *verb, seen.times))
    }

    /// Returns every mutant that these sites allow, sorted.
    pub fn mutants(&self) -> Vec<Mutant> {
        let mut mutants = Vec::new();
        for ((site, verb), seen) in &self.sites {
            let changes: &[Change] = match verb {
                Verb::Flush if seen.several_lines => {
                    &[Change::DropFlush, Change::FirstLineOnly, Change::AllButLastLine]
                }
                Verb::Flush => &[Change::DropFlush],
                Verb::Fence => &[Change::DropFence],
                Verb::Sync => &[Change::DropSync],
                Verb::Commit if seen.follows_store => &[Change::DropCommit, Change::SwapCommit],
                Verb::Commit => &[Change::DropCommit],
                Verb::NonTemporal => &[Change::UnfencedStore],
            };
            mutants.extend(changes.iter().map(|change| Mutant { site: *site, change: *change }));
        }
        mutants
    }

    /// Returns those of the mutants that a crash can tell from the engine where visible is durable:
    /// a flush does nothing there, and a fence completes nothing but stores past the caches.
    pub fn mutants_with_durable_caches(&self) -> Vec<Mutant> {
        let mut mutants = self.mutants();
        mutants.retain(|mutant| match mutant.change {
            Change::DropCommit | Change::SwapCommit | Change::UnfencedStore => true,
            Change::DropFence => self.sites.contains_key(&(mutant.site, Verb::NonTemporal)),
            Change::DropFlush
            | Change::FirstLineOnly
            | Change::AllButLastLine
            | Change::DropSync => false,
        });
        mutants
    }
}
