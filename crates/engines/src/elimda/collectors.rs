//! The cache layer in DRAM (ElimDA 3.2): which collecting log serves which hashes.

use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Bits, Lock, Primitives};

use super::layout::Geometry;

/// Locks of flushes: those of collectors that share one take turns.
///
/// Unit: locks. Source: ours; two threads of 64 rarely meet.
const FLUSH_LOCKS: u64 = 64;

const CURRENT: Bits = Bits::new(0, 32);
const IN_FLIGHT: Bits = Bits::new(32, 31);
const CLOSED: Bits = Bits::new(63, 1);

/// The collecting logs.
pub struct Collectors<P: Primitives> {
    /// Where the first one lies.
    pub area: Addr,
    /// Whether inserts go to them: only where caches are durable.
    pub appends: bool,
    geometry: Geometry,
    /// For each collector its log, and one more than the log that is being flushed.
    logs: Box<[P::AtomicU64]>,
    spares: P::Mutex<Vec<u64>>,
    flushes: Box<[P::Mutex<()>]>,
}

/// The logs of a collector, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logs {
    /// The one to which inserts go.
    pub current: u64,
    /// The shadow log: full, and on its way to the DRAM table.
    pub in_flight: Option<u64>,
    /// Whether inserts go past them until the table is opened again: the current one is full for
    /// ever. It holds an item of a bucket in which a write failed, which can never move, or it was
    /// emptied too often.
    pub closed: bool,
}

impl<P: Primitives> Collectors<P> {
    /// Makes the collectors over the logs at `area`, which have no logs yet.
    pub fn new(area: Addr, geometry: Geometry) -> Self {
        let count = geometry.collecting_logs;
        let locks = FLUSH_LOCKS.min(count);
        Collectors {
            area,
            appends: false,
            geometry,
            logs: P::words(count as usize),
            spares: Lock::new(Vec::new()),
            flushes: (0..locks).map(|_| Lock::new(())).collect(),
        }
    }

    /// Returns where log `log` lies.
    #[inline(always)]
    pub fn at(&self, log: u64) -> Addr {
        self.geometry.collecting_log(self.area, log)
    }

    /// Returns the logs of a collector.
    #[inline(always)]
    pub fn logs(&self, collector: u64) -> Logs {
        let word = self.logs[collector as usize].load(Ordering::Acquire);
        Logs {
            current: CURRENT.get(word),
            in_flight: IN_FLIGHT.get(word).checked_sub(1),
            closed: CLOSED.get(word) == 1,
        }
    }

    /// Gives a collector its logs. Its flush is locked, or the table is not open yet.
    pub fn set_logs(&self, collector: u64, logs: Logs) {
        let in_flight = logs.in_flight.map_or(0, |log| log + 1);
        let word = IN_FLIGHT.set(CURRENT.set(0, logs.current), in_flight);
        let word = CLOSED.set(word, logs.closed as u64);
        self.logs[collector as usize].store(word, Ordering::Release);
    }

    /// Locks the flush of a collector.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`].
    pub fn lock_flush(&self, collector: u64) -> Result<<P::Mutex<()> as Lock<()>>::Guard<'_>> {
        Ok(self.flushes[(collector % self.flushes.len() as u64) as usize].lock()?)
    }

    /// Takes an empty log, if there is one.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`].
    pub fn take_spare(&self) -> Result<Option<u64>> {
        Ok(self.spares.lock()?.pop())
    }

    /// Gives an empty log back.
    ///
    /// # Errors
    /// [`everhash_index::Error::Poisoned`].
    pub fn give_spare(&self, log: u64) -> Result<()> {
        self.spares.lock()?.push(log);
        Ok(())
    }

    /// Returns how much DRAM they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        (size_of_val(&*self.logs) + size_of_val(&*self.flushes)) as u64
    }
}
