//! What the checks of pools at rest share. The code that serves a table uses nothing of it: the
//! same mistake in both would go unnoticed.

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Media, RecordWord, Span, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::hash::KeyedHash;
use super::record;
use super::settings::other_layout;

/// Versions of layouts stay below: a number beyond it is damage.
///
/// Unit: none. Source: ours; there is room for many more than there were.
const MOST_VERSION: u64 = 256;

/// Makes the error of a broken invariant.
pub(crate) fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}

/// Verifies the first words of a root, from the version to the checksum of those before it.
///
/// # Errors
/// [`Error::Unsupported`] if the layout of `engine` is not of `version`; [`Error::Corrupt`] if the
/// checksum does not match, and the version is none that a newer program could have written.
pub(crate) fn verify_root(root: &[u64], engine: &str, version: u64) -> Result<()> {
    let (checksum, words) = root.split_last().expect("a root has a version and a checksum");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let is_sound = xxh3_64_with_seed(&bytes, pool::ROOT.byte()) == *checksum;
    if !is_sound && !is_newer(words[0], version) {
        let at = pool::ROOT.plus(words.len() as u64);
        return Err(corrupt(at, "the checksum of the settings matches"));
    }
    match words[0] == version {
        true => Ok(()),
        false => Err(other_layout(engine, words[0], version)),
    }
}

/// Returns whether a layout is probably one of a newer program, which may keep its checksum
/// elsewhere.
fn is_newer(found: u64, version: u64) -> bool {
    (version + 1..MOST_VERSION).contains(&found)
}

/// How much a check may still read of what addresses on the medium lead to.
///
/// Checksums keep damage away and not malice: a small forged file may lead a thousand times to one
/// long record. What is in use shares no byte, so that all of it is as long as the medium at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    /// Returns the budget of a medium: twice its length, because what moves may be in two places.
    pub(crate) fn of(medium_bytes: u64) -> Budget {
        Budget { left: medium_bytes.saturating_mul(2) }
    }

    /// Returns the budget of what lies behind the header of a pool: the length of that. For checks
    /// that read each place once.
    pub(crate) fn behind_header(medium_bytes: u64) -> Budget {
        Budget { left: medium_bytes.saturating_sub(pool::DATA.byte()) }
    }

    /// Notes that a span will be read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if more is in use than the medium has room for.
    pub(crate) fn take(&mut self, span: Span) -> Result<()> {
        let left = self.left.checked_sub(span.bytes());
        self.left = left.ok_or(corrupt(span.start, "nothing lies in two places"))?;
        Ok(())
    }
}

/// Returns what the record occupies to which the slot with the last word at `at` leads.
///
/// # Errors
/// [`Error::Corrupt`] if a check does not match.
pub(crate) fn record_span([hash, word]: [u64; 2], at: Addr) -> Result<Span> {
    let pointer = pointer([hash, word], at)?;
    Ok(Span::of_bytes(pointer.addr, pointer.class.bytes()))
}

fn pointer([hash, word]: [u64; 2], at: Addr) -> Result<RecordWord> {
    RecordWord::from_medium(at, word)?
        .filter(|pointer| pointer.tag == record::tag_of(hash, word))
        .ok_or(corrupt(at, "a record word matches its check"))
}

/// Reads the record to which the slot with the last word at `at` leads: its key, its value, and
/// what it occupies.
///
/// # Errors
/// [`Error::Corrupt`] if a check does not match, or if the record is one of another key.
pub(crate) fn read_record<M: Media>(
    pm: &Access<'_, M>,
    hasher: &KeyedHash,
    [hash, word]: [u64; 2],
    at: Addr,
) -> Result<(Vec<u8>, Vec<u8>, Span)> {
    let pointer = pointer([hash, word], at)?;
    let mut key = Vec::new();
    let key_bytes = record::read(pm, pointer, hash, &mut key)?;
    let value = key.split_off(key_bytes);
    // It is kept, and had room for the value too.
    key.shrink_to_fit();
    if hasher.bytes(&key) != hash {
        return Err(corrupt(at, "a slot holds the hash of its key"));
    }
    Ok((key, value, Span::of_bytes(pointer.addr, pointer.class.bytes())))
}

/// Returns how many bytes are in use on a medium of `medium_bytes`.
///
/// # Errors
/// [`Error::Corrupt`] if two spans overlap, or if one lies beyond the end.
pub(crate) fn reachable_bytes(mut spans: Vec<Span>, medium_bytes: u64) -> Result<u64> {
    spans.sort_unstable();
    let mut end = 0;
    for span in &spans {
        if span.start.byte() < end {
            return Err(corrupt(span.start, "nothing lies in two places"));
        }
        end = span.end_byte();
        if end > medium_bytes {
            return Err(corrupt(span.start, "everything lies inside the pool"));
        }
    }
    Ok(spans.iter().map(|span| span.bytes()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(byte: u64, bytes: u64) -> Span {
        Span::of_bytes(Addr::new(byte), bytes)
    }

    #[test]
    fn what_is_in_use_overlaps_nowhere_and_ends_inside_the_medium() {
        // Fails if two spans share a word, or if the last one ends a word too late, unnoticed.
        let reachable = |spans: &[Span]| reachable_bytes(spans.to_vec(), 128);
        assert_eq!(reachable(&[span(64, 64), span(0, 56)]).unwrap(), 120);
        for (spans, wrong) in [
            ([span(56, 8), span(0, 64)], 56),
            ([span(0, 8), span(0, 8)], 0),
            ([span(0, 8), span(64, 72)], 64),
        ] {
            let outcome = reachable(&spans);
            assert!(
                matches!(outcome, Err(Error::Corrupt { at, .. }) if at == wrong),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn a_check_reads_no_more_than_its_budget() {
        // Fails if forged addresses may lead to one place again and again.
        let header = pool::DATA.byte();
        for (mut budget, bytes) in [(Budget::of(64), 128), (Budget::behind_header(header + 64), 64)]
        {
            budget.take(span(0, bytes - 8)).unwrap();
            budget.take(span(8, 8)).unwrap();
            let outcome = budget.take(span(16, 8));
            assert!(matches!(outcome, Err(Error::Corrupt { at: 16, .. })), "{outcome:?}");
        }
    }
}
