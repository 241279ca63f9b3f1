//! What the machine gives at most: the figures that engines are compared with.

use everhash_engines::common::hash::KeyedHash;
use everhash_index::HashKind;
use everhash_pmem::raw::{RawTable, RawTarget};
use everhash_pmem::{LINE, WriteBack};

use crate::clock::{Took, timed};

/// One ceiling of the machine, measured without any bounds check, lock or search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ceiling {
    /// Independent random 8-byte reads.
    Read,
    /// The same reads at places that the tables' hash function chooses: what a get costs that
    /// compares nothing. A processor overlaps reads only as far as its window of instructions
    /// reaches, so the hash alone takes much of the first ceiling away.
    HashedRead,
    /// Store, write-back and fence of one random line.
    Persist,
    /// The same twice per operation.
    DoublePersist,
}

impl Ceiling {
    /// Every ceiling, in the order in which reports list them.
    pub const ALL: [Ceiling; 4] =
        [Ceiling::Read, Ceiling::HashedRead, Ceiling::Persist, Ceiling::DoublePersist];

    /// Returns what reports call it.
    pub fn label(self) -> &'static str {
        match self {
            Ceiling::Read => "random 8-byte read",
            Ceiling::HashedRead => "hash + random read",
            Ceiling::Persist => "store + flush + fence",
            Ceiling::DoublePersist => "two of them",
        }
    }
}

/// The memory on which ceilings are measured: as large as the tables beside them.
pub(crate) struct Ground {
    table: RawTable,
    target: RawTarget,
    hasher: KeyedHash,
}

impl Ground {
    pub(crate) fn new(
        bytes: u64,
        write_back: WriteBack,
        hash: HashKind,
    ) -> everhash_pmem::Result<Ground> {
        let lines = (bytes / LINE).next_power_of_two();
        Ok(Ground {
            table: RawTable::new(lines, true)?,
            target: RawTarget::new(lines, write_back, true)?,
            // Any key will do: it is the instructions that count.
            hasher: KeyedHash::new(hash, [lines, bytes]),
        })
    }

    /// Does `count` operations on each of `threads` threads.
    pub(crate) fn measure(&self, ceiling: Ceiling, threads: u64, count: u64) -> Took {
        let work = |seed: u64| match ceiling {
            Ceiling::Read => {
                std::hint::black_box(self.table.read(count, seed));
            }
            Ceiling::HashedRead => {
                let hash = |word| self.hasher.word(word);
                std::hint::black_box(self.table.read_at(hash, count, seed));
            }
            Ceiling::Persist => self.target.persist(count, 1, seed),
            Ceiling::DoublePersist => self.target.persist(count, 2, seed),
        };
        std::thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> =
                (0..threads).map(|seed| scope.spawn(move || timed(|| work(seed)).1)).collect();
            let took = workers.into_iter().map(|worker| worker.join().expect("it cannot panic"));
            took.fold(Took::default(), Took::beside)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_takes_the_time_of_its_threads() {
        // Fails if nothing were measured: every ratio would be nothing, too.
        let ground = Ground::new(1 << 20, WriteBack::None, HashKind::Xxh3).unwrap();
        for ceiling in Ceiling::ALL {
            let took = ground.measure(ceiling, 2, 10_000);
            assert!(!took.wall.is_zero() && !took.cpu.is_zero(), "{ceiling:?}: {took:?}");
        }
    }
}
