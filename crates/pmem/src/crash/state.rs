//! One state that a crash may leave, as the judge gets it.

use core::cell::RefCell;

use super::explorer::Moment;
use super::memory::Place;
use super::name::Name;
use super::units::Units;
use crate::Primitives;
use crate::media::traced::{Choice, Traced};

/// One state that a crash may leave.
///
/// Most states are whole images ([`State::words`]). Where a point has too many, the explorer may
/// use *lazy* states: the medium chooses the content of a place at the first access, and all images
/// that agree in the accessed places count as one. [`State::on`] serves both.
#[derive(Debug)]
pub struct State<'a> {
    pub(super) words: &'a [u64],
    pub(super) moment: &'a Moment,
    pub(super) units: &'a Units,
    pub(super) chosen: &'a [u32],
    pub(super) lazy: Option<&'a RefCell<Vec<Choice>>>,
}

impl State<'_> {
    /// Returns the image, word by word; in a lazy state, with the undecided places at their
    /// durable content.
    pub fn words(&self) -> &[u64] {
        self.words
    }

    /// Returns a copy of the image; of a lazy state, with what [`State::on`] decided.
    pub fn image(&self) -> Vec<u64> {
        let mut image = self.words.to_vec();
        for choice in self.lazy.iter().flat_map(|choices| choices.borrow().clone()) {
            let unit = choice.unit as usize;
            let words = self.units.words(unit).iter();
            for (word, value) in words.zip(self.units.values(unit, choice.content)) {
                image[*word as usize] = *value;
            }
        }
        image
    }

    /// Returns whether places that the judge does not access stay undecided. All such states of a
    /// point are one search, in which the judge must do the same each time.
    pub fn is_lazy(&self) -> bool {
        self.lazy.is_some()
    }

    /// Returns the moment of the crash.
    pub fn moment(&self) -> &Moment {
        self.moment
    }

    /// Puts the image on `medium`, which begins a new log, and runs `judge`.
    ///
    /// Of a lazy state, only the places that `judge` accesses are decided. `judge` must be
    /// deterministic: no clock, no address, no random seed.
    pub fn on<P: Primitives, R>(&self, medium: &Traced<P>, judge: impl FnOnce() -> R) -> R {
        let Some(choices) = self.lazy else {
            medium.restart(self.words);
            return judge();
        };
        medium.restart_lazily(self.words, self.units, &choices.borrow());
        let result = judge();
        *choices.borrow_mut() = medium.end_lazily();
        result
    }

    /// Returns the name under which [`Explorer::rebuild`](super::Explorer::rebuild) finds the
    /// state again. Of a lazy state: after [`State::on`].
    pub fn name(&self) -> Name {
        let label = |(unit, content): (usize, u32)| -> Option<(Place, u32)> {
            (content > 0).then(|| (self.units.place(unit), self.units.label(unit, content)))
        };
        let mut places: Vec<(Place, u32)> = match self.lazy {
            None => self.chosen.iter().copied().enumerate().filter_map(label).collect(),
            Some(choices) => {
                let choices = choices.borrow();
                choices.iter().filter_map(|it| label((it.unit as usize, it.content))).collect()
            }
        };
        places.sort_unstable();
        Name::Power { event: self.moment.event, places }
    }
}
