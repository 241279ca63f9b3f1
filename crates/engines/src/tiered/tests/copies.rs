//! Where the copies of a key lie, and where it could go: what the tests of single slots look at.

use everhash_pmem::{Addr, Image};

use crate::tiered::bucket::{PairCodec, Words};
use crate::tiered::layout::{self, is_valid};
use crate::tiered::state::Tiered;

/// A slot of a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spot {
    /// The layer, counted from the top.
    pub rank: usize,
    /// Where its last word lies.
    pub at: Addr,
    /// Its flags and its fingerprint, as far as DRAM knows them better than its line.
    pub state: u16,
    /// What it holds.
    pub words: Words,
}

/// Returns every slot of a bucket that is used: where it lies, its state and its words.
fn slots_of<C: PairCodec>(table: &Tiered<Image, C>, rank: usize, position: u64) -> Vec<Spot> {
    let (view, pm) = (table.layers.view(), table.pool.access());
    let mut lines = table.lines_of(&pm, &view, rank, view.place(rank).index(position));
    let mut all = Vec::new();
    while let Some((line, _)) = lines.advance().unwrap() {
        for slot in 0..table.settings.line_slots as usize {
            let (state, (words, at)) = line.slot(slot);
            all.push(Spot { rank, at, state, words });
        }
    }
    all
}

/// Returns the copies of the key with this hash, the topmost first.
pub fn copies<C: PairCodec>(table: &Tiered<Image, C>, hash: u64) -> Vec<Spot> {
    let mut found = Vec::new();
    for rank in 0..table.layers.view().count() {
        for second in [false, true] {
            let holds = |spot: &Spot| {
                layout::is_readable(spot.state)
                    && layout::is_second(spot.state) == second
                    && layout::print(spot.state) == layout::print_of(hash)
                    && C::words_hash(&table.hasher, spot.words) == hash
            };
            let bucket = slots_of(table, rank, layout::position(hash, second));
            found.extend(bucket.into_iter().filter(holds));
        }
    }
    found
}

/// Returns the slots of a key's bucket in a layer that a write may take: the open ones, and those
/// that hold shadows.
pub fn room<C: PairCodec>(
    table: &Tiered<Image, C>,
    rank: usize,
    (hash, second): (u64, bool),
) -> (Vec<Spot>, Vec<Spot>) {
    let bucket = slots_of(table, rank, layout::position(hash, second));
    bucket.into_iter().filter(|spot| !is_valid(spot.state)).partition(|spot| spot.state == 0)
}
