//! The memory under a model: visible, durable and pending stores.

use std::collections::BTreeMap;

use super::log::{Event, FREED, How, What};
use super::mix::cell;
use super::model::Model;
use crate::{LINE, WORD};

const WORDS_PER_LINE: u32 = (LINE / WORD) as u32;

/// A part of the medium whose content after a crash is independent of every other part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// A cache line, by index.
    Line(u32),
    /// A word, by index.
    Word(u32),
}

/// A pending store: visible, and not durable yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Its number in the order of visibility, over all stores.
    pub order: u64,
    /// Its thread; `None` if the thread was killed, or if no fence completes the store.
    pub thread: Option<u32>,
    /// The number of earlier fences of its thread.
    pub fences: u32,
    /// How it reached the medium.
    pub how: How,
    /// Index of the word.
    pub word: u32,
    /// The value stored.
    pub value: u64,
}

/// The memory under a model, at one moment of a log.
///
/// `visible` is what all threads load; `durable` is what every crash leaves; `pending` holds, by
/// place and in the order of visibility, the stores of which a crash keeps some.
#[derive(Clone, Debug)]
pub struct Memory {
    model: Model,
    visible: Vec<u64>,
    durable: Vec<u64>,
    durable_hash: u64,
    pending: BTreeMap<Place, Vec<Entry>>,
    threads: BTreeMap<u32, Thread>,
    /// Of a file: the number of stores at the last flush of an access, if no fence came since.
    flushed: BTreeMap<u32, u64>,
    stores: u64,
}

/// The state of one thread.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// Lines flushed since the last fence, with the number of stores at the flush.
    marks: Vec<(u32, u64)>,
    fences: u32,
}

impl Memory {
    /// Makes a memory of `bytes` zero bytes, all durable.
    pub fn zero(model: Model, bytes: u64) -> Memory {
        Memory::of(model, vec![0; (bytes / WORD) as usize])
    }

    /// Makes a memory that holds `words`, all durable: an image after power loss.
    pub fn of(model: Model, words: Vec<u64>) -> Memory {
        let hash = (0u32..).zip(&words).fold(0, |hash, (word, value)| hash ^ cell(word, *value));
        Memory {
            model,
            visible: words.clone(),
            durable: words,
            durable_hash: hash,
            pending: BTreeMap::new(),
            threads: BTreeMap::new(),
            flushed: BTreeMap::new(),
            stores: 0,
        }
    }

    /// Returns the memory that the next process finds after this one is killed.
    ///
    /// Visible stores stay visible and pending stores stay pending, but the flush marks of the
    /// killed threads are lost. Non-temporal stores are durable: the interrupt that ends a process
    /// empties the write-combining buffers (Intel SDM, volume 3, "Buffering of Write Combining
    /// Memory Locations").
    pub fn after_process_crash(&self) -> Memory {
        let mut memory = self.clone();
        memory.exit();
        memory
    }

    /// Returns the model.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Returns the visible words.
    pub fn visible(&self) -> &[u64] {
        &self.visible
    }

    /// Returns the durable words: the image of a crash that keeps no pending store.
    pub fn durable(&self) -> &[u64] {
        &self.durable
    }

    /// Returns whether everything visible is durable.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns whether the word has a store that a crash may lose.
    pub fn is_pending(&self, word: u32) -> bool {
        self.newest_pending(word).is_some()
    }

    /// Returns the number of the newest pending store to the word.
    pub(super) fn newest_pending(&self, word: u32) -> Option<u64> {
        let line = self.pending.get(&Place::Line(word / WORDS_PER_LINE));
        let entries = line.or_else(|| self.pending.get(&Place::Word(word)))?;
        entries.iter().rev().find(|entry| entry.word == word).map(|entry| entry.order)
    }

    /// Returns whether the store to `word` with this number is still pending.
    pub(super) fn pends(&self, word: u32, order: u64) -> bool {
        let line = self.pending.get(&Place::Line(word / WORDS_PER_LINE));
        let entries = line.or_else(|| self.pending.get(&Place::Word(word)));
        entries.is_some_and(|entries| entries.iter().any(|entry| entry.order == order))
    }

    /// Returns whether a store past the caches to the word makes older stores durable: those of a
    /// killed process to its line, which it evicts.
    pub(super) fn evicts(&self, word: u32) -> bool {
        let line = self.pending.get(&Place::Line(word / WORDS_PER_LINE));
        line.is_some_and(|entries| entries.iter().any(|entry| entry.thread.is_none()))
    }

    pub(super) fn durable_hash(&self) -> u64 {
        self.durable_hash
    }

    pub(super) fn durable_mut(&mut self) -> &mut [u64] {
        &mut self.durable
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = (Place, &[Entry])> {
        self.pending.iter().map(|(place, entries)| (*place, entries.as_slice()))
    }

    /// Applies an event; returns whether it adds possible images.
    ///
    /// # Panics
    /// If a line has cached and non-temporal stores pending at once: their order is undefined, and
    /// an engine must not rely on it.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event.what {
            What::Store { word, value, how } => return self.store(event, word, value, how),
            What::Flush { .. } if self.model == Model::File => self.note_flush(event.access),
            What::Flush { line, count } => self.flush(event.thread, line..line + count),
            What::Fence if self.model == Model::File => self.sync_of(event.access),
            What::Fence => self.fence(event.thread),
            What::Sync => self.drain(|_, _| true),
            What::Grow { bytes } => {
                self.visible.resize((bytes / WORD) as usize, 0);
                self.durable.resize((bytes / WORD) as usize, 0);
                return true;
            }
            What::Release { word, count } => {
                self.overwrite(word..word + count, 0);
                return true;
            }
            What::Free { word, count } => {
                self.overwrite(word..word + count, FREED);
                return true;
            }
            What::Exit => self.exit(),
            What::Mark | What::Begin { .. } | What::Return { .. } | What::Load { .. } => {}
        }
        false
    }

    fn exit(&mut self) {
        self.threads.clear();
        self.flushed.clear();
        self.pending.values_mut().flatten().for_each(|entry| entry.thread = None);
        if self.model != Model::File {
            self.drain(|place, _| matches!(place, Place::Word(_)));
        }
    }

    fn store(&mut self, event: &Event, word: u32, value: u64, how: How) -> bool {
        let line = word / WORDS_PER_LINE;
        let cached = matches!(how, How::Plain | How::Commit);
        let place = match self.model {
            Model::File => Some(Place::Word(word)),
            Model::Eadr if cached => None,
            Model::Adr | Model::Arm if cached => Some(Place::Line(line)),
            Model::Adr | Model::Arm | Model::Eadr => Some(Place::Word(word)),
        };
        if self.model != Model::File {
            assert!(
                !self.mixes(line, cached),
                "cached and non-temporal stores to line {line} without a fence between: {event:?}",
            );
        }
        self.stores += 1;
        let new = self.visible[word as usize] != value;
        // A store of the present value adds no image. A non-temporal one counts all the same: only
        // the fence of its thread completes it.
        let past_the_caches = !cached && self.model != Model::File;
        if !new && !past_the_caches {
            return false;
        }
        self.visible[word as usize] = value;
        let Some(place) = place else {
            self.make_durable(word, value);
            return true;
        };
        let thread = (how != How::Unfenced).then_some(event.thread);
        let fences = self.threads.get(&event.thread).map_or(0, |thread| thread.fences);
        if how == How::NonTemporal && self.model == Model::File {
            self.note_flush(event.access);
        }
        let entry = Entry { order: self.stores, thread, fences, how, word, value };
        self.pending.entry(place).or_default().push(entry);
        new
    }

    /// Returns whether the line has a pending store of the other kind.
    ///
    /// Stores of a killed process do not count: a non-temporal store evicts their line first (Intel
    /// SDM, volume 1, "Cacheability Control, Prefetch, and Memory Ordering Instructions").
    fn mixes(&mut self, line: u32, cached: bool) -> bool {
        if !cached {
            self.drain_place(Place::Line(line), |entry| entry.thread.is_none());
            return self.pending.contains_key(&Place::Line(line));
        }
        let first = line * WORDS_PER_LINE;
        let words = first..first + WORDS_PER_LINE;
        // A mutant's store that no fence completes is no fault of those that come after it.
        let is_unfenced = |entry: &Entry| entry.how == How::Unfenced;
        words.clone().for_each(|word| self.drain_place(Place::Word(word), is_unfenced));
        let words = Place::Word(words.start)..Place::Word(words.end);
        self.pending.range(words).next().is_some()
    }

    fn flush(&mut self, thread: u32, lines: core::ops::Range<u32>) {
        let thread = self.threads.entry(thread).or_default();
        for line in lines {
            if self.pending.contains_key(&Place::Line(line)) {
                thread.marks.push((line, self.stores));
            }
        }
    }

    /// A flush on a file: of any line, since it is the moment that counts, and the newest one.
    fn note_flush(&mut self, access: u32) {
        self.flushed.insert(access, self.stores);
    }

    fn fence(&mut self, thread: u32) {
        let state = self.threads.entry(thread).or_default();
        state.fences += 1;
        for (line, stores) in core::mem::take(&mut state.marks) {
            self.drain_place(Place::Line(line), |entry| entry.order <= stores);
        }
        let first_word = Place::Word(0);
        let own: Vec<(Place, u64)> = self
            .pending
            .range(first_word..)
            .filter_map(|(place, entries)| {
                let newest = entries.iter().rev().find(|entry| entry.thread == Some(thread))?;
                Some((*place, newest.order))
            })
            .collect();
        for (place, newest) in own {
            // An older store of another thread to the same word cannot overtake this one.
            self.drain_place(place, |entry| entry.order <= newest);
        }
    }

    /// A fence on a file: a sync, shared with others, that began after the access's last flush.
    fn sync_of(&mut self, access: u32) {
        if let Some(stores) = self.flushed.remove(&access) {
            self.drain(|_, entry| entry.order <= stores);
        }
    }

    /// Makes `value` the content of some words, visible and durable; pending stores there are
    /// dropped.
    fn overwrite(&mut self, words: core::ops::Range<u32>, value: u64) {
        self.pending.retain(|_, entries| {
            entries.retain(|entry| !words.contains(&entry.word));
            !entries.is_empty()
        });
        for word in words {
            self.visible[word as usize] = value;
            self.make_durable(word, value);
        }
    }

    /// Makes all pending stores of the chosen places durable.
    fn drain(&mut self, chosen: impl Fn(Place, &Entry) -> bool) {
        let places: Vec<Place> = self.pending.keys().copied().collect();
        for place in places {
            self.drain_place(place, |entry| chosen(place, entry));
        }
    }

    fn drain_place(&mut self, place: Place, chosen: impl Fn(&Entry) -> bool) {
        let Some(mut entries) = self.pending.remove(&place) else { return };
        for entry in entries.extract_if(.., |entry| chosen(entry)) {
            self.make_durable(entry.word, entry.value);
        }
        if !entries.is_empty() {
            self.pending.insert(place, entries);
        }
    }

    fn make_durable(&mut self, word: u32, value: u64) {
        let slot = &mut self.durable[word as usize];
        self.durable_hash ^= cell(word, *slot) ^ cell(word, value);
        *slot = value;
    }
}
