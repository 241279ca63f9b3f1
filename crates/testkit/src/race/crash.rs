//! Crashes of concurrent runs: durable linearizability, key by key.
//!
//! A crash at any moment of a schedule leaves the operations that had returned, and of those under
//! way each as a whole or not at all. What a reader returned is part of the history: a value that
//! it returned and the crash took back has no explanation.

use core::ops::ControlFlow;

use everhash_index::Design;
use everhash_pmem::Image;
use everhash_pmem::crash::{Explorer, Limits, Log, Memory, Seen, State};

use super::schedule::{Plan, explain};
use super::tracker::Tracker;
use crate::model::{check_pool, compare, scan_all};
use crate::{Failure, OpenTable};

/// How many states of one moment are judged: a schedule has many moments, and the crash judge
/// enumerates single-threaded runs completely.
const LIMITS: Limits = Limits {
    product: 128,
    lazy: 0,
    single: 64,
    pairs: 32,
    random: 32,
    seed: 1,
    whole_places: false,
};

/// How much longer than before the crash a medium may become. Unit: bytes.
pub(super) const ROOM_BYTES: u64 = 64 << 10;

/// Opens every state that a crash of a run may leave; returns how many there were.
pub(super) fn survive(
    design: &Design<Image>,
    plan: &Plan,
    words: &[u64],
    log: &Log,
    tracker: &Tracker,
) -> Result<u64, Failure> {
    let mut explorer = Explorer::new(Memory::of(plan.model, words.to_vec()), log.events());
    let mut seen = Seen::default();
    let mut failure = None;
    while explorer.next_point().is_some() {
        let flow = explorer.states(&LIMITS, &mut seen, 0, &mut |state| match judge(
            design, plan, state, tracker,
        ) {
            Ok(()) => ControlFlow::Continue(()),
            Err(found) => {
                let moment = state.moment();
                let place = format!(
                    "a crash before event {} ({}), state {}",
                    moment.event,
                    moment.site.map_or("no site", |site| site.name()),
                    state.name()
                );
                failure = Some(found.at(place));
                ControlFlow::Break(())
            }
        });
        if flow.is_break() {
            break;
        }
    }
    failure.map_or(Ok(explorer.count().states), Err)
}

fn judge(
    design: &Design<Image>,
    plan: &Plan,
    state: &State<'_>,
    tracker: &Tracker,
) -> Result<(), Failure> {
    let bytes = state.words().len() as u64 * 8;
    let image = Image::of(state.words(), bytes, bytes + ROOM_BYTES)
        .with_guarantees(plan.model.guarantees());
    let session = OpenTable::open_after_power(design, image)?;
    let pairs = scan_all(session.table())?;
    // Event numbers are times: what happened before the crash has a smaller one.
    explain(session.table(), &pairs, tracker, state.moment().event as u64 + 1)?;
    let checked = check_pool(design, session.region())?;
    compare("the check after the crash", &checked, &pairs)
}
