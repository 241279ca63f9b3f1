//! Damage: pools with flipped bits, changed words and lost ends.
//!
//! The judge makes a small pool, once closed and once left by a killed process, and damages it. It
//! flips each bit; it changes two bits, two words, or a number by a little; it cuts off the end.
//! Then the pool is asked in every way there is, and each way is asked apart: an error that a scan
//! gives does not excuse the wrong value that a get gives. It answers right or returns an error
//! that names the damage. At last the judge replaces words by arbitrary others. Then no answer is
//! known to be right, but nothing may panic, hang or exhaust memory.

mod kinds;
mod victim;
mod ways;

use core::fmt;
use core::ops::Range;

use everhash_index::{Design, Form};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;

use crate::Failure;
use victim::Victim;

/// What the judge does, and what it forgives.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Pairs that are put into the pool; every fifth is removed again, and every third replaced.
    pub pairs: u16,
    /// Every how many bits one is flipped; of words that are zero, one bit in all. Odd, so that
    /// every place in a word has its turn.
    pub flip_every: usize,
    /// Every how many flips the pool is also worked on.
    pub work_every: usize,
    /// How many images have damage of more than one bit, of each pool.
    pub several: u32,
    /// Of so many images with damage of more than one bit one may go unnoticed: a check of n bits
    /// misses one in 2^n. 0 if none may.
    pub missed_one_in: u64,
    /// How many images have exchanged words.
    pub images: u32,
    /// Every how many words the end is cut off.
    pub cut_every: usize,
    /// Whether pairs of the fixed forms have no check: then damage may change those that it hits.
    pub bare_pairs: bool,
    /// Words of a pool that was not closed in which damage looks like a crash; none is damaged.
    pub unclosed: Range<usize>,
    /// The seed of the changed and exchanged words.
    pub seed: u64,
    /// What the medium claims of a crash, so that an engine takes the path of such a medium.
    pub model: Model,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            pairs: 24,
            flip_every: 1,
            work_every: 16,
            several: 800,
            missed_one_in: 0,
            images: 1000,
            cut_every: 8,
            bare_pairs: false,
            unclosed: 0..0,
            seed: 1,
            model: Model::Adr,
        }
    }
}

/// What was judged, of one form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Flips that an error reported.
    pub noticed: u64,
    /// Flips that only a scan or the check of the whole pool reported.
    pub by_check_alone: u64,
    /// Flips that changed no answer.
    pub harmless: u64,
    /// Flips that changed one pair of a fixed form.
    pub in_bare_pairs: u64,
    /// Damages of more than one bit.
    pub several: u64,
    /// Those of them that an error reported.
    pub several_noticed: u64,
    /// Those of them that changed an answer and that nothing reported.
    pub several_missed: u64,
    /// Images with exchanged words that opened.
    pub opened: u32,
    /// Cut pools that opened: free space was lost.
    pub cut_and_opened: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} flips noticed, {} by the check alone, {} harmless, {} in pairs without a check; {} \
             of {} damages of several bits noticed, {} missed; {} images with exchanged words \
             opened, {} cut pools",
            self.noticed,
            self.by_check_alone,
            self.harmless,
            self.in_bare_pairs,
            self.several_noticed,
            self.several,
            self.several_missed,
            self.opened,
            self.cut_and_opened
        )
    }
}

/// What a judge finds; an error of the engine wraps it.
type Judged<T> = core::result::Result<T, Failure>;

/// Damages pools of `form` in every way.
///
/// # Errors
/// The first wrong answer, panic, or error that names no damage.
pub fn judge(design: &Design<Image>, form: Form, effort: &Effort) -> Judged<Report> {
    let mut report = Report::default();
    for closed in [true, false] {
        let state = if closed { "closed" } else { "left open" };
        let victim = Victim::new(design, form, effort, closed)?;
        kinds::flip(&victim, effort, &mut report)
            .and_then(|()| kinds::several(&victim, effort, &mut report))
            .and_then(|()| kinds::exchange(&victim, effort, &mut report))
            .and_then(|()| kinds::cut(&victim, effort, &mut report))
            .map_err(|failure| failure.at(format!("{}, {form}, {state}", design.name)))?;
    }
    Ok(report)
}
