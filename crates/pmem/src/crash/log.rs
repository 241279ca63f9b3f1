//! The log of a run: the verbs of all threads, in one total order.

use super::mix::mix;
use crate::Site;

/// The content of a free word until the next store to it.
///
/// Source: ours; not zero, so that it is no empty slot, and no address or length in a small medium.
pub const FREED: u64 = 0xf4ee_f4ee_f4ee_f4ee;

/// How a store reached the medium.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// Through the caches.
    Plain,
    /// Through the caches, as the commit word of a change.
    Commit,
    /// Past the caches: durable at the next fence of its thread.
    NonTemporal,
    /// Past the caches, and not covered by the fences of its thread: a mutant of
    /// [`How::NonTemporal`].
    Unfenced,
}

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// A word was stored.
    Store {
        /// Index of the word.
        word: u32,
        /// The value stored.
        value: u64,
        /// How it reached the medium.
        how: How,
    },
    /// The write-back of some lines began.
    Flush {
        /// Index of the first line.
        line: u32,
        /// How many lines.
        count: u32,
    },
    /// The thread waited for its write-backs (fence).
    Fence,
    /// The thread made everything durable.
    Sync,
    /// The medium grew.
    Grow {
        /// The length afterwards. Unit: bytes.
        bytes: u64,
    },
    /// The storage behind some words was released, and they became zero, durably.
    Release {
        /// Index of the first word.
        word: u32,
        /// How many words.
        count: u32,
    },
    /// Some words became free: from here on they hold [`FREED`], durably.
    Free {
        /// Index of the first word.
        word: u32,
        /// How many words.
        count: u32,
    },
    /// A phase of background work began.
    Mark,
    /// The process was killed, and another one continues with the visible words.
    Exit,
    /// An operation was called.
    Begin {
        /// The caller's number of it.
        operation: u32,
    },
    /// An operation returned.
    Return {
        /// The caller's number of it.
        operation: u32,
    },
    /// A word was loaded; only in logs that were asked to hold loads.
    Load {
        /// Index of the word.
        word: u32,
    },
}

/// One event of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// The thread, numbered in the order of first appearance.
    pub thread: u32,
    /// The access, of a store, flush, fence or sync: a fence on a file waits for the flushes of its
    /// own access only.
    pub access: u32,
    /// The site, if the verb has one.
    pub site: Option<Site>,
    /// The kind of an event.
    pub what: What,
}

/// The events of a run, in their total order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    events: Vec<Event>,
}

impl Log {
    /// Makes a log of events.
    pub fn new(events: Vec<Event>) -> Log {
        Log { events }
    }

    /// Returns the events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns a hash of all events: equal runs have equal hashes on every machine.
    pub fn digest(&self) -> u64 {
        self.events.iter().fold(0, |hash, event| {
            let (kind, first, second) = event.what.numbers();
            let site =
                event.site.map_or(0, |site| xxhash_rust::xxh3::xxh3_64(site.name().as_bytes()));
            [u64::from(event.thread), site, kind, first, second]
                .into_iter()
                .fold(hash, |hash, part| mix(hash ^ part))
        })
    }
}

impl What {
    /// Returns the event as three numbers, for the digest.
    fn numbers(self) -> (u64, u64, u64) {
        match self {
            What::Store { word, value, how } => (how as u64, u64::from(word), value),
            What::Flush { line, count } => (16, u64::from(line), u64::from(count)),
            What::Fence => (17, 0, 0),
            What::Sync => (18, 0, 0),
            What::Grow { bytes } => (19, bytes, 0),
            What::Release { word, count } => (20, u64::from(word), u64::from(count)),
            What::Mark => (21, 0, 0),
            What::Begin { operation } => (22, u64::from(operation), 0),
            What::Return { operation } => (23, u64::from(operation), 0),
            What::Exit => (25, 0, 0),
            What::Free { word, count } => (26, u64::from(word), u64::from(count)),
            What::Load { word } => (24, u64::from(word), 0),
        }
    }
}
