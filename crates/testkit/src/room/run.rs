//! One workload on a medium of which some calls fail.

use core::time::Duration;

use everhash_index::{Design, Form, Table};
use everhash_pmem::{Image, Media};

use super::Way;
use crate::failure::ensure;
use crate::model::{Model, Pairs, get, scan_all, step};
use crate::workload::{Op, Shape};
use crate::{Failure, OpenTable};

/// To what length the medium can grow when nothing is refused. Unit: bytes.
const CAPACITY_BYTES: u64 = 3 << 20;

/// How many processes remove a pair each while there is no room.
const PROCESSES: usize = 12;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// Growths of the medium that were asked for.
    pub growths: u64,
    /// Allocations.
    pub takes: u64,
    /// Operations that found no room.
    pub refused: u64,
    /// By how much less space is in use once the table was opened again. Unit: bytes.
    pub lost_bytes: u64,
    /// How many bytes fewer are alive then. Unit: bytes.
    pub kept_bytes: u64,
}

/// A table, and what it should hold.
struct Twins {
    session: OpenTable,
    model: Model,
    shape: Shape,
    now: Duration,
}

/// Runs a workload, of which some calls fail until two thirds of it are done.
pub(super) fn run(
    design: &Design<Image>,
    form: Form,
    seed: u64,
    way: Option<Way>,
    ops: &[Op],
) -> Result<Done, Failure> {
    // Some of the values are far longer than a slot, a bucket, or a piece of a tiny log.
    let longest_value = if seed.is_multiple_of(2) { 300 } else { 5000 };
    let shape = Shape { longest_value, ..Shape::tiny(form) };
    let session = OpenTable::tiny(design, form, CAPACITY_BYTES)?;
    let mut twins = Twins { session, model: Model::new(shape), shape, now: Duration::ZERO };
    let most = ops.iter().flat_map(Op::keys).max().unwrap_or(0);
    let keys: Vec<Vec<u8>> = (0..=most + 3).map(|key| shape.key(key)).collect();
    twins.plan(way);
    let mut done = Done::default();
    let room_again = ops.len() * 2 / 3;
    for (number, op) in ops.iter().enumerate() {
        let place = |failure: Failure| failure.at(format!("operation {}, {op}", number + 1));
        if number == room_again {
            twins.read_out(&keys).map_err(|failure| failure.at("without room"))?;
            if matches!(way, Some(Way::GrowthsFrom(_))) {
                twins.remove_by_processes(most, way)?;
            }
            done.growths = twins.session.region().media().refusals().growths.calls();
            done.takes = twins.session.region().media().refusals().takes.calls();
            twins.plan(None);
        }
        let way = way.filter(|_| number < room_again);
        if let Some(refusal) = twins.step(op, way).map_err(place)? {
            done.refused += 1;
            if matches!(op, Op::Remove(_) | Op::RemoveBlind(_) | Op::Clear) && is_growth(way) {
                return Err(place(refusal));
            }
        }
    }
    twins.plan(None);
    twins.read_out(&keys).map_err(|failure| failure.at("with room again"))?;
    let before = twins.session.table().stats()?;
    twins.session.reopen().map_err(|error| Failure::from(error).at("opening with room again"))?;
    let after = twins.session.table().stats()?;
    done.lost_bytes = before.used_bytes.saturating_sub(after.used_bytes);
    done.kept_bytes = before.live_bytes.saturating_sub(after.live_bytes);
    twins.read_out(&keys).map_err(|failure| failure.at("opened again"))?;
    Ok(done)
}

impl Twins {
    fn plan(&self, way: Option<Way>) {
        let refusals = self.session.region().media().refusals();
        let (growths, takes) = match way {
            None => ((0, 0), (0, 0)),
            Some(Way::GrowthsFrom(first)) => ((first, u64::MAX), (0, 0)),
            Some(Way::Growth(one)) => ((one, 1), (0, 0)),
            Some(Way::TakesFrom(first)) => ((0, 0), (first, u64::MAX)),
            Some(Way::Take(one)) => ((0, 0), (one, 1)),
        };
        refusals.growths.plan(growths.0, growths.1);
        refusals.takes.plan(takes.0, takes.1);
    }

    /// Does one operation on both; returns the error if there was no room for it.
    fn step(&mut self, op: &Op, way: Option<Way>) -> Result<Option<Failure>, Failure> {
        let before = self.model.clone();
        let answer = step(&mut self.session, &self.shape, &mut self.now, op);
        let expected = self.model.apply(op);
        match answer {
            Ok(answer) => {
                let exact = self.session.design().capabilities.exact_len || *op != Op::Len;
                ensure!(
                    answer == expected || !exact,
                    "it returned {answer:?}; it should return {expected:?}"
                );
                let changed = op.keys().iter().map(|key| self.shape.key(*key)).collect::<Vec<_>>();
                self.agrees(&changed).map_err(|failure| failure.at("after it returned"))?;
                Ok(None)
            }
            Err(failure) if failure.is_full() && may_refuse(op, way) => {
                self.model = before;
                self.after_refusal(op)?;
                Ok(Some(failure))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Removes some pairs, each in a process of its own: an opening begins with what room there is,
    /// and leaves some of it empty.
    fn remove_by_processes(&mut self, most: u16, way: Option<Way>) -> Result<(), Failure> {
        let is_there = |key: &u16| self.model.pairs().contains_key(&self.shape.key(*key));
        let keys: Vec<u16> = (0..=most).filter(is_there).take(PROCESSES).collect();
        for (number, key) in keys.into_iter().enumerate() {
            let op = Op::Remove(key);
            let place = |failure: Failure| failure.at(format!("process {}, {op}", number + 1));
            self.step(&Op::Reopen, way).map_err(place)?;
            if let Some(refusal) = self.step(&op, way).map_err(place)? {
                return Err(place(refusal));
            }
        }
        Ok(())
    }

    /// A write that found no room has changed nothing; a batch has put a prefix of its pairs, and a
    /// clear has removed some.
    fn after_refusal(&mut self, op: &Op) -> Result<(), Failure> {
        if *op == Op::Clear {
            let left = scan_all(self.session.table())?;
            let before = self.model.pairs();
            let strange = left.iter().find(|(key, value)| before.get(*key) != Some(*value));
            ensure!(strange.is_none(), "a clear that was refused has changed a pair");
            self.model = Model::of(self.shape, left);
            return Ok(());
        }
        let keys: Vec<_> = op.keys().iter().map(|key| self.shape.key(*key)).collect();
        let Op::PutMany(pairs) = op else {
            return self.agrees(&keys).map_err(|failure| failure.at("after it was refused"));
        };
        let mut last = None;
        let mut model = self.model.clone();
        for pair in pairs.iter().map(Some).chain([None]) {
            let prefix = Twins::same(self.session.table(), model.pairs(), &keys)?;
            if prefix {
                last = Some(model.clone());
            }
            if let Some((key, value)) = pair {
                model.apply(&Op::Put(*key, *value));
            }
        }
        self.model = last.ok_or_else(|| Failure::new("no prefix of the batch was put"))?;
        Ok(())
    }

    fn same(table: &dyn Table, pairs: &Pairs, keys: &[Vec<u8>]) -> Result<bool, Failure> {
        for key in keys {
            if get(table, key)?.as_ref() != pairs.get(key) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn agrees(&self, keys: &[Vec<u8>]) -> Result<(), Failure> {
        let same = Twins::same(self.session.table(), self.model.pairs(), keys)?;
        ensure!(same, "its key has another value than it should");
        Ok(())
    }

    /// Compares everything, the space in use too.
    fn read_out(&self, keys: &[Vec<u8>]) -> Result<(), Failure> {
        self.session.read_out(self.model.pairs(), keys)?;
        let (table, media) = (self.session.table(), self.session.region().media());
        let (stats, checked, bytes) = (table.stats()?, table.check()?, media.bytes());
        let (used, reachable) = (stats.used_bytes, checked.reachable_bytes);
        ensure!(reachable <= used, "{reachable} bytes are reachable, and only {used} in use");
        ensure!(used <= bytes, "{used} bytes are in use of {bytes}");
        Ok(())
    }
}

/// Returns whether growth is refused: the medium is full.
fn is_growth(way: Option<Way>) -> bool {
    matches!(way, Some(Way::GrowthsFrom(_) | Way::Growth(_)))
}

/// Returns whether an operation may say that there is no room: every write while calls fail, and no
/// other ever. Removals on a full medium are counted.
fn may_refuse(op: &Op, way: Option<Way>) -> bool {
    let writes = matches!(
        op,
        Op::Insert(..)
            | Op::Put(..)
            | Op::Update(..)
            | Op::UpdateBlind(..)
            | Op::Modify(..)
            | Op::PutMany(_)
            | Op::Remove(_)
            | Op::RemoveBlind(_)
            | Op::Clear
    );
    way.is_some() && writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Edit;

    #[test]
    fn what_reads_or_opens_needs_no_room_and_nothing_does_when_there_is_room() {
        // Fails if a read that finds no room would pass, or any write when there is room again.
        let takes = Some(Way::Take(0));
        assert!(may_refuse(&Op::PutMany(vec![]), takes) && !may_refuse(&Op::Put(1, 1), None));
        assert!(may_refuse(&Op::Modify(1, Edit::Set(1)), Some(Way::Growth(0))));
        assert!(![Op::Get(1), Op::Scan, Op::Reopen].iter().any(|op| may_refuse(op, takes)));
        assert!(is_growth(Some(Way::Growth(0))) && !is_growth(Some(Way::TakesFrom(0))));
        assert!(is_growth(Some(Way::GrowthsFrom(0))) && !is_growth(takes) && !is_growth(None));
    }
}
