//! The medium under the tables of a run.

use everhash_index::{Choice, Design, Inline, Opening, Result, Sizing, Table};
use everhash_pmem::{Addr, Dram, DramOptions, Hints, Media, Region, Span, WORD, WriteBack};

use crate::Plan;

/// Makes an open, empty table on memory whose pages are all present.
///
/// A page that is touched for the first time costs microseconds: with faults inside the timed
/// part, a run would measure the kernel.
pub(crate) fn make(plan: &Plan, design: &Design<Dram>) -> Result<Box<dyn Table>> {
    let Plan { write_back, durable_caches, .. } = *plan;
    let options =
        DramOptions { write_back, durable_caches, huge_pages: true, ..DramOptions::default() };
    let medium = Dram::with_options(bytes(plan), options)?;
    medium.touch(Span::new(Addr::NULL, medium.bytes() / WORD));
    let opening = Opening { form: plan.form, hash: plan.hash, ..Opening::default() };
    let sizing = if plan.presized { Sizing::Pairs(plan.items) } else { Sizing::Usual };
    let choice = Choice { sizing, changes: &changes(&plan.settings) };
    design.create(Region::new(medium), &opening, choice, &Inline)
}

/// Returns settings as an engine takes them.
pub(crate) fn changes(settings: &[(String, u64)]) -> Vec<(&str, u64)> {
    settings.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

/// Returns how much memory is touched ahead: what the largest layout takes, growth included.
fn bytes(plan: &Plan) -> u64 {
    (plan.items * 128).max(64 << 20)
}

/// Returns the flush instruction that this processor has, `clwb` first.
pub fn best_write_back() -> WriteBack {
    [WriteBack::Clwb, WriteBack::Clflushopt, WriteBack::Clflush]
        .into_iter()
        .find(|kind| {
            let options =
                DramOptions { write_back: *kind, capacity_bytes: 4096, ..DramOptions::default() };
            Dram::with_options(0, options).is_ok()
        })
        .unwrap_or(WriteBack::None)
}

#[cfg(test)]
mod tests {
    use everhash_index::{Cursor, HashKind};

    use super::*;
    use crate::candidates;

    #[test]
    fn durable_caches_reach_the_engine() {
        // Fails if a run that asks for durable caches measures the path for volatile ones, or one
        // that does not the other: ElimDA has collecting logs where caches are durable.
        let elimda = candidates().into_iter().find(|candidate| candidate.name == "elimda");
        for durable_caches in [false, true] {
            let plan = Plan { durable_caches, ..Plan::of(1000) };
            let table = make(&plan, &elimda.as_ref().unwrap().in_memory).unwrap();
            let stats = table.stats().unwrap();
            let logs = stats.own.iter().find(|(name, _)| *name == "collecting_logs").unwrap();
            assert_eq!(logs.1 > 0, durable_caches, "{stats:?}");
        }
    }

    #[test]
    fn a_table_is_made_for_its_pairs_or_grows() {
        // Fails if inserts were measured with growth where there should be none, or without it.
        let elimda = candidates().into_iter().find(|candidate| candidate.name == "elimda").unwrap();
        let slots = [false, true].map(|presized| {
            let plan = Plan { presized, ..Plan::of(100_000) };
            make(&plan, &elimda.in_memory).unwrap().stats().unwrap().slots
        });
        assert!(slots[0] < 100_000 && slots[1] >= 100_000, "{slots:?}");
    }

    #[test]
    fn keys_are_hashed_as_the_plan_says() {
        // Fails if the figures of a hash function were those of another: where the pairs lie, and
        // with that the order of a scan, depends on it alone.
        let elimda = candidates().into_iter().find(|candidate| candidate.name == "elimda").unwrap();
        let order = |hash| {
            let plan = Plan { hash, ..Plan::of(1000) };
            let table = make(&plan, &elimda.in_memory).unwrap();
            let words = table.words().unwrap();
            (0..1000).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
            let (mut keys, mut next) = (Vec::new(), Some(Cursor::default()));
            while let Some(cursor) = next {
                next = table.scan(cursor, &mut |key, _| keys.push(key.to_vec())).unwrap();
            }
            keys
        };
        let orders = [HashKind::Sip13, HashKind::Xxh3, HashKind::Rapid].map(order);
        assert_eq!(orders[0], order(HashKind::Sip13));
        assert!(orders[0] != orders[1] && orders[1] != orders[2] && orders[0] != orders[2]);
    }

    #[test]
    fn the_best_flush_instruction_of_the_processor_is_taken() {
        // Fails if tables flushed by an instruction that drops lines where one keeps them.
        let is_there = |write_back| {
            let options =
                DramOptions { write_back, capacity_bytes: 4096, ..DramOptions::default() };
            Dram::with_options(0, options).is_ok()
        };
        let kinds = [WriteBack::Clwb, WriteBack::Clflushopt, WriteBack::Clflush, WriteBack::None];
        let better = kinds.into_iter().take_while(|kind| *kind != best_write_back());
        assert_eq!(better.filter(|kind| is_there(*kind)).count(), 0);
        assert!(is_there(best_write_back()));
    }
}
