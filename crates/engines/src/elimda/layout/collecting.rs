//! The collecting logs on the medium (ElimDA 3.2, 3.3).

use everhash_pmem::{Addr, Bits};

use super::{CollectingLog, Geometry, Kind, ROOT, Root, leading, open, seal};

/// Where the address of the collecting logs lies.
pub const LOGS_LINK: Addr = ROOT.plus(Root::LOGS as u64);

/// The most collecting logs.
///
/// Unit: logs. Source: ours; 16 MiB, more than a share of any cache.
pub const MOST_LOGS: u64 = 1 << 16;

/// The most spare logs, for those that are being flushed.
///
/// Unit: logs. Source: ours; as many threads can flush at once.
const MOST_SPARES: u64 = 64;

const RESERVED: Bits = Bits::new(0, 4);
const WRITTEN: Bits = Bits::new(4, 15);
const SEALED: Bits = Bits::new(19, 1);
const GENERATION: Bits = Bits::new(20, 28);
const ENDED_SLOTS: Bits = Bits::new(0, 15);

/// The control word of a collecting log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Control {
    /// How many slots were handed out.
    pub reserved: u64,
    /// Bit i: slot i is written.
    pub written: u64,
    /// Whether it is being flushed.
    pub sealed: bool,
    /// How often it was emptied.
    pub generation: u64,
}

impl Control {
    /// Returns the word for a log at `at`.
    pub const fn seal(self, at: Addr) -> u64 {
        let content = WRITTEN.set(RESERVED.set(0, self.reserved), self.written);
        let content = SEALED.set(content, self.sealed as u64);
        seal(GENERATION.set(content, self.generation), at, Kind::Control)
    }

    /// Returns the control in `word`, or `None` if the check does not match or there is none such.
    pub const fn open(word: u64, at: Addr) -> Option<Control> {
        let content = if word == 0 { Some(0) } else { open(word, at, Kind::Control) };
        match content {
            Some(content) => {
                let control = Control {
                    reserved: RESERVED.get(content),
                    written: WRITTEN.get(content),
                    sealed: SEALED.get(content) == 1,
                    generation: GENERATION.get(content),
                };
                if control.written >> control.reserved == 0 { Some(control) } else { None }
            }
            None => None,
        }
    }

    /// Returns whether a slot was handed out and is not written yet.
    #[inline(always)]
    pub const fn is_pending(self) -> bool {
        self.written.count_ones() as u64 != self.reserved
    }

    /// Returns the control of the log once it is emptied, or `None` if it was emptied too often.
    pub const fn emptied(self) -> Option<Control> {
        let generation = self.generation + 1;
        if generation > GENERATION.max() {
            return None;
        }
        Some(Control { reserved: 0, written: 0, sealed: false, generation })
    }
}

/// The word of a collecting log that says which items have moved or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Bit i: the item of slot i has moved or ended.
    pub slots: u64,
    /// The generation of the log for which this counts.
    pub generation: u64,
}

impl Ended {
    /// Returns the word for a log at `at`.
    pub const fn seal(self, at: Addr) -> u64 {
        let content = GENERATION.set(self.slots, self.generation);
        let at = at.plus(CollectingLog::ENDED as u64);
        seal(content, at, Kind::Ended)
    }

    /// Returns what `word` says, or `None` if the check does not match.
    pub const fn open(word: u64, at: Addr) -> Option<Ended> {
        if word == 0 {
            return Some(Ended { slots: 0, generation: 0 });
        }
        match open(word, at.plus(CollectingLog::ENDED as u64), Kind::Ended) {
            Some(content) => {
                Some(Ended { slots: ENDED_SLOTS.get(content), generation: GENERATION.get(content) })
            }
            None => None,
        }
    }

    /// Returns the slots that have ended in a generation.
    pub const fn of(self, generation: u64) -> u64 {
        if self.generation == generation { self.slots } else { 0 }
    }
}

impl Geometry {
    /// Returns how many collecting logs lie on the medium, the spare ones included.
    pub const fn all_logs(&self) -> u64 {
        let spares = self.collecting_logs / 8;
        let spares = if spares > MOST_SPARES { MOST_SPARES } else { spares };
        self.collecting_logs + if spares == 0 { 1 } else { spares }
    }

    /// Returns the collector of a hash: its leading bits.
    #[inline(always)]
    pub const fn collector_of(&self, hash: u64) -> u64 {
        leading(hash, self.collecting_logs.trailing_zeros())
    }

    /// Returns where collecting log `log` lies, if the first one lies at `area`.
    #[inline(always)]
    pub const fn collecting_log(&self, area: Addr, log: u64) -> Addr {
        area.plus(log * CollectingLog::WORDS as u64)
    }
}
