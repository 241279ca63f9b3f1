//! Damage: pools with flipped bits, exchanged words and lost ends.
//!
//! The judge makes a small pool, once closed and once left by a killed process, and damages it in
//! three ways. It flips each bit; it replaces a few words by others, by zero or by random ones;
//! it cuts off the end. After a flip and a cut the engine must answer correctly or return an error
//! that names the damage. After a replacement no answer is known to be right, but nothing may
//! panic, hang or exhaust memory.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use everhash_index::{Cursor, Design, Error, Form, Inline, Opening, Result, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Boot, Guarantees, Image, Region};

use crate::failure::no_panic;
use crate::model::{Pairs, compare};
use crate::random::Random;
use crate::workload::Shape;
use crate::{Failure, OpenTable};

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
    /// How many images have exchanged words.
    pub images: u32,
    /// Every how many words the end is cut off.
    pub cut_every: usize,
    /// Whether pairs of the fixed forms have no check: then a flip may change one of them.
    pub bare_pairs: bool,
    /// Words of a pool that was not closed in which damage looks like a crash; none is flipped.
    pub unclosed: Range<usize>,
    /// The seed of the exchanged words.
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
            images: 4000,
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
    /// Flips that only the check of the whole pool reported.
    pub by_check_alone: u64,
    /// Flips that changed no answer.
    pub harmless: u64,
    /// Flips that changed one pair of a fixed form.
    pub in_bare_pairs: u64,
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
             images with exchanged words opened, {} cut pools",
            self.noticed,
            self.by_check_alone,
            self.harmless,
            self.in_bare_pairs,
            self.opened,
            self.cut_and_opened
        )
    }
}

/// The pool that is damaged, and what it holds.
struct Victim {
    design: Design<Image>,
    shape: Shape,
    words: Vec<u64>,
    pairs: Pairs,
    numbers: u16,
    closed: bool,
    guarantees: Guarantees,
}

/// What a judge finds; an error of the engine wraps it.
type Judged<T> = core::result::Result<T, Failure>;

/// To what length a pool can grow beyond the one that was damaged. Unit: bytes.
const MORE_BYTES: u64 = 256 << 10;

/// How many pairs a scan may visit before it counts as endless.
const ENDLESS: u32 = 1 << 20;

/// Damages pools of `form` in all three ways.
///
/// # Errors
/// The first wrong answer, panic, or error that names no damage.
pub fn judge(design: &Design<Image>, form: Form, effort: &Effort) -> Judged<Report> {
    let mut report = Report::default();
    for closed in [true, false] {
        let state = if closed { "closed" } else { "left open" };
        let victim = Victim::new(design, form, effort, closed)?;
        flip(&victim, effort, &mut report)
            .and_then(|()| exchange(&victim, effort, &mut report))
            .and_then(|()| cut(&victim, effort, &mut report))
            .map_err(|failure| failure.at(format!("{}, {form}, {state}", design.name)))?;
    }
    Ok(report)
}

impl Victim {
    fn new(design: &Design<Image>, form: Form, effort: &Effort, closed: bool) -> Judged<Victim> {
        let shape = Shape::tiny(form);
        let guarantees = effort.model.guarantees();
        let medium = Image::new(0, MORE_BYTES).with_guarantees(guarantees);
        let mut session = OpenTable::create(design, medium, form)?;
        let mut pairs = Pairs::new();
        let mut put = |number: u16, value: u32| -> Result<()> {
            let (key, value) = (shape.key(number), shape.value(value));
            session.table().put(&key, &value)?;
            pairs.insert(key, value);
            Ok(())
        };
        (0..effort.pairs).try_for_each(|number| put(number, number.into()))?;
        (0..effort.pairs)
            .step_by(3)
            .try_for_each(|number| put(number, 1000 + u32::from(number)))?;
        for number in (0..effort.pairs).step_by(5) {
            session.table().remove(&shape.key(number))?;
            pairs.remove(&shape.key(number));
        }
        session.table().sync()?;
        if closed {
            session.close()?;
        }
        let words = session.region().media().words();
        let numbers = effort.pairs;
        Ok(Victim { design: *design, shape, words, pairs, numbers, closed, guarantees })
    }

    /// Opens a damaged pool: a closed one in another boot, one that was left in the same.
    fn open(&self, words: &[u64]) -> Result<(Region<Image>, Box<dyn Table>)> {
        let bytes = words.len() as u64 * 8;
        let image = Image::of(words, bytes, bytes + MORE_BYTES).with_guarantees(self.guarantees);
        let region = Region::new(image);
        let Boot([machine, boot]) = Opening::default().boot;
        let boot = Boot([machine, boot + u64::from(self.closed)]);
        let table = self.design.open(region.clone(), boot, &Inline)?;
        Ok((region, table))
    }

    /// Reads a damaged pool in every way there is. Returns what it holds, and whether its check
    /// finds nothing.
    fn read(&self, words: &[u64]) -> Result<Judged<(Pairs, bool)>> {
        let (region, table) = self.open(words)?;
        let sound = self.design.check(&region, &mut |_, _| {}).is_ok();
        let found = match scan(&*table)? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut value = Vec::new();
        for key in (0..self.numbers).map(|number| self.shape.key(number)) {
            let there = table.get(&key, &mut value)?.then_some(&value);
            if there != found.get(&key) {
                return Ok(Err(Failure::new("a scan and a get differ")));
            }
        }
        Ok(Ok((found, sound)))
    }

    /// Adds pairs to a pool that seems sound: the damage may lie where no read looks.
    fn add(&self, words: &[u64]) -> Result<Judged<()>> {
        let (_, table) = self.open(words)?;
        for number in self.numbers..2 * self.numbers {
            table.put(&self.shape.key(number), &self.shape.value(number.into()))?;
        }
        let (items, expected) =
            (table.check()?.items, self.pairs.len() as u64 + u64::from(self.numbers));
        if items != expected {
            let what = format!("after {} more puts there are {items} pairs", self.numbers);
            return Ok(Err(Failure::new(format!("{what}, not {expected}"))));
        }
        Ok(Ok(()))
    }

    /// Calls every operation on a pool with arbitrary contents; accepts any answer and any error.
    /// Returns whether it could be opened and closed.
    fn ask_everything(&self, words: &[u64]) -> Judged<bool> {
        let Ok((_, table)) = self.open(words) else { return Ok(false) };
        if let Ok(Err(endless)) = scan(&*table) {
            return Err(endless);
        }
        for number in 0..2 * self.numbers {
            let key = self.shape.key(number);
            let _ = table.get(&key, &mut Vec::new());
            let _ = table.put(&key, &self.shape.value(number.into()));
            let _ = table.remove(&self.shape.key(number / 2));
        }
        let _ = table.maintain(Duration::ZERO, 100);
        let _ = table.len();
        let _ = table.check();
        let _ = table.clear();
        Ok(table.close().is_ok())
    }
}

/// Reads all pairs; an endless scan is the inner error.
fn scan(table: &dyn Table) -> Result<Judged<Pairs>> {
    let mut pairs = Pairs::new();
    let mut visits = 0;
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |key, value| {
            visits += 1;
            pairs.insert(key.to_vec(), value.to_vec());
        })?;
        visits += 1;
        if visits > ENDLESS {
            return Ok(Err(Failure::new("a scan does not end")));
        }
    }
    Ok(Ok(pairs))
}

/// Turns errors that name damage into `None`, and all others into failures.
fn damage_reported<T>(answer: Result<Judged<T>>) -> Judged<Option<T>> {
    match answer {
        Ok(answer) => answer.map(Some),
        Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => Ok(None),
        Err(other) => Err(Failure::new(format!("an error that tells of no damage: {other}"))),
    }
}

fn flip(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    let mut words = victim.words.clone();
    for bit in (0..words.len() * 64).step_by(effort.flip_every) {
        let index = bit / 64;
        let whole = words[index];
        // Most words of a pool are zero, and lie in free space: one bit of each is enough.
        let skipped = whole == 0 && bit % 64 / effort.flip_every != index % 64 / effort.flip_every;
        if skipped || !victim.closed && effort.unclosed.contains(&index) {
            continue;
        }
        words[index] ^= 1 << (bit % 64);
        let work = (bit / effort.flip_every).is_multiple_of(effort.work_every);
        let judged = no_panic(|| judge_flip(victim, &words, effort, work));
        let class = judged.map_err(|told| told.at(format!("bit {} of word {index}", bit % 64)))?;
        *class(report) += 1;
        words[index] = whole;
    }
    Ok(())
}

/// The field of a report in which a flip is counted.
type Class = fn(&mut Report) -> &mut u64;

fn judge_flip(victim: &Victim, words: &[u64], effort: &Effort, work: bool) -> Judged<Class> {
    if work {
        victim.ask_everything(words)?;
    }
    let Some((found, sound)) = damage_reported(victim.read(words))? else {
        return Ok(|report| &mut report.noticed);
    };
    if found == victim.pairs {
        return Ok(match damage_reported(victim.add(words))? {
            Some(()) => |report| &mut report.harmless,
            None => |report| &mut report.noticed,
        });
    }
    let same = found.iter().filter(|(key, value)| victim.pairs.get(*key) == Some(value)).count();
    let one_differs = found.len() == victim.pairs.len() && same + 1 == found.len();
    if effort.bare_pairs && victim.shape.form != Form::Variable && one_differs {
        return Ok(|report| &mut report.in_bare_pairs);
    }
    if !sound {
        return Ok(|report| &mut report.by_check_alone);
    }
    compare("the scan", &found, &victim.pairs)?;
    Err(Failure::new("a wrong answer"))
}

fn exchange(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    let mut random = Random::new(effort.seed);
    let length = victim.words.len() as u64;
    for image in 0..effort.images / 2 {
        let mut words = victim.words.clone();
        for _ in 0..=random.below(3) {
            // Behind the header, whose checksum would refuse it.
            let (to, from) = (64 + random.below(length - 64), random.below(length));
            words[to as usize] = match random.below(4) {
                0 => 0,
                1 => random.next(),
                _ => words[from as usize],
            };
        }
        let asked = no_panic(|| victim.ask_everything(&words));
        let opened = asked.map_err(|failure| failure.at(format!("image {image}")))?;
        report.opened += u32::from(opened);
    }
    Ok(())
}

fn cut(victim: &Victim, effort: &Effort, report: &mut Report) -> Judged<()> {
    for length in (0..victim.words.len()).step_by(effort.cut_every) {
        let place = |failure: Failure| failure.at(format!("cut to {length} words"));
        // Any error will do: the medium may say first that it is too short.
        let read = no_panic(|| match victim.read(&victim.words[..length]) {
            Ok(read) => read.map(Some),
            Err(_) => Ok(None),
        });
        if let Some((found, _)) = read.map_err(place)? {
            let whole = compare("the scan", &found, &victim.pairs);
            whole.map_err(place)?;
            report.cut_and_opened += 1;
        }
    }
    Ok(())
}
