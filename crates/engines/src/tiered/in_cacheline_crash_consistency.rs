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

use everhash_index::Result;
use everhash_pmem::{Access, Addr, LINE, Media, Span, before_reuse};

use super::bucket::{Line, Words};
use super::layout::{self, Head, LINE_WORDS, Line as Ruler, READABLE};

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
    words: [u64; 2 * layout::SLOTS],
}

/// Changes to some lines that become durable together. A crash inside leaves each line as it was,
/// as it will be, or with slots open that were shadows; the lines become durable in any order.
#[derive(Default)]
pub struct Plan {
    /// Most plans have one line, and need no allocation.
    one: Option<LineEdit>,
    more: Vec<LineEdit>,
}

impl Plan {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.one.is_none()
    }

    /// Returns what the head of a line will be.
    #[inline(always)]
    pub fn head<M: Media>(&self, line: &Line<'_, M>) -> Head {
        let found = self.edits().find(|edit| edit.at == line.at());
        found.map_or(line.head, |edit| edit.last)
    }

    /// Returns whether a slot of a line is to be changed.
    pub fn touches(&self, at: Addr, slot: usize) -> bool {
        let found = self.edits().find(|edit| edit.at == at);
        found.is_some_and(|edit| {
            let words = edit.changed >> layout::slot_word(slot) & 0b11;
            edit.last.state(slot) != edit.old.state(slot) || words != 0
        })
    }

    /// Writes a pair into a slot that is open or the shadow of another key.
    #[inline(always)]
    pub fn fill<M: Media>(&mut self, line: &Line<'_, M>, slot: usize, state: u16, pair: Words) {
        let edit = self.edit(line);
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
    pub fn rewrite<M: Media>(&mut self, line: &Line<'_, M>, slot: usize, state: u16, word: u64) {
        let edit = self.edit(line);
        edit.change(layout::slot_word(slot) + 1, word);
        edit.last = edit.last.with(slot, state);
        if !layout::is_deleted(edit.old.state(slot)) {
            edit.first = edit.first.with(slot, state);
        }
    }

    /// Changes the flags of a slot: 0 ends its pair.
    #[inline(always)]
    pub fn flag<M: Media>(&mut self, line: &Line<'_, M>, slot: usize, state: u16) {
        let edit = self.edit(line);
        edit.last = edit.last.with(slot, state);
    }

    /// Stores all changes and waits until they are durable.
    ///
    /// # Errors
    /// As the medium.
    #[inline(always)]
    pub fn commit<M: Media>(&self, pm: &Access<'_, M>, ordered: bool) -> Result<()> {
        before_reuse::<M::Sync>();
        let mut is_pending = false;
        for edit in self.edits().filter(|edit| edit.first != edit.old) {
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
        for edit in self.edits() {
            for (index, word) in edit.words.iter().enumerate() {
                if edit.changed >> index & 1 == 1 {
                    pm.commit_word(edit.at.plus(index as u64), *word, sites::PAIR)?;
                }
            }
            if !ordered && edit.last != edit.first && edit.changed != 0 {
                pm.flush(edit.span(), sites::PAIR);
                is_pending = true;
            }
        }
        if is_pending {
            pm.fence(sites::PAIR)?;
        }
        for edit in self.edits() {
            if edit.last != edit.first {
                pm.commit_word(edit.head_at(), edit.last.encode(edit.at), sites::FLAGS)?;
            }
        }
        // After all stores: a device that writes pages writes one for all lines in it.
        for edit in self.edits() {
            pm.flush(edit.span(), sites::FLAGS);
        }
        Ok(pm.fence(sites::FLAGS)?)
    }

    /// As [`Plan::commit`], with a flush and a fence of its own for each line.
    ///
    /// # Errors
    /// As the medium.
    pub fn commit_apart<M: Media>(&self, pm: &Access<'_, M>, ordered: bool) -> Result<()> {
        self.edits()
            .try_for_each(|edit| Plan { one: Some(*edit), more: Vec::new() }.commit(pm, ordered))
    }

    /// Returns every line with the head that it gets.
    pub fn heads(&self) -> impl Iterator<Item = (Addr, Head)> {
        self.edits().map(|edit| (edit.at, edit.last))
    }

    fn edits(&self) -> impl Iterator<Item = &LineEdit> {
        self.one.iter().chain(&self.more)
    }

    #[inline(always)]
    fn edit<M: Media>(&mut self, line: &Line<'_, M>) -> &mut LineEdit {
        let (at, head) = (line.at(), line.head);
        let (changed, words) = Default::default();
        let new = LineEdit { at, old: head, first: head, last: head, changed, words };
        if self.one.is_none_or(|edit| edit.at == at) {
            return self.one.get_or_insert(new);
        }
        let found = self.more.iter().position(|edit| edit.at == at);
        let index = found.unwrap_or_else(|| {
            self.more.push(new);
            self.more.len() - 1
        });
        &mut self.more[index]
    }
}

impl LineEdit {
    #[inline(always)]
    fn change(&mut self, index: usize, word: u64) {
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
