//! In-cacheline crash consistency (Tiered Hashing 3.6): how changes to lines become durable.
//!
//! Flags and pairs share a line. Where a line keeps the order of its stores, all changes of an
//! operation are stored, and then one flush of the lines and one fence make them durable. Where it
//! keeps none (files, other processors), a fence goes between the three steps.
//!
//! | step | stores | because |
//! |---|---|---|
//! | 1 | flags: a shadow that is to be overwritten is open; one that is to be rewritten is valid | a torn pair must not be readable; a new value must not be overwritten |
//! | 2 | pairs, and the last words of those that are rewritten in place | |
//! | 3 | flags: what was written is readable | |
//!
//! No log is needed: values of more than eight bytes lie in records, and a slot changes which one
//! it leads to by one store.

use core::slice::from_ref;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, Block, LINE, Media, Span, before_reuse};

use super::bucket::{Line, Words};
use super::layout::{self, Head, LINE_WORDS, Line as Ruler, READABLE, SLOTS};

/// Where the change of a line persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// Flags that take a shadow out of reach, or make it valid, before its words change.
        CLEAR = "tiered/line/clear";
        /// A pair, before its flags.
        PAIR = "tiered/line/pair";
        /// The flags that make pairs readable, or end them; and, where a line keeps the order of
        /// its stores, everything before them.
        FLAGS = "tiered/line/flags";
    }
}

/// What becomes of one line.
#[derive(Clone, Copy)]
struct LineEdit {
    at: Addr,
    /// The head as it is, after step 1, and after step 3.
    old: Head,
    first: Head,
    last: Head,
    /// Bit i: word i changes in step 2, to `words[i]`.
    changed: u8,
    words: [u64; LINE_WORDS],
    /// The edit before it with the same [`Plan::key`], plus one; 0 for none.
    before: u32,
}

/// Changes to some lines that become durable together. A crash inside leaves each line as it was,
/// as it will be, or with slots open that were shadows; the lines become durable in any order.
pub struct Plan {
    edits: Vec<LineEdit>,
    /// The newest edit with each [`Plan::key`], plus one; 0 for none. A write that moves pairs may
    /// have an edit for every line of a page, and looks for each of them several times.
    newest: [u32; Plan::KEYS],
}

impl Default for Plan {
    fn default() -> Self {
        Plan { edits: Vec::new(), newest: [0; Plan::KEYS] }
    }
}

impl Plan {
    /// As many as a page of the usual length has lines: so each of these has a key of its own.
    const KEYS: usize = 64;

    #[inline(always)]
    fn key(at: Addr) -> usize {
        at.line() as usize % Plan::KEYS
    }

    /// Returns the number of the edit of the line at `at`.
    #[inline(always)]
    fn number(&self, at: Addr) -> Option<usize> {
        let mut next = self.newest[Plan::key(at)];
        // Ends: an edit follows only those that are older.
        while let Some(edit) = self.edits.get((next as usize).wrapping_sub(1)) {
            if edit.at == at {
                return Some(next as usize - 1);
            }
            next = edit.before;
        }
        None
    }

    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Returns what the head of a line will be.
    #[inline(always)]
    pub fn head<M: Media>(&self, line: &Line<'_, M>) -> Head {
        self.head_at(line.at(), line.head)
    }

    /// As [`Plan::head`], of the line at `at`, whose head is `head` now.
    #[inline(always)]
    pub fn head_at(&self, at: Addr, head: Head) -> Head {
        self.find(at).map_or(head, |edit| edit.last)
    }

    /// Returns whether a slot of a line is to be changed.
    pub fn touches(&self, at: Addr, slot: usize) -> bool {
        self.touched(at) >> slot & 1 == 1
    }

    /// Returns the slots of the line at `at` that are to be changed, bit i for slot i.
    pub fn touched(&self, at: Addr) -> u32 {
        let touches = |edit: &LineEdit, slot: usize| {
            let words = edit.changed >> layout::slot_word(slot) & 0b11;
            edit.last.state(slot) != edit.old.state(slot) || words != 0
        };
        self.find(at).map_or(0, |edit| {
            (0..SLOTS).fold(0, |all, slot| all | u32::from(touches(edit, slot)) << slot)
        })
    }

    /// Writes a pair into a slot that is open or the shadow of another key, of the line at `at`,
    /// whose head is `head` now.
    #[inline(always)]
    pub fn fill(&mut self, (at, head): (Addr, Head), slot: usize, state: u16, pair: Words) {
        let edit = self.edit(at, head);
        edit.first = edit.first.with(slot, 0);
        edit.last = edit.last.with(slot, state);
        let first = layout::slot_word(slot);
        edit.change(first, pair[0]);
        edit.change(first + 1, pair[1]);
    }

    /// Replaces the last word of a slot by that of another pair of the same key, and its state.
    ///
    /// A value is changed while its slot is valid, or a tombstone.
    #[inline(always)]
    pub fn rewrite(&mut self, (at, head): (Addr, Head), slot: usize, state: u16, word: u64) {
        let edit = self.edit(at, head);
        edit.change(layout::slot_word(slot) + 1, word);
        edit.last = edit.last.with(slot, state);
        if !layout::is_deleted(edit.old.state(slot)) {
            edit.first = edit.first.with(slot, state);
        }
    }

    /// Changes the flags of a slot: 0 ends its pair.
    #[inline(always)]
    pub fn flag(&mut self, (at, head): (Addr, Head), slot: usize, state: u16) {
        let edit = self.edit(at, head);
        edit.last = edit.last.with(slot, state);
    }

    /// Stores all changes and waits until they are durable.
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn commit<M: Media>(&self, pm: &Access<'_, M>, ordered: bool) -> Result<()> {
        commit_lines(&self.edits, pm, ordered)
    }

    /// As [`Plan::commit`], with a flush and a fence of its own for each line.
    ///
    /// # Errors
    /// As the medium.
    pub fn commit_apart<M: Media>(&self, pm: &Access<'_, M>, ordered: bool) -> Result<()> {
        self.edits.iter().try_for_each(|edit| commit_lines(from_ref(edit), pm, ordered))
    }

    /// Returns every line with the head that it gets.
    #[inline(always)]
    pub fn heads(&self) -> impl Iterator<Item = (Addr, Head)> {
        self.edits.iter().map(|edit| (edit.at, edit.last))
    }

    #[inline(always)]
    fn find(&self, at: Addr) -> Option<&LineEdit> {
        self.number(at).map(|number| &self.edits[number])
    }

    #[inline(always)]
    fn edit(&mut self, at: Addr, head: Head) -> &mut LineEdit {
        let number = self.number(at).unwrap_or_else(|| {
            let newest = &mut self.newest[Plan::key(at)];
            if self.edits.is_empty() {
                self.edits.reserve(Plan::KEYS);
            }
            self.edits.push(LineEdit { before: *newest, ..LineEdit::of(at, head) });
            *newest = self.edits.len() as u32;
            self.edits.len() - 1
        });
        &mut self.edits[number]
    }
}

/// A change of one slot: all that most writes do.
pub struct SlotEdit<'a, M: Media> {
    /// The line as it is.
    line: Line<'a, M>,
    slot: usize,
    /// What the state of the slot will be.
    state: u16,
    words: Words,
    kind: Kind,
}

/// Which words of a slot a [`SlotEdit`] changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Both: see [`Plan::fill`].
    Fill,
    /// The last one: see [`Plan::rewrite`].
    Rewrite,
    /// None: see [`Plan::flag`].
    Flag,
}

impl<'a, M: Media> SlotEdit<'a, M> {
    /// As [`Plan::fill`].
    #[inline(always)]
    pub fn fill(line: Line<'a, M>, slot: usize, state: u16, words: Words) -> Self {
        SlotEdit { line, slot, state, words, kind: Kind::Fill }
    }

    /// As [`Plan::rewrite`].
    #[inline(always)]
    pub fn rewrite(line: Line<'a, M>, slot: usize, state: u16, word: u64) -> Self {
        SlotEdit { line, slot, state, words: [0, word], kind: Kind::Rewrite }
    }

    /// As [`Plan::flag`].
    #[inline(always)]
    pub fn flag(line: Line<'a, M>, slot: usize, state: u16) -> Self {
        SlotEdit { line, slot, state, words: [0; 2], kind: Kind::Flag }
    }

    /// Returns the line as it is, and the slot.
    #[inline(always)]
    pub fn slot(&self) -> (&Line<'a, M>, usize) {
        (&self.line, self.slot)
    }

    /// Returns whether a pair that the slot holds ends, and is not deleted: a tombstone shares the
    /// record of the copy that it ends.
    #[inline(always)]
    pub fn ends(&self) -> bool {
        let ends = self.kind != Kind::Flag || self.state == 0;
        ends && layout::is_readable(self.line.head.state(self.slot))
    }

    /// Returns the head that the line gets.
    #[inline(always)]
    pub fn last(&self) -> Head {
        self.line.head.with(self.slot, self.state)
    }

    /// Returns the head after step 1.
    #[inline(always)]
    fn first(&self) -> Head {
        let old = self.line.head;
        match self.kind {
            Kind::Fill => old.with(self.slot, 0),
            Kind::Rewrite if !layout::is_deleted(old.state(self.slot)) => self.last(),
            Kind::Rewrite | Kind::Flag => old,
        }
    }

    /// Returns the same as a plan, to which other changes may be added.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let line = (self.line.at(), self.line.head);
        match self.kind {
            Kind::Fill => plan.fill(line, self.slot, self.state, self.words),
            Kind::Rewrite => plan.rewrite(line, self.slot, self.state, self.words[1]),
            Kind::Flag => plan.flag(line, self.slot, self.state),
        }
        plan
    }

    /// As [`Plan::commit`].
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn commit(&self, pm: &Access<'_, M>, ordered: bool) -> Result<()> {
        before_reuse::<M::Sync>();
        let (first, last) = (self.first(), self.last());
        let (block, at, word) = (&self.line.block, self.line.at(), layout::slot_word(self.slot));
        let span = Span::new(at, LINE_WORDS as u64);
        if first != self.line.head {
            block.commit_word(Ruler::HEAD, first.encode(at), sites::CLEAR);
            if !ordered {
                pm.persist(span, sites::CLEAR)?;
            }
        }
        if self.kind == Kind::Fill {
            block.commit_word(word, self.words[0], sites::PAIR);
        }
        if self.kind != Kind::Flag {
            block.commit_word(word + 1, self.words[1], sites::PAIR);
            if !ordered && last != first {
                pm.persist(span, sites::PAIR)?;
            }
        }
        if last != first {
            block.commit_word(Ruler::HEAD, last.encode(at), sites::FLAGS);
        }
        Ok(pm.persist(span, sites::FLAGS)?)
    }
}

/// What [`Plan::commit`] does, with some lines.
#[inline(always)]
fn commit_lines<M: Media>(edits: &[LineEdit], pm: &Access<'_, M>, ordered: bool) -> Result<()> {
    before_reuse::<M::Sync>();
    let mut is_pending = false;
    for edit in edits.iter().filter(|edit| edit.first != edit.old) {
        pm.commit_word(edit.head_at(), edit.first.encode(edit.at), sites::CLEAR)?;
        if !ordered {
            pm.flush(edit.span(), sites::CLEAR);
            is_pending = true;
        }
    }
    if is_pending {
        pm.fence(sites::CLEAR)?;
        is_pending = false;
    }
    for edit in edits {
        let line = pm.block::<LINE_WORDS>(edit.at)?;
        let mut left = edit.changed;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            line.commit_word(index, edit.words[index], sites::PAIR);
        }
        if !ordered && edit.last != edit.first && edit.changed != 0 {
            pm.flush(edit.span(), sites::PAIR);
            is_pending = true;
        }
    }
    if is_pending {
        pm.fence(sites::PAIR)?;
    }
    for edit in edits {
        if edit.last != edit.first {
            pm.commit_word(edit.head_at(), edit.last.encode(edit.at), sites::FLAGS)?;
        }
    }
    // After all stores: a device that writes pages writes one for all lines in it.
    for edit in edits {
        pm.flush(edit.span(), sites::FLAGS);
    }
    Ok(pm.fence(sites::FLAGS)?)
}

impl LineEdit {
    #[inline(always)]
    fn of(at: Addr, head: Head) -> Self {
        let (changed, words, before) = Default::default();
        LineEdit { at, old: head, first: head, last: head, changed, words, before }
    }

    #[inline(always)]
    fn change(&mut self, index: usize, word: u64) {
        // A power of two: no index leads out of the line.
        let index = index % LINE_WORDS;
        self.changed |= 1 << index;
        self.words[index] = word;
    }

    fn head_at(&self) -> Addr {
        self.at.plus(Ruler::HEAD as u64)
    }

    fn span(&self) -> Span {
        Span::new(self.at, LINE_WORDS as u64)
    }
}

/// Returns the state of a slot that becomes a shadow.
pub const fn shadow(state: u16) -> u16 {
    state & !layout::NON_WRITABLE
}

/// Returns the state of a slot that holds a pair of a key, or its tombstone.
pub const fn valid(hash: u64, second: bool, deleted: bool) -> u16 {
    let second = if second { layout::SECOND } else { 0 };
    let deleted = if deleted { layout::DELETED } else { 0 };
    READABLE | layout::NON_WRITABLE | second | deleted | layout::print_of(hash)
}

const _: () = assert!(LINE as usize == Ruler::BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_finds_each_of_its_lines_and_no_other() {
        // Fails if lines with equal keys hide one another, as those of a long page do.
        let head = |number: u64| Head::EMPTY.with(0, (number as u16) << 4 | READABLE);
        let at = |number: u64| Addr::new(LINE * (5000 + 7 * number));
        let mut plan = Plan::default();
        plan.edit(at(0), head(0));
        for count in 1..300 {
            plan.edit(at(count), head(count));
            plan.edit(at(count / 2), Head::EMPTY);
            for number in 0..400 {
                let expected = if number <= count { head(number) } else { Head::EMPTY };
                assert_eq!(plan.head_at(at(number), Head::EMPTY), expected, "{number} of {count}");
            }
            assert_eq!(plan.heads().count() as u64, count + 1);
        }
    }
}
