//! The directory of CCEH and Dash: leading bits of the hash choose the segment.
//!
//! ```text
//!   root   | address of the directory |
//!   line 0 | lock | depth | -
//!   line 1 | segment 0 | segment 1 | ...
//! ```

use everhash_pmem::{Access, Addr, Media, Result, Span};

use super::Space;
use super::space::{LINE_WORDS, ROOT, add, store_durably};

mod sites {
    everhash_pmem::sites! {
        /// The lock of the directory.
        LOCK = "rivals/directory/lock";
        /// Entries of a segment that was split.
        ENTRIES = "rivals/directory/entries";
        /// A directory twice as long.
        DOUBLE = "rivals/directory/double";
        /// The address of the directory.
        ROOT_WORD = "rivals/directory/root";
    }
}

const LOCK: u64 = 0;
const DEPTH: u64 = 1;
const ENTRIES: u64 = LINE_WORDS;

/// Returns the leading `depth` bits of a hash.
pub const fn prefix(hash: u64, depth: u64) -> u64 {
    if depth == 0 { 0 } else { hash >> (64 - depth) }
}

/// Makes the directory of one segment.
pub fn format<M: Media>(space: &Space<M>, segment: Addr) -> Result<()> {
    let span = space.take(ENTRIES + 1)?;
    let pm = space.access();
    pm.write_words(span.start, &[0; ENTRIES as usize])?;
    pm.store(span.start.plus(ENTRIES), segment.byte())?;
    pm.persist(span, sites::DOUBLE)?;
    store_durably(&pm, ROOT, span.start.byte(), sites::ROOT_WORD)
}

/// Returns the segment of a hash. Looks at the lock, which the owner of a longer directory holds.
pub fn segment_of<M: Media>(pm: &Access<'_, M>, hash: u64) -> Result<Addr> {
    let at = Addr::new(pm.load(ROOT)?);
    pm.load(at.plus(LOCK))?;
    let depth = pm.load(at.plus(DEPTH))?;
    Ok(Addr::new(pm.load(at.plus(ENTRIES + prefix(hash, depth)))?))
}

/// Enters the upper half of the segment of a hash, which has `local` bits in common. A crash leaves
/// some of its entries: those of a segment are found from its first one on.
pub fn enter<M: Media>(space: &Space<M>, hash: u64, local: u64, upper: Addr) -> Result<()> {
    let pm = space.access();
    let at = Addr::new(pm.load(ROOT)?);
    let depth = pm.load(at.plus(DEPTH))?;
    add(&pm, at.plus(LOCK), 1, sites::LOCK)?;
    if local == depth {
        let entries: Vec<u64> = (0..1 << depth)
            .map(|index| pm.load(at.plus(ENTRIES + index)))
            .collect::<Result<_>>()?;
        let mut longer: Vec<u64> = entries.iter().flat_map(|entry| [*entry; 2]).collect();
        longer[prefix(hash, depth) as usize * 2 + 1] = upper.byte();
        let span = space.take(ENTRIES + longer.len() as u64)?;
        pm.write_words(span.start, &[0, depth + 1, 0, 0, 0, 0, 0, 0])?;
        pm.write_words(span.start.plus(ENTRIES), &longer)?;
        pm.persist(span, sites::DOUBLE)?;
        return store_durably(&pm, ROOT, span.start.byte(), sites::ROOT_WORD);
    }
    let half = 1 << (depth - local - 1);
    let first = prefix(hash, local) * 2 * half + half;
    let span = Span::new(at.plus(ENTRIES + first), half);
    pm.write_words(span.start, &vec![upper.byte(); half as usize])?;
    pm.persist(span, sites::ENTRIES)?;
    add(&pm, at.plus(LOCK), 1_u64.wrapping_neg(), sites::LOCK)
}

/// Returns all segments, each once.
pub fn segments<M: Media>(pm: &Access<'_, M>) -> Result<Vec<Addr>> {
    let at = Addr::new(pm.load(ROOT)?);
    let depth = pm.load(at.plus(DEPTH))?;
    let entry = |index| Ok(Addr::new(pm.load(at.plus(ENTRIES + index))?));
    let mut segments: Vec<Addr> = (0..1 << depth).map(entry).collect::<Result<_>>()?;
    segments.dedup();
    Ok(segments)
}
