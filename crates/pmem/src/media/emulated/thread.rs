//! The processor's state of one logical thread.

use super::cache::LINE_WORDS;

/// An outstanding miss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) line: u64,
    pub(super) ready: u64,
    /// Whether it belongs to a store: fences wait for it.
    pub(super) owned: bool,
}

/// A line of which only some words were stored past the caches so far.
#[derive(Clone, Copy, Debug)]
struct Combining {
    line: u64,
    mask: u8,
    /// What the line held before.
    held: [u64; LINE_WORDS],
    words: usize,
}

/// Lines that a thread combines at most. Unit: lines. Source: Intel, line fill buffers since
/// Skylake, which also combine stores past the caches.
const COMBINING: usize = 12;

/// One logical thread.
#[derive(Debug)]
pub(super) struct Thread {
    /// The thread's own small cache: a line plus one, and its slot in the last-level cache.
    near: Vec<(u64, usize)>,
    last_miss: u64,
    flights: Vec<Flight>,
    accepted: u64,
    combining: Vec<Combining>,
}

impl Thread {
    pub(super) fn new(near_lines: u64) -> Thread {
        Thread {
            near: vec![(0, 0); near_lines as usize],
            // No line comes after this one.
            last_miss: u64::MAX - 1,
            flights: Vec::new(),
            accepted: 0,
            combining: Vec::new(),
        }
    }

    /// Returns the slot in which the small cache believes `line` to be.
    #[inline]
    pub(super) fn near(&self, line: u64) -> Option<usize> {
        let (known, slot) = self.near[line as usize % self.near.len()];
        (known == line + 1).then_some(slot)
    }

    /// Puts a line into the small cache.
    #[inline]
    pub(super) fn approach(&mut self, line: u64, slot: usize) {
        let place = line as usize % self.near.len();
        self.near[place] = (line + 1, slot);
    }

    /// Notes a miss; returns whether it is of the line after the last one.
    pub(super) fn follows_last_miss(&mut self, line: u64) -> bool {
        let follows = self.last_miss + 1 == line;
        self.last_miss = line;
        follows
    }

    /// Returns when `line` lands, or zero if it is not under way.
    #[inline]
    pub(super) fn flight_ready(&self, line: u64) -> u64 {
        let flight = self.flights.iter().find(|flight| flight.line == line);
        flight.map_or(0, |flight| flight.ready)
    }

    /// Adds a miss; returns the time at which there is room for it.
    pub(super) fn take_off(&mut self, flight: Flight, now: u64, outstanding: usize) -> u64 {
        self.flights.retain(|flight| flight.ready > now);
        let mut free = now;
        if self.flights.len() >= outstanding {
            free = self.flights.iter().map(|flight| flight.ready).min().unwrap_or(now);
            self.flights.retain(|flight| flight.ready > free);
        }
        if flight.ready > now {
            self.flights.push(flight);
        }
        free
    }

    /// Returns when everything that was flushed so far is taken.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Notes that something flushed is taken at `time`.
    pub(super) fn accept(&mut self, time: u64) {
        self.accepted = self.accepted.max(time);
    }

    /// Returns when a fence is done.
    pub(super) fn all_done(&self) -> u64 {
        let owned = self.flights.iter().filter(|flight| flight.owned);
        owned.map(|flight| flight.ready).max().unwrap_or(0).max(self.accepted)
    }

    /// Stores a part of a line past the caches. Returns a line that is sent now: this one if it is
    /// complete, or the oldest if there are too many.
    pub(super) fn combine(&mut self, line: u64, mask: u8, content: &[u64]) -> Option<u64> {
        let place = match self.combining.iter().position(|known| known.line == line) {
            Some(place) => place,
            None if mask == u8::MAX => return Some(line),
            None => {
                let mut held = [0; LINE_WORDS];
                held[..content.len()].copy_from_slice(content);
                self.combining.push(Combining { line, mask: 0, held, words: content.len() });
                self.combining.len() - 1
            }
        };
        self.combining[place].mask |= mask;
        if self.combining[place].mask == u8::MAX {
            return Some(self.combining.remove(place).line);
        }
        if self.combining.len() > COMBINING { self.next_combined() } else { None }
    }

    /// Takes out the oldest line that is being combined.
    pub(super) fn next_combined(&mut self) -> Option<u64> {
        if self.combining.is_empty() { None } else { Some(self.combining.remove(0).line) }
    }

    /// Returns the lines that are being combined and what they held before.
    pub(super) fn combining(&self) -> impl Iterator<Item = (u64, &[u64])> {
        self.combining.iter().map(|known| (known.line, &known.held[..known.words]))
    }
}
