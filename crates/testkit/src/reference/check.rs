//! Reads a pool at rest: contents, or the broken invariant. Imports the layout only.

use everhash_index::{Checked, Error, Form, Result, admit};
use everhash_pmem::{LINE, Media, Pool, Region, Span, WORD, pool};

use super::layout::{Head, KEY_BYTES, ROOT, Root, VALUE_BYTES, checksum, table_of};

/// Visits every pair of the pool on `region`, or names the invariant that is broken.
pub(super) fn check<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Checked> {
    let form = Form::from_code(Pool::inspect(region)?.form);
    let pm = region.access();
    let corrupt = |at: u64, broken| Err(Error::Corrupt { at, broken });
    let root = pm.load(ROOT.plus(Root::TABLE as u64))?;
    let Some(table) = table_of(root) else {
        return corrupt(ROOT.byte(), "the root's check matches its address");
    };
    if table.is_null() {
        return Ok(Checked { items: 0, reachable_bytes: pool::DATA.byte() });
    }
    let mut head = [0; Head::WORDS];
    pm.read_words(table, &mut head)?;
    let mut pairs = Vec::new();
    pm.read_bytes(table.plus(Head::WORDS as u64), head[Head::LENGTH], &mut pairs)?;
    if checksum(table, head[Head::LENGTH], head[Head::COUNT], &pairs) != head[Head::CHECKSUM] {
        return corrupt(table.byte(), "the checksum of the table matches");
    }
    let mut rest = pairs.as_slice();
    let mut previous: Option<Vec<u8>> = None;
    for _ in 0..head[Head::COUNT] {
        let Some((key, value, after)) = split(rest) else {
            return corrupt(table.byte(), "every pair lies inside its table");
        };
        if admit(form, key, value).is_err() {
            return corrupt(table.byte(), "every pair has the pool's form");
        }
        if previous.as_deref().is_some_and(|previous| previous >= key) {
            return corrupt(table.byte(), "the keys of a table rise");
        }
        visit(key, value);
        previous = Some(key.to_vec());
        rest = after;
    }
    if !rest.is_empty() {
        return corrupt(table.byte(), "the pairs fill their table");
    }
    let span = Span::of_bytes(table, Head::BYTES as u64 + head[Head::LENGTH]);
    let reachable_bytes = pool::DATA.byte() + span.bytes().next_multiple_of(LINE);
    Ok(Checked { items: head[Head::COUNT], reachable_bytes })
}

/// Returns the first key and value of `pairs`, and what follows.
fn split(pairs: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (lengths, rest) = pairs.split_first_chunk::<8>()?;
    let lengths = u64::from_le_bytes(*lengths);
    let (key_bytes, value_bytes) = (KEY_BYTES.get(lengths), VALUE_BYTES.get(lengths));
    let (key, rest) = rest.split_at_checked(key_bytes.next_multiple_of(WORD) as usize)?;
    let (value, rest) = rest.split_at_checked(value_bytes.next_multiple_of(WORD) as usize)?;
    Some((&key[..key_bytes as usize], &value[..value_bytes as usize], rest))
}
