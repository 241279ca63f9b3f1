//! The choices of a crash: for every place with pending stores, the contents that it may keep.

use std::collections::{BTreeSet, VecDeque};

use super::log::How;
use super::memory::{Entry, Memory, Place};
use super::mix::cell;
use super::model::Model;

/// How many contents of one line the Arm model enumerates at most.
///
/// Source: ours; eight words that change once each between two barriers have 256 contents.
const ARM_CONTENTS: usize = 512;

/// Every place with at least two possible contents after a crash.
///
/// Content 0 of a unit is the durable one. Places are disjoint, so the images are the product of
/// the units, and the hash of an image is the hash of the durable one with a difference per unit.
/// Flat vectors, because they are rebuilt at every crash point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Units {
    units: Vec<Unit>,
    words: Vec<u32>,
    contents: Vec<Content>,
    values: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Unit {
    place: Place,
    first_word: usize,
    words: usize,
    first_content: usize,
    contents: usize,
    first_value: usize,
    /// The content in which every pending store has happened.
    full: u32,
}

#[derive(Clone, Debug)]
struct Content {
    /// What names the content in a state's name: the number of leading stores that happened, or
    /// for Arm the number of the content.
    label: u32,
    /// What the content changes in the hash of the image.
    difference: u64,
}

impl Units {
    /// Collects the choices of a crash at this moment.
    ///
    /// With `whole`, a place keeps either all of its pending stores or none: a weaker explorer, for
    /// tests that show what it misses.
    pub fn collect(&mut self, memory: &Memory, whole: bool) {
        self.units.clear();
        self.words.clear();
        self.contents.clear();
        self.values.clear();
        for (place, entries) in memory.pending() {
            self.begin(place, entries, memory.durable());
            match (memory.model(), place) {
                (Model::Arm, Place::Line(_)) => self.down_sets(entries, memory.durable()),
                _ => self.prefixes(entries, memory.durable(), whole),
            }
            self.end();
        }
    }

    /// Returns the number of units.
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// Returns the place of a unit.
    pub fn place(&self, unit: usize) -> Place {
        self.units[unit].place
    }

    /// Returns how many contents a unit has.
    pub fn contents(&self, unit: usize) -> u32 {
        self.units[unit].contents as u32
    }

    /// Returns the content in which every pending store has happened.
    pub fn full(&self, unit: usize) -> u32 {
        self.units[unit].full
    }

    /// Returns the label of a content.
    pub fn label(&self, unit: usize, content: u32) -> u32 {
        self.content(unit, content).label
    }

    /// Returns the content with a label.
    pub fn labelled(&self, unit: usize, label: u32) -> Option<u32> {
        (0..self.contents(unit)).find(|content| self.label(unit, *content) == label)
    }

    /// Returns what a content changes in the hash of the image.
    pub fn difference(&self, unit: usize, content: u32) -> u64 {
        self.content(unit, content).difference
    }

    /// Returns the words of a unit.
    pub fn words(&self, unit: usize) -> &[u32] {
        let unit = &self.units[unit];
        &self.words[unit.first_word..unit.first_word + unit.words]
    }

    /// Returns the values of a unit's words in a content.
    pub fn values(&self, unit: usize, content: u32) -> &[u64] {
        let unit = &self.units[unit];
        let first = unit.first_value + content as usize * unit.words;
        &self.values[first..first + unit.words]
    }

    /// Returns the number of images, saturating.
    pub fn product(&self) -> u64 {
        self.units.iter().fold(1, |product: u64, unit| product.saturating_mul(unit.contents as u64))
    }

    fn content(&self, unit: usize, content: u32) -> &Content {
        &self.contents[self.units[unit].first_content + content as usize]
    }

    fn begin(&mut self, place: Place, entries: &[Entry], durable: &[u64]) {
        let words: BTreeSet<u32> = entries.iter().map(|entry| entry.word).collect();
        self.units.push(Unit {
            place,
            first_word: self.words.len(),
            words: words.len(),
            first_content: self.contents.len(),
            contents: 0,
            first_value: self.values.len(),
            full: 0,
        });
        self.words.extend(&words);
        let base: Vec<u64> = words.iter().map(|word| durable[*word as usize]).collect();
        self.add(0, &base, durable);
    }

    /// Adds a content unless the unit has it already; makes it the full one in either case.
    fn add(&mut self, label: u32, values: &[u64], durable: &[u64]) {
        let unit = self.units.last_mut().expect("a unit was begun");
        let words = &self.words[unit.first_word..];
        let difference = words.iter().zip(values).fold(0, |hash, (word, value)| {
            hash ^ cell(*word, durable[*word as usize]) ^ cell(*word, *value)
        });
        let known = &self.contents[unit.first_content..];
        if let Some(same) = known.iter().position(|content| content.difference == difference) {
            unit.full = same as u32;
            return;
        }
        unit.full = unit.contents as u32;
        unit.contents += 1;
        self.contents.push(Content { label, difference });
        self.values.extend_from_slice(values);
    }

    /// Adds the content after each leading number of stores.
    fn prefixes(&mut self, entries: &[Entry], durable: &[u64], whole: bool) {
        let words = self.newest_words();
        let mut values: Vec<u64> = words.iter().map(|word| durable[*word as usize]).collect();
        for (index, entry) in entries.iter().enumerate() {
            values[position(&words, entry.word)] = entry.value;
            if !whole || index + 1 == entries.len() {
                self.add(index as u32 + 1, &values, durable);
            }
        }
    }

    /// Adds the content of every set of stores that is closed under "must be durable before".
    ///
    /// More than 64 stores to one line without a write-back: their prefixes only.
    fn down_sets(&mut self, entries: &[Entry], durable: &[u64]) {
        if entries.len() > 64 {
            return self.prefixes(entries, durable, false);
        }
        let before: Vec<u64> = (0..entries.len())
            .map(|later| {
                let earlier =
                    (0..later).filter(|earlier| is_ordered(&entries[*earlier], &entries[later]));
                earlier.fold(0, |set, earlier| set | 1 << earlier)
            })
            .collect();
        let words = self.newest_words();
        let mut found = BTreeSet::from([0u64]);
        let mut open = VecDeque::from([0u64]);
        let everything = u64::MAX >> (64 - entries.len());
        while let Some(set) = open.pop_front() {
            for (store, needed) in before.iter().enumerate() {
                let larger = set | 1 << store;
                let closed = larger != set && needed & !set == 0;
                if closed && found.len() < ARM_CONTENTS && found.insert(larger) {
                    open.push_back(larger);
                }
            }
        }
        found.remove(&everything);
        for (index, set) in found.into_iter().chain([everything]).enumerate() {
            let mut values: Vec<u64> = words.iter().map(|word| durable[*word as usize]).collect();
            for (store, entry) in entries.iter().enumerate() {
                if set & 1 << store != 0 {
                    values[position(&words, entry.word)] = entry.value;
                }
            }
            self.add(index as u32, &values, durable);
        }
    }

    /// Drops the newest unit if it has only one content.
    fn end(&mut self) {
        let unit = self.units.last().expect("a unit was begun");
        if unit.contents > 1 {
            return;
        }
        self.words.truncate(unit.first_word);
        self.contents.truncate(unit.first_content);
        self.values.truncate(unit.first_value);
        self.units.pop();
    }

    fn newest_words(&self) -> Vec<u32> {
        let unit = self.units.last().expect("a unit was begun");
        self.words[unit.first_word..].to_vec()
    }
}

fn position(words: &[u32], word: u32) -> usize {
    words.binary_search(&word).expect("the words of a unit are those of its stores")
}

/// Returns whether Arm makes `earlier` durable before `later`, both to one line.
fn is_ordered(earlier: &Entry, later: &Entry) -> bool {
    let same_thread = earlier.thread.is_some() && earlier.thread == later.thread;
    let barrier = earlier.fences < later.fences || later.how == How::Commit;
    earlier.word == later.word || (same_thread && barrier)
}
