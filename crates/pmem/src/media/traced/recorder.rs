//! The recorder: writes the log and applies the mutant.

use core::ops::Range;

use super::TracedContext;
use super::lazy::Undecided;
use super::mutant::{Change, Met, Mutant, Verb};
use crate::Site;
use crate::crash::{Event, How, Log, What};

#[derive(Debug, Default)]
pub(super) struct Recorder {
    events: Vec<Event>,
    threads: Vec<Thread>,
    releases: u64,
    pub mutant: Option<Mutant>,
    /// The first event that the mutant changed or left out since the last restart.
    pub first_change: Option<usize>,
    pub met: Met,
    pub undecided: Option<Undecided>,
}

#[derive(Debug)]
struct Thread {
    /// The number that the primitives gave it; its number in the log is its index.
    name: u32,
    /// The event of its newest store, if its operation has made one.
    newest_store: Option<usize>,
}

impl Recorder {
    /// Begins a new log. Mutant and sites met stay.
    pub fn restart(&mut self) {
        self.events.clear();
        self.threads.clear();
        self.releases = 0;
        self.first_change = None;
    }

    pub fn take(&mut self) -> Log {
        self.threads.iter_mut().for_each(|thread| thread.newest_store = None);
        Log::new(core::mem::take(&mut self.events))
    }

    pub fn length(&self) -> usize {
        self.events.len()
    }

    /// Writes an event that no mutant changes.
    pub fn note(&mut self, thread: u32, site: Option<Site>, what: What) {
        let thread = self.number(thread);
        if matches!(what, What::Begin { .. } | What::Return { .. }) {
            self.threads[thread as usize].newest_store = None;
        }
        self.events.push(Event { thread, access: 0, site, what });
    }

    /// Writes a store; returns whether it happens at all.
    pub fn store(
        &mut self,
        TracedContext { thread, access }: TracedContext,
        word: u32,
        value: u64,
        mut how: How,
        site: Option<Site>,
    ) -> bool {
        let thread = self.number(thread);
        let previous = self.threads[thread as usize].newest_store;
        let mut swap = None;
        match (how, site) {
            (How::Commit, Some(site)) => {
                self.met.note(site, Verb::Commit);
                let other = previous.filter(|event| !self.stores_to(*event, word));
                if other.is_some() {
                    self.met.note_follows_store(site);
                }
                if self.changes(site, Change::DropCommit) {
                    return false;
                }
                swap = other.filter(|_| self.changes(site, Change::SwapCommit));
                if let Some(other) = swap {
                    self.first_change = self.first_change.map(|first| first.min(other));
                }
            }
            (How::NonTemporal, Some(site)) => {
                self.met.note(site, Verb::NonTemporal);
                if self.changes(site, Change::UnfencedStore) {
                    how = How::Unfenced;
                }
            }
            _ => {}
        }
        self.threads[thread as usize].newest_store = Some(self.events.len());
        self.events.push(Event { thread, access, site, what: What::Store { word, value, how } });
        if let Some(previous) = swap {
            let newest = self.events.len() - 1;
            self.events.swap(previous, newest);
        }
        true
    }

    pub fn flush(&mut self, cx: TracedContext, lines: Range<u32>, site: Site) {
        let TracedContext { thread, access } = cx;
        let thread = self.number(thread);
        let Range { start: line, end } = lines;
        let mut count = end - line;
        self.met.note(site, Verb::Flush);
        if count > 1 {
            self.met.note_several_lines(site);
            if self.changes(site, Change::FirstLineOnly) {
                count = 1;
            } else if self.changes(site, Change::AllButLastLine) {
                count -= 1;
            }
        }
        if !self.changes(site, Change::DropFlush) {
            let (site, what) = (Some(site), What::Flush { line, count });
            self.events.push(Event { thread, access, site, what });
        }
    }

    /// Writes a fence or a sync.
    pub fn wait(&mut self, cx: TracedContext, verb: Verb, site: Site) {
        let TracedContext { thread, access } = cx;
        let thread = self.number(thread);
        self.met.note(site, verb);
        let (what, dropped) = match verb {
            Verb::Sync => (What::Sync, Change::DropSync),
            _ => (What::Fence, Change::DropFence),
        };
        if !self.changes(site, dropped) {
            self.events.push(Event { thread, access, site: Some(site), what });
        }
    }

    /// Returns whether the span that is released now becomes zero: every second one.
    pub fn release_zeroes(&mut self) -> bool {
        self.releases += 1;
        self.releases % 2 == 1
    }

    /// Returns whether the mutant does this at the event that comes next, and notes that.
    fn changes(&mut self, site: Site, change: Change) -> bool {
        let changes = self.mutant == Some(Mutant { site, change });
        if changes {
            self.first_change.get_or_insert(self.events.len());
        }
        changes
    }

    fn stores_to(&self, event: usize, word: u32) -> bool {
        matches!(self.events[event].what, What::Store { word: other, .. } if other == word)
    }

    /// Numbers threads in the order of their first events, so that equal runs have equal logs.
    fn number(&mut self, name: u32) -> u32 {
        if let Some(index) = self.threads.iter().position(|thread| thread.name == name) {
            return index as u32;
        }
        self.threads.push(Thread { name, newest_store: None });
        self.threads.len() as u32 - 1
    }
}
