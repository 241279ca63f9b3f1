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
