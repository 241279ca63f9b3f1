//! Undecided places: their content is chosen at the first access.

use crate::crash::Units;

/// One choice of a lazy run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The unit, by its number among those of the crash point.
    pub unit: u32,
    /// The content chosen.
    pub content: u32,
}

/// The places that a lazy run has not accessed yet, and its choices.
#[derive(Debug)]
pub(super) struct Undecided {
    units: Units,
    /// The unit of each word, or `NONE`.
    unit_of: Vec<u32>,
    script: Vec<Choice>,
    made: Vec<Choice>,
}

const NONE: u32 = u32::MAX;

impl Undecided {
    pub fn new(units: &Units, script: &[Choice], words: usize) -> Undecided {
        let mut unit_of = vec![NONE; words];
        for unit in 0..units.count() {
            units.words(unit).iter().for_each(|word| unit_of[*word as usize] = unit as u32);
        }
        Undecided { units: units.clone(), unit_of, script: script.to_vec(), made: Vec::new() }
    }

    /// Returns every word that is undecided at first.
    pub fn words(&self) -> impl Iterator<Item = usize> {
        let units = 0..self.units.count();
        units.flat_map(|unit| self.units.words(unit).iter().map(|word| *word as usize))
    }

    /// Chooses the content of the unit that holds `word`; returns its words and their values.
    ///
    /// # Panics
    /// If the run deviates from the one before, whose choices it repeats.
    pub fn decide(&mut self, word: usize) -> impl Iterator<Item = (usize, u64)> {
        let unit = self.unit_of[word];
        let fresh = unit != NONE && self.made.iter().all(|choice| choice.unit != unit);
        let words_and_values = fresh.then(|| {
            let content = match self.script.get(self.made.len()) {
                Some(planned) => {
                    assert!(
                        planned.unit == unit,
                        "the judge is not deterministic: it touched unit {unit}, not {planned:?}",
                    );
                    planned.content
                }
                None => 0,
            };
            self.made.push(Choice { unit, content });
            let unit = unit as usize;
            self.units.words(unit).iter().zip(self.units.values(unit, content))
        });
        let words_and_values = words_and_values.into_iter().flatten();
        words_and_values.map(|(word, value)| (*word as usize, *value))
    }

    /// Returns the choices made, in order.
    pub fn made(self) -> Vec<Choice> {
        self.made
    }
}
