//! Room for logs, and what is kept back of it: on a medium without room, removing and collecting
//! must still work.

use everhash_index::Result;
use everhash_pmem::{LINE, Lock, Media, Span, WORD};

use super::state::{State, Walsh};

/// For what a log is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// For more pairs: not the spare ones.
    Add,
    /// To remove a pair: spare ones that collecting does not need.
    Remove,
    /// To move pairs: the spare ones too.
    Move,
}

/// Part of the spare logs that removing may take beyond those that collecting needs.
///
/// Unit: logs. Source: ours; a removal that finds none collects its area, which makes room if there
/// is garbage. Two are what recovery may count too much, and the others are for removing.
const REMOVE_SPARE: usize = 5;

impl<M: Media> Walsh<M> {
    /// Returns how many ordinary logs collecting an area needs.
    pub(super) fn collect_logs(&self, state: &State) -> usize {
        // Logs that hold no long objects are three quarters full at least.
        let bytes = (state.item_bytes / 3 + 1).saturating_mul(4);
        (bytes / (self.object_words() * WORD) + 2) as usize
    }

    /// Takes space for a log. Those who add must leave behind what collecting the largest area
    /// needs; those who remove use a little of it, those who move all.
    pub(super) fn take_log(&self, state: &State, purpose: Purpose, bytes: u64) -> Result<Span> {
        let ordinary = self.log_bytes();
        if purpose != Purpose::Move {
            let mut spare = self.spare.lock()?;
            spare.collect = spare.collect.max(self.collect_logs(state));
            while spare.spans.len() < spare.collect + REMOVE_SPARE {
                match self.space.take(ordinary, LINE) {
                    Ok(taken) => spare.spans.push(taken.span),
                    Err(everhash_pmem::Error::Full { .. }) if purpose == Purpose::Remove => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match self.space.take(bytes, LINE) {
            Ok(taken) => Ok(taken.span),
            Err(full @ everhash_pmem::Error::Full { .. }) if purpose != Purpose::Add => {
                let mut spare = self.spare.lock()?;
                let kept = if purpose == Purpose::Remove { spare.collect } else { 0 };
                match spare.spans.len() > kept && bytes <= ordinary {
                    true => Ok(spare.spans.pop().expect("there is one")),
                    false => Err(full.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the logs up to `last` another use. No view leads to them, and no durable word; where
    /// areas share epochs, they wait for the next one.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a panic inside.
    pub(super) fn give_logs(&self, state: &mut State, last: u64) -> Result<()> {
        let mut spans = Vec::new();
        while let Some(log) = state.logs.pop_front_if(|log| log.number <= last) {
            state.stored -= log.count;
            spans.push(log.span);
        }
        if self.is_grouped {
            self.add_housekeeping(spans.iter().map(|span| span.bytes()).sum());
            self.spare.lock()?.limbo.append(&mut spans);
            return self.bound_limbo();
        }
        self.give_spans(spans)
    }

    /// Gives logs another use: some are kept for a medium without room.
    ///
    /// # Errors
    /// As [`Walsh::give_logs`].
    pub(super) fn give_spans(&self, spans: Vec<Span>) -> Result<()> {
        let ordinary = self.log_bytes();
        let mut spare = self.spare.lock()?;
        for span in spans {
            let short = spare.spans.len() < spare.collect + REMOVE_SPARE;
            match short && span.bytes() == ordinary {
                true => spare.spans.push(span),
                false => self.space.give(span),
            }
        }
        Ok(())
    }
}
