//! The choice of the block that garbage collection empties.

use super::super::random::Random;
use super::ftl::Block;
use crate::profile::Victim;

/// Chooses one of the full blocks; `None` if there is none.
///
/// `now` counts page writes; a block's age is the writes since it was filled. Ties go to the block
/// that was filled first.
pub(super) fn choose(
    policy: Victim,
    blocks: &[Block],
    now: u64,
    block_pages: u32,
    random: &mut Random,
) -> Option<usize> {
    let full = || blocks.iter().enumerate().filter(|(_, block)| block.is_full(block_pages));
    let index = match policy {
        Victim::Greedy => full().min_by_key(|(_, block)| (block.valid, block.closed_at))?.0,
        Victim::Fifo => full().min_by_key(|(_, block)| block.closed_at)?.0,
        Victim::Random => {
            let count = full().count() as u64;
            if count == 0 {
                return None;
            }
            full().nth(random.below(count) as usize)?.0
        }
        Victim::CostBenefit => {
            let worth = |block: &Block| {
                let used = f64::from(block.valid) / f64::from(block_pages);
                // What is gained over what it costs to read and to write the rest, times the age:
                // what has not changed for long will not change soon (Rosenblum and Ousterhout).
                (1.0 - used) / (2.0 * used) * (now - block.closed_at) as f64
            };
            full().max_by(|(_, a), (_, b)| worth(a).total_cmp(&worth(b)))?.0
        }
    };
    Some(index)
}
