//! Fuzzing: pools that are mutated at random, as many as somebody has time for.
//!
//! Random bytes are refused by the first checksum, and nothing behind it is tried. So most images
//! here have right checksums without a line of code for any engine. Pools are kept at several
//! moments of their lives, and an image is made of one moment with words, lines or pages of others
//! at their own places: each word was once written there, with its check, by the engine itself.
//! Others are overwritten as by [`hostile`], the header's checksum redone, or cut. Every image is
//! checked, opened, read, written, maintained, closed and opened again; a panic, an endless scan,
//! too much time, memory or growth of the medium is a finding. An execution depends on its seed and
//! number alone.

use core::fmt;
use core::ops::Range;

use everhash_index::{Design, Form};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;

use crate::hostile::{self, Cost, Sound, Store, forge_one, judge_image, shortest};
use crate::model::step;
use crate::random::Random;
use crate::workload::{Bias, Shape, Workload};
use crate::{Failure, OpenTable};

/// Which executions there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effort {
    /// The seed of all choices.
    pub seed: u64,
    /// The numbers of the executions.
    pub executions: Range<u64>,
    /// What the medium claims of a crash, so that an engine takes the path of such a medium.
    pub model: Model,
}

/// What was tried without a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Images.
    pub executions: u64,
    /// Those that were mixed from several moments.
    pub mixed: u64,
    /// Those that were opened.
    pub opened: u64,
    /// Those that were opened, worked on, and closed.
    pub closed: u64,
    /// The most that the medium grew under one of them. Unit: bytes.
    pub growth_bytes: u64,
    /// The most that one of them allocated. Unit: bytes; 0 where nobody counts.
    pub allocated_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { executions, mixed, opened, closed, .. } = self;
        write!(
            f,
            "{executions} executions, {mixed} of them mixed; {opened} opened, {closed} closed; \
             grew by {} KiB and allocated {} KiB at most",
            self.growth_bytes >> 10,
            self.allocated_bytes >> 10
        )
    }
}

/// An image that an engine does not bear.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The number of the execution.
    pub execution: u64,
    /// How the image was made.
    pub made: &'static str,
    /// The words in which it differs from a pool of the engine, as few as could be, up to 16.
    pub words: Vec<Store>,
    /// What is wrong.
    pub failure: Failure,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "execution {}, {}: {}; words", self.execution, self.made, self.failure)?;
        let mut words = self.words.iter().take(16);
        words.try_for_each(|(index, word)| write!(f, " {index}={word:#x}"))
    }
}

/// How many lives of a pool images are made from. Source: ours; all biases, twice.
const LIVES: u64 = 10;

/// At how many moments of its life a pool is kept.
const MOMENTS: usize = 6;

/// The moments of one pool.
struct Life {
    moments: Vec<(Sound, bool)>,
}

/// Tries the images of some executions on an engine.
///
/// # Errors
/// The first finding.
pub fn judge(design: &Design<Image>, form: Form, effort: &Effort) -> Result<Report, Box<Finding>> {
    let mut report = Report::default();
    let mut lives: Vec<Option<Life>> = (0..LIVES).map(|_| None).collect();
    for execution in effort.executions.clone() {
        let mut random = Random::new(effort.seed.wrapping_mul(0x9e37_79b9) ^ execution);
        let number = random.below(LIVES);
        let unsound = |failure| Finding { execution, made: "as it was", words: vec![], failure };
        let place = &mut lives[number as usize];
        if place.is_none() {
            let life = Life::new(design, form, effort, number);
            *place = Some(life.map_err(|failure| Box::new(unsound(failure)))?);
        }
        let life = place.as_ref().expect("it was just made");
        let (cost, mixed) = life.once(execution, &mut random)?;
        report.executions += 1;
        report.mixed += u64::from(mixed);
        report.opened += u64::from(cost.opened);
        report.closed += u64::from(cost.closed);
        report.growth_bytes = report.growth_bytes.max(cost.growth_bytes);
        report.allocated_bytes = report.allocated_bytes.max(cost.allocated_bytes);
    }
    Ok(report)
}

impl Life {
    /// Lets a pool live, and keeps it as it is after every part of a workload: closed, or as a
    /// killed process leaves it.
    fn new(
        design: &Design<Image>,
        form: Form,
        effort: &Effort,
        number: u64,
    ) -> Result<Life, Failure> {
        let shape = Shape::tiny(form);
        let bias = Bias::of_seed(number);
        let seed = effort.seed.wrapping_add(number);
        let keys = 30;
        let workload = Workload { seed, operations: 25 * MOMENTS, keys, bias, restarts: false };
        let medium = Image::new(0, 1 << 20).with_guarantees(effort.model.guarantees());
        let mut session = OpenTable::create(design, medium, form)?;
        let (mut now, mut moments) = (core::time::Duration::ZERO, Vec::new());
        for (part, ops) in workload.generate().chunks(25).enumerate() {
            for op in ops {
                step(&mut session, &shape, &mut now, op)?;
            }
            let is_closed = part % 3 == 1;
            if is_closed {
                session.close()?;
            }
            let words = session.region().media().words();
            if is_closed {
                session.kill_unsynced()?;
            }
            let (model, cost) = (effort.model, Cost::default());
            let pool = Sound { design: *design, shape, words, numbers: keys + 6, cost, model };
            moments.push((pool.measured(true)?, is_closed));
        }
        Ok(Life { moments })
    }

    /// Makes one image and works on it; returns what it cost, and whether it was mixed.
    fn once(&self, execution: u64, random: &mut Random) -> Result<(Cost, bool), Box<Finding>> {
        let (pool, is_closed) = random.pick(&self.moments);
        let mut words = pool.words.clone();
        let kind = random.below(8);
        let made = match kind {
            0..=3 => {
                self.mix(&mut words, random);
                "mixed"
            }
            4 => {
                self.mix(&mut words, random);
                overwrite(&mut words, random);
                "mixed and overwritten"
            }
            5 => {
                words.truncate(random.below(words.len() as u64) as usize);
                "cut"
            }
            _ => {
                overwrite(&mut words, random);
                "overwritten"
            }
        };
        // A closed pool is opened in either boot; what a process left, mostly in its own.
        let same_boot = !random.once_in(if *is_closed { 2 } else { 4 });
        let limits = hostile::Effort::default();
        match judge_image(pool, &limits, &words, same_boot) {
            Ok(cost) => Ok((cost, kind <= 4)),
            Err(failure) => {
                let is_long = words.len() == pool.words.len();
                let words = match is_long {
                    true => shortest(pool, &limits, &words, same_boot),
                    false => Vec::new(),
                };
                Err(Box::new(Finding { execution, made, words, failure }))
            }
        }
    }

    /// Takes pieces of other moments, each at its own place.
    fn mix(&self, words: &mut [u64], random: &mut Random) {
        for _ in 0..=random.below(4) {
            let (other, _) = random.pick(&self.moments);
            let differs = |index: &usize| other.words.get(*index) != Some(&words[*index]);
            let different: Vec<usize> =
                (0..words.len().min(other.words.len())).filter(differs).collect();
            if different.is_empty() {
                continue;
            }
            let at = *random.pick(&different);
            let length = *random.pick(&[1, 1, 8, 8, 32, 512]);
            let first = at - at % length;
            let end = (first + length).min(words.len()).min(other.words.len());
            words[first..end].copy_from_slice(&other.words[first..end]);
        }
    }
}

fn overwrite(words: &mut [u64], random: &mut Random) {
    let used: Vec<usize> = (0..words.len()).filter(|index| words[*index] != 0).collect();
    for _ in 0..=random.below(3) {
        forge_one(words, &used, None, random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn an_engine_with_checks_over_everything_bears_it_and_images_open() {
        // Fails by a false alarm, if no image is mixed, or if all are refused at once; and if an
        // execution depends on those before it.
        let design = Design::of::<Reference>();
        let effort = Effort { seed: 1, executions: 0..400, model: Model::Adr };
        let report = judge(&design, Form::WORDS, &effort).unwrap();
        println!("{report}");
        assert!(report.mixed > 200 && (40..400).contains(&report.opened), "{report}");
        assert!((20..=report.opened).contains(&report.closed), "{report}");
        let halves = [0..200, 200..400].map(|executions| {
            judge(&design, Form::WORDS, &Effort { executions, ..effort.clone() }).unwrap()
        });
        assert_eq!(halves[0].opened + halves[1].opened, report.opened);
    }

    /// Lets a pool of the reference live.
    fn life() -> Life {
        let effort = Effort { seed: 1, executions: 0..1, model: Model::Adr };
        Life::new(&Design::of::<Reference>(), Form::WORDS, &effort, 1).unwrap()
    }

    #[test]
    fn a_life_has_moments_of_which_some_are_closed() {
        // Fails if all images come from one moment, or all from pools that were left.
        let life = life();
        let closed: Vec<bool> = life.moments.iter().map(|(_, is_closed)| *is_closed).collect();
        assert_eq!(closed, [false, true, false, false, true, false]);
        for moments in life.moments.windows(2) {
            assert_ne!(moments[0].0.words, moments[1].0.words);
        }
    }

    #[test]
    fn mixed_images_have_words_lines_and_pages_of_other_moments_at_their_own_places() {
        // Fails if only single words are taken, or any from another place.
        let (life, mut random) = (life(), Random::new(1));
        let mut longest = Vec::new();
        for _ in 0..200 {
            let sound = &random.pick(&life.moments).0.words;
            let mut words = sound.clone();
            life.mix(&mut words, &mut random);
            assert_eq!(words.len(), sound.len());
            let known = |index: usize| {
                let mut others = life.moments.iter().map(|(pool, _)| &pool.words);
                others.any(|it| it.get(index) == Some(&words[index]))
            };
            assert!((0..words.len()).all(known));
            let changed = (0..words.len()).filter(|index| words[*index] != sound[*index]);
            longest.push(changed.count());
        }
        longest.sort_unstable();
        assert!(longest[20] < 8 && longest[100] > 4 && longest[199] > 64, "{longest:?}");
    }

    #[test]
    fn an_overwritten_image_is_another_one() {
        // Fails if nothing is overwritten.
        let (life, mut random) = (life(), Random::new(1));
        let sound = &life.moments[0].0.words;
        let differs = (0..50).filter(|_| {
            let mut words = sound.clone();
            overwrite(&mut words, &mut random);
            words != *sound
        });
        assert!(differs.count() > 40);
    }
}
