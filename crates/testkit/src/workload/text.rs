//! Operations as short text, for replay lines: `put:3:17 remove:3 maintain:500:4`.

use core::fmt;
use core::str::FromStr;

use super::{Edit, Op};

/// A piece of text that is no operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadOp(String);

impl fmt::Display for BadOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no operation; expected something like 'put:3:17'", self.0)
    }
}

impl core::error::Error for BadOp {}

/// Writes operations as one line.
///
/// ```
/// use everhash_testkit::workload::{Op, parse, render};
/// let ops = vec![Op::Put(3, 17), Op::GetMany(vec![3, 4]), Op::Sync];
/// assert_eq!(render(&ops), "put:3:17 get_many:3,4 sync");
/// assert_eq!(parse(&render(&ops)), Ok(ops));
/// ```
pub fn render(ops: &[Op]) -> String {
    let words: Vec<String> = ops.iter().map(Op::to_string).collect();
    words.join(" ")
}

/// Reads what [`render`] wrote.
///
/// # Errors
/// [`BadOp`] names the first piece that is no operation.
pub fn parse(text: &str) -> Result<Vec<Op>, BadOp> {
    text.split_whitespace().map(str::parse).collect()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Insert(key, value) => write!(f, "insert:{key}:{value}"),
            Op::Put(key, value) => write!(f, "put:{key}:{value}"),
            Op::Update(key, value) => write!(f, "update:{key}:{value}"),
            Op::Modify(key, Edit::Keep) => write!(f, "modify:{key}:keep"),
            Op::Modify(key, Edit::Drop) => write!(f, "modify:{key}:drop"),
            Op::Modify(key, Edit::Set(value)) => write!(f, "modify:{key}:set={value}"),
            Op::Modify(key, Edit::Toggle(value)) => write!(f, "modify:{key}:toggle={value}"),
            Op::UpdateBlind(key, value) => write!(f, "update_blind:{key}:{value}"),
            Op::Remove(key) => write!(f, "remove:{key}"),
            Op::RemoveBlind(key) => write!(f, "remove_blind:{key}"),
            Op::Get(key) => write!(f, "get:{key}"),
            Op::Contains(key) => write!(f, "contains:{key}"),
            Op::GetMany(keys) => {
                let keys: Vec<String> = keys.iter().map(u16::to_string).collect();
                write!(f, "get_many:{}", keys.join(","))
            }
            Op::PutMany(pairs) => {
                let pairs: Vec<String> =
                    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "put_many:{}", pairs.join(","))
            }
            Op::Scan => f.write_str("scan"),
            Op::Len => f.write_str("len"),
            Op::Clear => f.write_str("clear"),
            Op::Sync => f.write_str("sync"),
            Op::Maintain(ms, budget) => write!(f, "maintain:{ms}:{budget}"),
            Op::Reopen => f.write_str("reopen"),
            Op::Kill => f.write_str("kill"),
            Op::Outage => f.write_str("outage"),
        }
    }
}

impl FromStr for Op {
    type Err = BadOp;

    fn from_str(text: &str) -> Result<Op, BadOp> {
        read(text).ok_or_else(|| BadOp(text.to_owned()))
    }
}

fn read(text: &str) -> Option<Op> {
    let parts: Vec<&str> = text.split(':').collect();
    Some(match *parts {
        ["insert", key, value] => Op::Insert(key.parse().ok()?, value.parse().ok()?),
        ["put", key, value] => Op::Put(key.parse().ok()?, value.parse().ok()?),
        ["update", key, value] => Op::Update(key.parse().ok()?, value.parse().ok()?),
        ["modify", key, edit] => Op::Modify(key.parse().ok()?, read_edit(edit)?),
        ["update_blind", key, value] => Op::UpdateBlind(key.parse().ok()?, value.parse().ok()?),
        ["remove_blind", key] => Op::RemoveBlind(key.parse().ok()?),
        ["remove", key] => Op::Remove(key.parse().ok()?),
        ["get", key] => Op::Get(key.parse().ok()?),
        ["contains", key] => Op::Contains(key.parse().ok()?),
        ["get_many", keys] => Op::GetMany(read_list(keys, |key| key.parse().ok())?),
        ["put_many", pairs] => Op::PutMany(read_list(pairs, |pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.parse().ok()?, value.parse().ok()?))
        })?),
        ["scan"] => Op::Scan,
        ["len"] => Op::Len,
        ["clear"] => Op::Clear,
        ["sync"] => Op::Sync,
        ["maintain", ms, budget] => Op::Maintain(ms.parse().ok()?, budget.parse().ok()?),
        ["reopen"] => Op::Reopen,
        ["kill"] => Op::Kill,
        ["outage"] => Op::Outage,
        _ => return None,
    })
}

fn read_edit(text: &str) -> Option<Edit> {
    Some(match text.split_once('=') {
        None if text == "keep" => Edit::Keep,
        None if text == "drop" => Edit::Drop,
        Some(("set", value)) => Edit::Set(value.parse().ok()?),
        Some(("toggle", value)) => Edit::Toggle(value.parse().ok()?),
        _ => return None,
    })
}

fn read_list<T>(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    if text.is_empty() { Some(Vec::new()) } else { text.split(',').map(item).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Bias, Workload};

    #[test]
    fn every_operation_survives_its_text() {
        // Fails if a printed failure could not be replayed as it was.
        for seed in 0..10 {
            let bias = Bias::of_seed(seed);
            let ops = Workload { seed, operations: 300, keys: 9, bias, restarts: true }.generate();
            assert_eq!(parse(&render(&ops)), Ok(ops));
        }
        let many = parse("put_many:1=2,3=4 get_many:5,6 update_blind:7:8 scan").unwrap();
        assert_eq!(many.iter().flat_map(Op::keys).collect::<Vec<_>>(), [1, 3, 5, 6, 7]);
        assert!(parse("put:1").is_err() && parse("put:1:2 fly").is_err());
    }
}
