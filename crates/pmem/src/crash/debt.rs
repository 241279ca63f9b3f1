//! Durability debt: words that an operation loaded or stored, and that are pending when it returns.

use std::collections::BTreeMap;

use super::log::{Event, What};
use super::memory::Memory;

/// A pending word on which the result of an operation depends when it returns.
///
/// Not every debt is a violation: a word without effect on the result (a hint, another slot of the
/// same word) may be pending. A judge of concurrent runs filters the debts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debt {
    /// Index of the event that returned from the operation.
    pub event: usize,
    /// The thread that returned.
    pub thread: u32,
    /// The operation, by the caller's number.
    pub operation: u32,
    /// The word.
    pub word: u32,
    /// Whether the operation stored the word, and did not only load it.
    pub stored: bool,
}

/// Returns the durability debts of a run that began in `memory`.
///
/// Debts by loading are found only in logs that hold loads
/// ([`Traced::with_loads`](crate::media::traced::Traced::with_loads)).
pub fn debts(mut memory: Memory, events: &[Event]) -> Vec<Debt> {
    let mut used: BTreeMap<u32, BTreeMap<(u32, u64), bool>> = BTreeMap::new();
    let mut debts = Vec::new();
    for (index, event) in events.iter().enumerate() {
        memory.apply(event);
        let thread = event.thread;
        match event.what {
            What::Begin { .. } => {
                used.insert(thread, BTreeMap::new());
            }
            What::Load { word } | What::Store { word, .. } => {
                let stored = matches!(event.what, What::Store { .. });
                if let Some(order) = memory.newest_pending(word) {
                    *used.entry(thread).or_default().entry((word, order)).or_default() |= stored;
                }
            }
            What::Return { operation } => {
                let used = used.remove(&thread).unwrap_or_default();
                let open =
                    used.into_iter().filter(|((word, order), _)| memory.pends(*word, *order));
                debts.extend(open.map(|((word, _), stored)| Debt {
                    event: index,
                    thread,
                    operation,
                    word,
                    stored,
                }));
            }
            _ => {}
        }
    }
    debts
}
