//! What may be found after a crash.

use std::collections::{BTreeMap, BTreeSet};

use crate::Complaint;
use crate::complaint::show;
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
}

impl Expected {
    /// What may be found while `op` is under way on `model`, or while nothing is.
    ///
    /// An operation is there completely or not at all; `put_many` and `clear` are many, of which
    /// a prefix, and any part, is there.
    pub fn around(model: &Model, op: Option<&Op>) -> Expected {
        let before = model.pairs().clone();
        let Some(op) = op else { return Expected::OneOf(vec![before]) };
        let steps: Vec<Op> = match op {
            Op::PutMany(pairs) => pairs.iter().map(|(key, value)| Op::Put(*key, *value)).collect(),
            Op::Clear => {
                let any = |value| BTreeSet::from([None, Some(value)]);
                let keys = before.into_iter().map(|(key, value)| (key, any(value)));
                return Expected::EachKey(keys.collect());
            }
            one => vec![one.clone()],
        };
        let mut contents = vec![before];
        let mut model = model.clone();
        for step in &steps {
            model.apply(step);
            if contents.last() != Some(model.pairs()) {
                contents.push(model.pairs().clone());
            }
        }
        Expected::OneOf(contents)
    }

    /// What may be found of an engine that batches durability: of each key any of the values that
    /// it had in `history`, the contents since the last sync, or that `op` gives it.
    pub fn batched(history: &[Model], op: Option<&Op>) -> Expected {
        let newest = history.last().expect("there is always a present");
        let mut after = newest.clone();
        op.map(|op| after.apply(op));
        let contents: Vec<&Model> = history.iter().chain([&after]).collect();
        let keys: BTreeSet<&Vec<u8>> =
            contents.iter().flat_map(|model| model.pairs().keys()).collect();
        let values =
            |key: &Vec<u8>| contents.iter().map(|it| it.pairs().get(key).cloned()).collect();
        Expected::EachKey(keys.into_iter().map(|key| (key.clone(), values(key))).collect())
    }

    /// Whether it is enough that there is no pool.
    pub fn may_be_refused(&self) -> bool {
        matches!(self, Expected::NoPoolOr)
    }

    /// Accepts what was found.
    ///
    /// # Errors
    /// A complaint that names what was expected and what was found.
    pub fn accept(&self, found: &Pairs) -> Result<(), Complaint> {
        let wrong = match self {
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
        Err(Complaint::new(format!("key {key}: expected {expected}, found {found}")))
    }
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

    #[test]
    fn a_batch_may_lose_what_was_not_synced_and_nothing_else() {
        // Fails if a value from before the sync may come back, or if a value that the key never
        // had is accepted.
        let mut history = vec![two()];
        for op in [Op::Put(1, 11), Op::Put(1, 12), Op::Remove(2)] {
            let mut next = history[history.len() - 1].clone();
            next.apply(&op);
            history.push(next);
        }
        let all = Expected::batched(&history, Some(&Op::Put(3, 30)));
        for ops in [vec![], vec![Op::Put(1, 11)], vec![Op::Put(3, 30), Op::Remove(2)]] {
            assert!(accepts(&all, &ops));
        }
        assert!(!accepts(&all, &[Op::Put(1, 13)]) && !accepts(&all, &[Op::Remove(1)]));
        let synced = Expected::batched(&history[2..], None);
        assert!(accepts(&synced, &[Op::Put(1, 12)]));
        assert!(!accepts(&synced, &[Op::Put(1, 11)]), "that was overwritten before the sync");
    }

    #[test]
    fn a_complaint_names_key_expected_and_found() {
        let found = Expected::around(&two(), None).accept(&after(&[Op::Remove(1)]));
        let text = found.unwrap_err().to_string();
        assert!(text.contains("key ff") && text.ends_with("found none"), "{text}");
        assert!(Expected::NoPoolOr.accept(&after(&[])).is_err());
        assert!(Expected::NoPoolOr.accept(&Pairs::new()).is_ok());
    }
}
