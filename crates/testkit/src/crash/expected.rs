//! What may be found after a crash.

use std::collections::{BTreeMap, BTreeSet};

use super::parts::{Digests, Parts};
use crate::Failure;
use crate::failure::show;
use crate::model::{Model, Pairs};
use crate::workload::Op;

/// What may be found after a crash.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// The pool was being created: there is none, or an empty one.
    NoPoolOr,
    /// One of these contents.
    OneOf(Vec<Pairs>),
    /// Of each key one of these; keys that are not listed are absent.
    EachKey(BTreeMap<Vec<u8>, BTreeSet<Option<Vec<u8>>>>),
    /// Each part of the table as it was at one of its moments.
    EachPart {
        /// Where keys belong.
        parts: Parts,
        /// The digests that each part may have; 0 alone if it is not listed.
        allowed: BTreeMap<u64, BTreeSet<u64>>,
    },
}

impl Expected {
    /// What may be found while `op` is under way on `model`, or while nothing is.
    ///
    /// An operation is there completely or not at all; `put_many` and `clear` are many, of which
    /// a prefix, and any part, is there.
    pub fn around(model: &Model, op: Option<&Op>) -> Expected {
        let before = model.pairs().clone();
        let Some(op) = op else { return Expected::OneOf(vec![before]) };
        if *op == Op::Clear {
            let any = |value| BTreeSet::from([None, Some(value)]);
            let keys = before.into_iter().map(|(key, value)| (key, any(value)));
            return Expected::EachKey(keys.collect());
        }
        let mut contents = vec![before];
        for after in each_step(model, op) {
            if contents.last() != Some(&after) {
                contents.push(after);
            }
        }
        Expected::OneOf(contents)
    }

    /// What may be found of an engine that batches durability: of each part of the table what it
    /// held at any of the moments since the last sync, or what `op` makes of the newest one.
    ///
    /// A clear is one step of each part.
    pub fn batched(
        parts: &Parts,
        moments: &[Digests],
        newest: &Model,
        op: Option<&Op>,
    ) -> Expected {
        let after = op.map_or(vec![], |op| each_step(newest, op));
        let after: Vec<Digests> = after.iter().map(|pairs| parts.digests(pairs)).collect();
        let all = || moments.iter().chain(&after);
        let numbers: BTreeSet<u64> = all().flat_map(|digests| digests.keys().copied()).collect();
        let of = |part| all().map(|digests| digests.get(&part).copied().unwrap_or(0)).collect();
        let allowed = numbers.into_iter().map(|part| (part, of(part))).collect();
        Expected::EachPart { parts: parts.clone(), allowed }
    }

    /// Whether it is enough that there is no pool.
    pub fn may_be_refused(&self) -> bool {
        matches!(self, Expected::NoPoolOr)
    }

    /// Accepts what was found.
    ///
    /// # Errors
    /// A failure that names what was expected and what was found.
    pub fn accept(&self, found: &Pairs) -> Result<(), Failure> {
        let wrong = match self {
            Expected::EachPart { parts, allowed } => return each_part(parts, allowed, found),
            Expected::NoPoolOr => found.keys().next().map(|key| (key, "nothing".to_owned())),
            Expected::OneOf(contents) if contents.contains(found) => None,
            Expected::OneOf(contents) => {
                let last = contents.last().expect("there is always a present");
                let keys = last.keys().chain(found.keys());
                let mut keys = keys.filter(|key| {
                    // The key that no content explains, or else the first that differs at all.
                    contents.iter().all(|pairs| pairs.get(*key) != found.get(*key))
                });
                let differs = || {
                    let mut keys = last.keys().chain(found.keys());
                    keys.find(|key| last.get(*key) != found.get(*key))
                };
                keys.next().or_else(differs).map(|key| {
                    let values: BTreeSet<_> = contents.iter().map(|it| it.get(key)).collect();
                    (key, list(values.into_iter()))
                })
            }
            Expected::EachKey(keys) => {
                let all = keys.keys().chain(found.keys());
                let wrong = all.filter(|key| match keys.get(*key) {
                    Some(values) => !values.contains(&found.get(*key).cloned()),
                    None => found.contains_key(*key),
                });
                wrong.map(|key| (key, keys.get(key))).next().map(|(key, values)| {
                    let values = values.into_iter().flatten().map(Option::as_ref);
                    (key, list(values))
                })
            }
        };
        let Some((key, expected)) = wrong else { return Ok(()) };
        let (key, found) = (show(key), one(found.get(key)));
        Err(Failure::new(format!("key {key}: expected {expected}, found {found}")))
    }
}

/// Returns the contents after each step of an operation; `put_many` has many.
pub(super) fn each_step(model: &Model, op: &Op) -> Vec<Pairs> {
    let steps: Vec<Op> = match op {
        Op::PutMany(pairs) => pairs.iter().map(|(key, value)| Op::Put(*key, *value)).collect(),
        one => vec![one.clone()],
    };
    let mut model = model.clone();
    let after = |step| {
        model.apply(step);
        model.pairs().clone()
    };
    steps.iter().map(after).collect()
}

fn each_part(
    parts: &Parts,
    allowed: &BTreeMap<u64, BTreeSet<u64>>,
    found: &Pairs,
) -> Result<(), Failure> {
    if let Some(key) = found.keys().find(|key| parts.of(key).is_none()) {
        return Err(Failure::new(format!("key {}: it was never written", show(key))));
    }
    let digests = parts.digests(found);
    let nothing = BTreeSet::from([0]);
    let numbers: BTreeSet<u64> = allowed.keys().chain(digests.keys()).copied().collect();
    for part in numbers {
        let digest = digests.get(&part).copied().unwrap_or(0);
        if !allowed.get(&part).unwrap_or(&nothing).contains(&digest) {
            let pairs = found.iter().filter(|(key, _)| parts.of(key) == Some(part));
            let pairs: Vec<String> =
                pairs.map(|(key, value)| format!("{} = {}", show(key), show(value))).collect();
            return Err(Failure::new(format!(
                "part {part}: it never held just this since the last sync: {}",
                if pairs.is_empty() { "nothing".to_owned() } else { pairs.join(", ") }
            )));
        }
    }
    Ok(())
}

fn one(value: Option<&Vec<u8>>) -> String {
    value.map_or("none".to_owned(), |value| show(value))
}

fn list<'a>(values: impl Iterator<Item = Option<&'a Vec<u8>>>) -> String {
    let values: Vec<String> = values.map(one).collect();
    if values.is_empty() { "none".to_owned() } else { values.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Edit, Shape};
    use everhash_index::Form;

    /// A model of two pairs, keys 1 and 2 with values 10 and 20.
    fn two() -> Model {
        let mut model = Model::new(Shape::tiny(Form::WORDS));
        model.apply(&Op::PutMany(vec![(1, 10), (2, 20)]));
        model
    }

    fn after(ops: &[Op]) -> Pairs {
        let mut model = two();
        ops.iter().for_each(|op| drop(model.apply(op)));
        model.pairs().clone()
    }

    fn accepts(expected: &Expected, ops: &[Op]) -> bool {
        expected.accept(&after(ops)).is_ok()
    }

    #[test]
    fn an_operation_is_there_completely_or_not_at_all() {
        // Fails if a half done or a lost earlier write passes for a crash.
        let op = Op::Modify(1, Edit::Set(11));
        let during = Expected::around(&two(), Some(&op));
        assert!(accepts(&during, &[]) && accepts(&during, &[op]));
        assert!(!accepts(&during, &[Op::Remove(1)]) && !accepts(&during, &[Op::Remove(2)]));
        let at_rest = Expected::around(&two(), None);
        assert!(accepts(&at_rest, &[]) && !accepts(&at_rest, &[Op::Put(3, 1)]));
    }

    #[test]
    fn many_puts_leave_a_prefix_and_a_clear_leaves_any_part() {
        // Fails if a later put may survive without an earlier one, or if a clear that was cut off
        // is taken for a violation.
        let many = Op::PutMany(vec![(3, 30), (1, 11), (4, 40)]);
        let puts = Expected::around(&two(), Some(&many));
        assert!(accepts(&puts, &[Op::Put(3, 30)]));
        assert!(accepts(&puts, &[Op::Put(3, 30), Op::Put(1, 11)]));
        assert!(!accepts(&puts, &[Op::Put(1, 11)]) && !accepts(&puts, &[Op::Put(4, 40)]));
        let clear = Expected::around(&two(), Some(&Op::Clear));
        for ops in [vec![], vec![Op::Remove(1)], vec![Op::Remove(2)], vec![Op::Clear]] {
            assert!(accepts(&clear, &ops));
        }
        assert!(!accepts(&clear, &[Op::Put(1, 11)]) && !accepts(&clear, &[Op::Put(5, 1)]));
    }

    /// The keys 1 and 3 are one part, and 2 and 4 another.
    fn odd_and_even() -> Parts {
        let shape = Shape::tiny(Form::WORDS);
        Parts::new((0..6).map(|number| (shape.key(number), u64::from(number % 2))))
    }

    #[test]
    fn a_batch_may_lose_what_was_not_synced_and_nothing_else() {
        // Fails if a value from before the sync may come back, if a value that the key never had
        // is accepted, or if a part may keep a later write without an earlier one.
        let (parts, mut models) = (odd_and_even(), vec![two()]);
        for op in [Op::Put(1, 11), Op::Put(1, 12), Op::Remove(2), Op::Put(3, 30)] {
            let mut next = models[models.len() - 1].clone();
            next.apply(&op);
            models.push(next);
        }
        let moments: Vec<Digests> = models.iter().map(|it| parts.digests(it.pairs())).collect();
        let newest = &models[models.len() - 1];
        let all = Expected::batched(&parts, &moments, newest, Some(&Op::Put(4, 40)));
        let removed = [Op::Remove(2), Op::Put(4, 40)];
        for ops in [&[][..], &[Op::Put(1, 11)], &removed, &[Op::Put(1, 12), Op::Put(3, 30)]] {
            assert!(accepts(&all, ops));
        }
        assert!(!accepts(&all, &[Op::Put(1, 13)]) && !accepts(&all, &[Op::Remove(1)]));
        assert!(!accepts(&all, &[Op::Put(3, 30)]), "the writes to 1 came before");
        assert!(!accepts(&all, &[Op::Put(4, 40)]), "the removal of 2 came before");
        assert!(!accepts(&all, &[Op::Put(77, 1)]), "nobody has written that");
        let synced = Expected::batched(&parts, &moments[2..], newest, None);
        assert!(accepts(&synced, &[Op::Put(1, 12)]));
        assert!(!accepts(&synced, &[Op::Put(1, 11)]), "that was overwritten before the sync");
    }

    #[test]
    fn a_failure_names_key_expected_and_found() {
        // Fails if whoever reads a violation had to guess which key it is of.
        let found = Expected::around(&two(), None).accept(&after(&[Op::Remove(1)]));
        let text = found.unwrap_err().to_string();
        assert!(text.contains("key ff") && text.ends_with("found none"), "{text}");
        assert!(Expected::NoPoolOr.accept(&after(&[])).is_err());
        assert!(Expected::NoPoolOr.accept(&Pairs::new()).is_ok());
    }
}
