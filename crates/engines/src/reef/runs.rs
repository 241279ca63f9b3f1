//! Runs: where several threads write a stream by turns, each takes a run of words in its newest
//! segment, and fills it alone.
//!
//! An append changes the lines of the stream's latch and of the segment's tail, and the one that it
//! shares with the object before. Where another thread appended last, each of them comes from that
//! one's cache. In a run nothing is shared. Whoever writes a stream alone has none.
//!
//! | what must hold | how |
//! |---|---|
//! | of two versions of a key the newer one lies behind | what lies in the newest segment behind a run is never replaced in it, nor a key added behind which a tombstone of its shard lies; both go to the end of the stream |
//! | nothing is stored before the end of a stream that was noted | runs end when it is noted |
//! | nothing is stored in a segment that is collected | runs end with their segment, and who collects waits for the last store |
//! | a killed process leaves objects without gaps | room that is not filled has a head, like an object; the next object's own head, stored last, takes its place |

use core::ops::DerefMut;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Latch, Lock, Primitives};

use super::stream::{OwnLines, Stream};
use super::units::Units;

/// Threads that can have runs at the same time; more share them.
///
/// Unit: threads. Source: ours; with four streams, 8 KiB.
const THREADS: usize = 16;

/// Room in a segment that one thread fills.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where the next object comes.
    pub(super) at: Addr,
    /// Room that is left. Unit: words.
    pub(super) left: u64,
    /// Where the segment ends.
    pub(super) end: Addr,
    /// The checksum of the segment.
    pub(super) seal: u64,
    pub(super) sequence: u64,
    /// Of what was stored here, words of tombstones that the stream does not know yet.
    pub(super) tombstones: u64,
    /// How often the runs of its stream had ended before.
    pub(super) ends: u64,
}

impl Run {
    const NONE: Run = Run {
        at: Addr::NULL,
        left: 0,
        end: Addr::NULL,
        seal: 0,
        sequence: 0,
        tombstones: 0,
        ends: 0,
    };

    /// Returns whether it has room for an object of so many words that must lie behind a place.
    #[inline(always)]
    pub fn takes(&self, words: u64, behind: Addr) -> bool {
        words <= self.left && !(self.at..self.end).contains(&behind)
    }

    /// Ends the run in its stream: what is left of it is garbage.
    fn end<P: Primitives>(&mut self, stream: &mut Stream, units: &Units<P>) {
        if self.left > 0 && units.seal(self.at) == self.seal {
            units.add_garbage(self.at, self.left);
        }
        if self.tombstones > 0 {
            stream.add_tombstones(self.sequence, self.tombstones);
        }
        (self.left, self.tombstones) = (0, 0);
    }
}

/// The runs of all threads in all streams.
pub struct Runs<P: Primitives> {
    /// How often the runs of each stream have ended.
    ends: Box<[OwnLines<P::AtomicU64>]>,
    /// Not 0 if one was taken since all were ended. Set by who holds the latch of a stream, and
    /// cleared by who holds all.
    are_taken: OwnLines<P::AtomicU64>,
    /// For each stream those of all threads.
    all: Box<[OwnLines<Latch<P, Run>>]>,
}

impl<P: Primitives> Runs<P> {
    /// Makes the runs of so many streams.
    pub fn new(streams: usize) -> Self {
        Runs {
            ends: (0..streams).map(|_| OwnLines(AtomicWord::new(0))).collect(),
            are_taken: OwnLines(AtomicWord::new(0)),
            all: (0..THREADS * streams).map(|_| OwnLines(Latch::new(Run::NONE))).collect(),
        }
    }

    /// Returns whether any thread may have one.
    #[inline(always)]
    pub fn are_taken(&self) -> bool {
        self.are_taken.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the run of this thread in a stream.
    #[inline(always)]
    pub fn own(&self, stream: usize) -> &Latch<P, Run> {
        &self.of(stream)[P::thread() as usize % THREADS].0
    }

    /// Returns the runs of all threads in a stream.
    #[inline(always)]
    fn of(&self, stream: usize) -> &[OwnLines<Latch<P, Run>>] {
        &self.all[stream * THREADS..][..THREADS]
    }

    /// Returns how often the runs of a stream have ended.
    #[inline(always)]
    pub fn ends(&self, stream: usize) -> u64 {
        self.ends[stream].0.load(Ordering::Acquire)
    }

    /// Gives this thread a run in a stream, whose latch the caller holds.
    ///
    /// # Errors
    /// As [`Runs::end_all`].
    pub fn begin(&self, stream: &mut Stream, run: Run, units: &Units<P>) -> Result<()> {
        let mut own = self.own(stream.number as usize).lock()?;
        own.end(stream, units);
        *own = run;
        // All who append look at it: it is seldom changed.
        if !self.are_taken() {
            self.are_taken.0.store(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the runs of a stream, whose latch the caller holds. What is being stored may still be.
    pub fn end(&self, stream: u64) {
        self.ends[stream as usize].0.fetch_add(1, Ordering::Release);
    }

    /// Ends all runs, and waits until nothing is being stored in any; the caller holds the latches
    /// of these, all streams.
    ///
    /// # Errors
    /// [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic inside.
    pub fn end_all<G>(&self, streams: &mut [G], units: &Units<P>) -> Result<()>
    where
        G: DerefMut<Target = Stream>,
    {
        streams.iter().for_each(|stream| self.end(stream.number));
        if self.are_taken() {
            for stream in streams {
                for run in self.of(stream.number as usize) {
                    run.0.lock()?.end(stream, units);
                }
            }
            self.are_taken.0.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until nothing is being stored in runs of a stream that have ended.
    ///
    /// # Errors
    /// As [`Runs::end_all`].
    pub fn wait(&self, stream: usize) -> Result<()> {
        if self.are_taken() {
            self.of(stream).iter().try_for_each(|run| run.0.lock().map(drop))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::{Span, Std};

    use super::*;

    #[test]
    fn what_is_left_of_a_run_is_garbage_of_its_own_segment_only() {
        // Fails if another segment that lies there by now seems to have garbage.
        const UNIT: u64 = 256;
        let (units, span) = (Units::<Std>::new(UNIT), Span::of_bytes(Addr::new(UNIT), UNIT));
        let run = Run { at: span.start, left: 5, seal: 7, ..Run::NONE };
        for (seal, garbage) in [(7, 5), (9, 0)] {
            units.set(span, seal, UNIT);
            { run }.end(&mut Stream::default(), &units);
            assert_eq!(units.garbage(span.start), garbage);
        }
    }
}
