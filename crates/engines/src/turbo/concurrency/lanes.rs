//! Notes of where writers are, for the recovery after a killed process.

use core::sync::atomic::Ordering;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, AtomicWord, Media, Primitives};

use crate::turbo::layout::Lane as LaneRuler;

/// The lanes in which writers note where they write.
///
/// A killed process leaves every visible word, and what was not yet durable looks like the rest.
/// The notes say where that can be: at most one bucket, or shard, for each writer of that moment.
/// They are never flushed, because power loss leaves no word that was visible and not durable.
pub struct Lanes<P: Primitives> {
    first: Addr,
    lanes: Box<[LaneState<P>]>,
}

/// A lane in DRAM, alone in its line: the last note, and whether a writer is in it.
#[repr(align(64))]
struct LaneState<P: Primitives> {
    note: P::AtomicU64,
}

/// The lane of a writer.
#[must_use = "a note stands while the writer is in its lane"]
pub struct InLane<'l, P: Primitives> {
    lane: Option<(&'l P::AtomicU64, u64)>,
}

/// The bit of a note in DRAM that says that a writer is in the lane. Notes are addresses of
/// buckets, or shards shifted by one bit and marked by the lowest: bit 1 of a shard's note may be
/// set, so the mark is the highest.
const BUSY: u64 = 1 << 63;

impl<P: Primitives> Lanes<P> {
    /// Makes `count` lanes that begin at `first` on the medium; none if no recovery needs the
    /// notes.
    pub fn new(first: Addr, count: u64) -> Self {
        let lane = |_| LaneState { note: AtomicWord::new(0) };
        Lanes { first, lanes: (0..count).map(lane).collect() }
    }

    /// Notes that the bucket at `bucket` is being written, until the lane is dropped.
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn bucket<M: Media<Sync = P>>(
        &self,
        pm: &Access<'_, M>,
        bucket: Addr,
    ) -> Result<InLane<'_, P>> {
        self.enter(pm, bucket.byte())
    }

    /// Notes that any bucket of shard `shard` is being written.
    ///
    /// # Errors
    /// As the medium.
    pub fn shard<M: Media<Sync = P>>(
        &self,
        pm: &Access<'_, M>,
        shard: u64,
    ) -> Result<InLane<'_, P>> {
        self.enter(pm, shard << 1 | 1)
    }

    #[inline(always)]
    fn enter<M: Media<Sync = P>>(&self, pm: &Access<'_, M>, note: u64) -> Result<InLane<'_, P>> {
        if self.lanes.is_empty() {
            return Ok(InLane { lane: None });
        }
        let mine = P::thread() as usize;
        // Ends: a writer leaves its lane after one write.
        for attempt in 0usize.. {
            let index = (mine + attempt) % self.lanes.len();
            let lane = &self.lanes[index].note;
            let seen = lane.load(Ordering::Relaxed);
            let taken = seen & BUSY == 0
                && lane
                    .compare_exchange(seen, note | BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                let lane = InLane { lane: Some((lane, note)) };
                if seen != note {
                    let words = (index * LaneRuler::WORDS + LaneRuler::NOTE) as u64;
                    pm.store(self.first.plus(words), note)?;
                }
                return Ok(lane);
            }
            if attempt >= self.lanes.len() {
                P::pause((attempt / self.lanes.len()) as u32);
            }
        }
        Err(Error::Poisoned)
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.lanes) as u64
    }
}

impl<P: Primitives> Drop for InLane<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((lane, note)) = self.lane {
            lane.store(note, Ordering::Release);
        }
    }
}
