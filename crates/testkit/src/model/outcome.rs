//! What an operation answers, and how a table is asked.

use core::fmt;
use core::time::Duration;

use everhash_index::{BareTable, Change, Table, WordTable};

use super::{Pairs, readout};
use crate::Failure;
use crate::failure::{ensure, show};
use crate::workload::{Edit, Op, Shape};

/// The answer of an operation.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but that it is done.
    Done,
    /// Yes or no.
    Flag(bool),
    /// A value, or that there is none.
    Value(Option<Vec<u8>>),
    /// Values, by the position of the key that was asked for.
    Values(Vec<Option<Vec<u8>>>),
    /// A number.
    Count(u64),
    /// All pairs.
    Pairs(Pairs),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<Vec<u8>>| value.as_deref().map_or("none".to_owned(), show);
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Flag(flag) => write!(f, "{flag}"),
            Outcome::Value(found) => f.write_str(&value(found)),
            Outcome::Values(found) => f.debug_list().entries(found.iter().map(value)).finish(),
            Outcome::Count(count) => write!(f, "{count}"),
            Outcome::Pairs(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| (show(key), show(value)));
                f.debug_map().entries(pairs).finish()
            }
        }
    }
}

/// Performs an operation on a table. `now` is the made-up clock of [`Op::Maintain`].
///
/// # Errors
/// A failure for an error, and for an answer that contradicts itself.
///
/// # Panics
/// If the operation restarts the process: the owner of the table does that.
pub fn perform(
    table: &dyn Table,
    shape: &Shape,
    now: &mut Duration,
    op: &Op,
) -> Result<Outcome, Failure> {
    Ok(match op {
        Op::Insert(key, value) => Outcome::Flag(match words_for(table, shape, *key) {
            Some((words, key)) => words.insert_word(key, word(&shape.value(*value)))?,
            None => table.insert(&shape.key(*key), &shape.value(*value))?,
        }),
        Op::Put(key, value) => Outcome::Flag(match words_for(table, shape, *key) {
            Some((words, key)) => words.put_word(key, word(&shape.value(*value)))?,
            None => table.put(&shape.key(*key), &shape.value(*value))?,
        }),
        Op::Update(key, value) => Outcome::Flag(match words_for(table, shape, *key) {
            Some((words, key)) => words.update_word(key, word(&shape.value(*value)))?,
            None => table.update(&shape.key(*key), &shape.value(*value))?,
        }),
        Op::Modify(key, edit) => Outcome::Value(modify(table, shape, *key, *edit)?),
        Op::UpdateBlind(key, value) => {
            let (key, value) = (shape.key(*key), shape.value(*value));
            Outcome::Flag(match bare_if_present(table, &key)? {
                Some(bare) => bare.update_blind(&key, &value).map(|()| true)?,
                None => table.update(&key, &value)?,
            })
        }
        Op::Remove(key) => Outcome::Flag(match words_for(table, shape, *key) {
            Some((words, key)) => words.remove_word(key)?,
            None => table.remove(&shape.key(*key))?,
        }),
        Op::RemoveBlind(key) => {
            let key = shape.key(*key);
            Outcome::Flag(match bare_if_present(table, &key)? {
                Some(bare) => bare.remove_blind(&key).map(|()| true)?,
                None => table.remove(&key)?,
            })
        }
        Op::Get(key) => Outcome::Value(match words_for(table, shape, *key) {
            Some((words, key)) => words.get_word(key)?.map(|value| value.to_le_bytes().to_vec()),
            None => get(table, &shape.key(*key))?,
        }),
        Op::Contains(key) => Outcome::Flag(table.contains(&shape.key(*key))?),
        Op::GetMany(keys) => Outcome::Values(get_many(table, shape, keys)?),
        Op::PutMany(pairs) => Outcome::Count(put_many(table, shape, pairs)?),
        Op::Scan => Outcome::Pairs(readout::scan_all(table)?),
        Op::Len => Outcome::Count(table.len()?),
        Op::Clear => {
            table.clear()?;
            Outcome::Done
        }
        Op::Sync => {
            table.sync()?;
            Outcome::Done
        }
        Op::Maintain(ms, budget) => {
            *now += Duration::from_millis(u64::from(*ms));
            table.maintain(*now, *budget)?;
            Outcome::Done
        }
        Op::Reopen | Op::Kill | Op::Outage => panic!("an open table cannot {op} itself"),
    })
}

/// Returns the operations on words, and the key as one, if the table has them and the number of the
/// key is even: the other keys are asked for as bytes, which is other code.
fn words_for<'t>(
    table: &'t dyn Table,
    shape: &Shape,
    key: u16,
) -> Option<(&'t dyn WordTable, u64)> {
    let words = table.words().filter(|_| key.is_multiple_of(2))?;
    Some((words, word(&shape.key(key))))
}

/// Returns bytes of a pair of words as one.
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a table of words has words of eight bytes"))
}

/// Returns the bare forms if there are any and the key is present, as they require.
fn bare_if_present<'t>(
    table: &'t dyn Table,
    key: &[u8],
) -> Result<Option<&'t dyn BareTable>, Failure> {
    match table.bare() {
        Some(bare) if table.contains(key)? => Ok(Some(bare)),
        _ => Ok(None),
    }
}

/// Reads one key, into a buffer that holds something else.
pub(crate) fn get(table: &dyn Table, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let mut value = readout::LEFT_FROM_BEFORE.to_vec();
    Ok(table.get(key, &mut value)?.then_some(value))
}

fn modify(
    table: &dyn Table,
    shape: &Shape,
    key: u16,
    edit: Edit,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut calls = 0;
    let mut found = None;
    table.modify(&shape.key(key), &mut |value| {
        calls += 1;
        found = value.map(<[u8]>::to_vec);
        match (edit, value) {
            (Edit::Keep, _) => Change::Keep,
            (Edit::Set(new), _) | (Edit::Toggle(new), None) => Change::Put(shape.value(new)),
            (Edit::Drop | Edit::Toggle(_), _) => Change::Remove,
        }
    })?;
    ensure!(calls == 1, "modify called the function {calls} times, and shall call it once");
    Ok(found)
}

fn get_many(
    table: &dyn Table,
    shape: &Shape,
    keys: &[u16],
) -> Result<Vec<Option<Vec<u8>>>, Failure> {
    let as_words: Option<Vec<_>> = keys.iter().map(|key| words_for(table, shape, *key)).collect();
    if let Some(as_words) = as_words.filter(|keys| !keys.is_empty()) {
        let keys: Vec<u64> = as_words.iter().map(|(_, key)| *key).collect();
        // What they are otherwise must not matter.
        let mut values = vec![Some(word(b"leftover")); keys.len()];
        as_words[0].0.get_words(&keys, &mut values)?;
        let bytes = |value: u64| value.to_le_bytes().to_vec();
        return Ok(values.into_iter().map(|value| value.map(bytes)).collect());
    }
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| shape.key(*key)).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut answers: Vec<Option<Option<Vec<u8>>>> = vec![None; keys.len()];
    let mut twice = false;
    table.get_many(&slices, &mut |position, value| {
        let answer = &mut answers[position];
        twice |= answer.is_some();
        *answer = Some(value.map(<[u8]>::to_vec));
    })?;
    ensure!(!twice, "get_many answered for one position twice");
    let complete: Option<Vec<_>> = answers.into_iter().collect();
    complete.ok_or_else(|| Failure::new("get_many left out a position"))
}

fn put_many(table: &dyn Table, shape: &Shape, pairs: &[(u16, u32)]) -> Result<u64, Failure> {
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (shape.key(*k), shape.value(*v))).collect();
    let slices: Vec<(&[u8], &[u8])> =
        pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    Ok(table.put_many(&slices)?)
}
