//! The explorer: replays a log and stops at every crash point.

use core::ops::ControlFlow;

use super::log::{Event, How, What};
use super::memory::Memory;
use super::name::{Name, NoSuchState};
use super::seen::Seen;
use super::state::State;
use super::units::Units;
use super::walk::{Count, Limits, Walk};
use crate::Site;

/// The moment of a crash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// How many events of the log have happened.
    pub event: usize,
    /// How many operations have returned.
    pub returned: u32,
    /// The operations in flight, by the caller's numbers.
    pub in_flight: Vec<u32>,
    /// The site of the event before which the crash comes, if it has one.
    pub site: Option<Site>,
}

/// Replays a log over a memory and enumerates the images that a crash may leave.
///
/// The crash points are: before every fence, sync, growth, release, free and mark; after every
/// return; before and after every store through the caches of a model in which visible is durable;
/// before a store past the caches that evicts what a killed process left in its line; the end of
/// the log. A point is skipped if no crash can tell it from the one before. Between two
/// points the set of possible images only grows, so a crash in between leaves no image that the
/// next point lacks: a store past the caches stays pending until a fence.
#[derive(Debug)]
pub struct Explorer<'l> {
    memory: Memory,
    log: &'l [Event],
    moment: Moment,
    /// Whether a crash can tell this point from the last one.
    fresh: bool,
    /// The event of the last reported point, if the replay is still there.
    reported: Option<usize>,
    units: Units,
    count: Count,
}

impl<'l> Explorer<'l> {
    /// Begins at the start of `log`, whose run began in `memory`.
    pub fn new(memory: Memory, log: &'l [Event]) -> Explorer<'l> {
        Explorer {
            memory,
            log,
            moment: Moment::default(),
            fresh: false,
            reported: None,
            units: Units::default(),
            count: Count::default(),
        }
    }

    /// Advances to the next crash point; `None` after the last one.
    pub fn next_point(&mut self) -> Option<&Moment> {
        loop {
            let here = self.moment.event;
            let event = self.log.get(here);
            // A pool that was just closed may look as before, and counts as closed.
            let ends = event.is_some_and(|event| event.what == What::Exit);
            let is_new = (self.fresh || ends) && self.reported != Some(here);
            if is_new && self.stops_before(event) {
                self.fresh = false;
                self.reported = Some(here);
                self.moment.site = event.and_then(|event| event.site);
                self.count.points += 1;
                return Some(&self.moment);
            }
            self.step(event?);
        }
    }

    /// Calls `judge` with every state of this point that is not in `seen`, until it breaks.
    ///
    /// States are equal if their content and their context are: `salt` and the number of returned
    /// operations.
    ///
    /// # Errors
    /// `Break` if the judge broke.
    pub fn states(
        &mut self,
        limits: &Limits,
        seen: &mut Seen,
        salt: u64,
        judge: &mut impl FnMut(&State<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.units.collect(&self.memory, limits.whole_places);
        let walk = Walk::new(&mut self.memory, &self.moment, &self.units, &mut self.count);
        walk.run(limits, seen, salt, judge)
    }

    /// Returns the memory at this point.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the present moment.
    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Returns the counts so far.
    pub fn count(&self) -> &Count {
        &self.count
    }

    /// Returns the memory that the next process finds after a named crash.
    ///
    /// # Errors
    /// [`NoSuchState`] if the log has no such state.
    pub fn rebuild(memory: Memory, log: &[Event], name: &Name) -> Result<Memory, NoSuchState> {
        let error = || NoSuchState(name.clone());
        let mut memory = memory;
        log.get(..name.event()).ok_or_else(error)?.iter().for_each(|event| {
            memory.apply(event);
        });
        let Name::Power { places, .. } = name else { return Ok(memory.after_process_crash()) };
        let mut units = Units::default();
        units.collect(&memory, false);
        let mut words = memory.durable().to_vec();
        for (place, label) in places {
            let unit = (0..units.count()).find(|unit| units.place(*unit) == *place);
            let unit = unit.ok_or_else(error)?;
            let content = units.labelled(unit, *label).ok_or_else(error)?;
            for (word, value) in units.words(unit).iter().zip(units.values(unit, content)) {
                words[*word as usize] = *value;
            }
        }
        Ok(Memory::of(memory.model(), words))
    }

    fn stops_before(&self, event: Option<&Event>) -> bool {
        let Some(event) = event else { return true };
        let stays_pending = matches!(
            event.what,
            What::Store { how: How::NonTemporal | How::Unfenced, .. } | What::Flush { .. }
        );
        let becomes_durable = self.memory.model() == super::Model::Eadr && !stays_pending;
        let just_returned = self.moment.event > 0
            && matches!(self.log[self.moment.event - 1].what, What::Return { .. });
        let evicts = match event.what {
            What::Store { word, how: How::NonTemporal | How::Unfenced, .. } => {
                self.memory.evicts(word)
            }
            _ => false,
        };
        becomes_durable
            || just_returned
            || evicts
            || matches!(
                event.what,
                What::Fence
                    | What::Sync
                    | What::Grow { .. }
                    | What::Release { .. }
                    | What::Free { .. }
                    | What::Mark
                    | What::Exit
            )
    }

    fn step(&mut self, event: &Event) {
        self.fresh |= self.memory.apply(event);
        self.moment.event += 1;
        match event.what {
            What::Begin { operation } => self.moment.in_flight.push(operation),
            What::Return { operation } => {
                self.moment.in_flight.retain(|other| *other != operation);
                self.moment.returned += 1;
                self.fresh = true;
            }
            _ => {}
        }
    }
}
