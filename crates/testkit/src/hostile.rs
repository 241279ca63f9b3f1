//! Hostile images: pools in which somebody who knows the format overwrote words, checks included.
//!
//! Small pools with contents are made, some closed and some left behind by a killed process, and a
//! few of their words are overwritten: with 0, 1, the largest number, 2^40, lengths of the medium,
//! other words of the image, and the word that stood there with a bit or a count changed. Many
//! changes fail a check at once; so an engine may name a [`Forge`], which stores a value as it
//! would lie on the medium with every check over it redone. Nobody knows the right answers of
//! such a pool. But whatever is called on it returns, without a panic, in bounded time, memory
//! and growth of the medium.

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use everhash_index::{Change, Cursor, Design, Form, Inline, Opening, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::pool::Header;
use everhash_pmem::{AllocationMeter, Boot, Image, Media, Region};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::failure::no_panic;
use crate::random::Random;
use crate::workload::Shape;
use crate::{Failure, OpenTable};

/// Stores `value`, as the contents of word `index`, into an image, and redoes the checks over it.
/// Of several kinds of words that could lie there, the number decides.
pub type Forge = fn(words: &mut [u64], index: usize, value: u64, kind: u64);

/// What the judge does, and what it allows.
#[derive(Clone, Debug)]
pub struct Effort {
    /// How many images are made of each pool.
    pub images: u32,
    /// After how long no further image is made. Unit: seconds, for all pools of a form together.
    pub seconds: f64,
    /// The seed of all choices.
    pub seed: u64,
    /// How checks are redone.
    pub forge: Option<Forge>,
    /// By how much more than the sound pool the medium may grow. Unit: bytes.
    pub most_growth_bytes: u64,
    /// By how much more than the sound pool an image may allocate. Unit: bytes. Counted only in
    /// binaries that install [`AllocationMeter`].
    pub most_allocated_bytes: u64,
    /// How long one image may take. Unit: seconds; generous, for machines that are busy.
    pub most_seconds: f64,
    /// What the medium claims of a crash, so that an engine takes the path of such a medium.
    pub model: Model,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            images: 3000,
            seconds: 20.0,
            seed: 1,
            forge: None,
            most_growth_bytes: 256 << 10,
            most_allocated_bytes: 1 << 20,
            most_seconds: 20.0,
            model: Model::Adr,
        }
    }
}

/// What was judged, of one form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Images that were judged.
    pub images: u32,
    /// Those that were opened.
    pub opened: u32,
    /// Those that were opened, worked on, and closed.
    pub closed: u32,
    /// The most that the medium grew under one of them. Unit: bytes.
    pub growth_bytes: u64,
    /// The most that one of them allocated. Unit: bytes.
    pub allocated_bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} images, {} opened, {} closed; grew by {} KiB and allocated {} KiB at most",
            self.images,
            self.opened,
            self.closed,
            self.growth_bytes >> 10,
            self.allocated_bytes >> 10
        )
    }
}

/// What comes of judging; an error of the engine is no violation.
type Judged<T> = core::result::Result<T, Failure>;

/// To what length a pool can grow. Unit: bytes beyond its length.
const MORE_BYTES: u64 = 1 << 20;

/// How many calls of a scan may follow one another before it counts as endless.
const ENDLESS: u32 = 1 << 16;

/// How many pairs are put into each pool. Unit: pairs; with tiny settings an engine has grown once
/// or twice then, and some growth may be half done.
const PAIRS: [u16; 3] = [6, 25, 60];

/// Overwrites words of pools of `form`.
///
/// # Errors
/// The first image that leads to a panic, or beyond a bound, with the words that were stored.
pub fn judge(design: &Design<Image>, form: Form, effort: &Effort) -> Judged<Report> {
    let (mut report, begun) = (Report::default(), Instant::now());
    for (number, pairs) in PAIRS.into_iter().enumerate() {
        for closed in [true, false] {
            let pool = Sound::new(design, (form, pairs, closed), effort.model)?;
            // Of its own for each pool: a change to one does not change the images of others.
            let seed = effort.seed << 8 | (number as u64) << 1 | u64::from(closed);
            let place = |told: Failure| {
                told.at(format!("{}, {form}, {pairs} pairs, closed: {closed}", design.name))
            };
            overwrite(&pool, effort, seed, begun, &mut report).map_err(place)?;
        }
    }
    Ok(report)
}

/// A pool that nobody has overwritten yet.
pub(crate) struct Sound {
    pub design: Design<Image>,
    pub shape: Shape,
    pub words: Vec<u64>,
    /// The numbers of its keys, and of as many that it lacks.
    pub numbers: u16,
    /// What the same work costs where nothing is overwritten.
    pub cost: Cost,
    /// What the medium claims of a crash.
    pub model: Model,
}

/// What work on an image took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub opened: bool,
    pub closed: bool,
    pub growth_bytes: u64,
    pub allocated_bytes: u64,
}

/// A word that is overwritten.
pub(crate) type Store = (usize, u64);

impl Sound {
    fn new(
        design: &Design<Image>,
        (form, pairs, closed): (Form, u16, bool),
        model: Model,
    ) -> Judged<Sound> {
        let shape = Shape::tiny(form);
        let medium = Image::new(0, MORE_BYTES).with_guarantees(model.guarantees());
        let mut session = OpenTable::create(design, medium, form)?;
        for number in (0..pairs).chain((0..pairs).step_by(3)) {
            session.table().put(&shape.key(number), &shape.value(number.into()))?;
        }
        for number in (0..pairs).step_by(5) {
            session.table().remove(&shape.key(number))?;
        }
        session.table().sync()?;
        if closed {
            session.close()?;
        }
        let (words, numbers) = (session.region().media().words(), 2 * pairs);
        let cost = Cost::default();
        Sound { design: *design, shape, words, numbers, cost, model }.measured(closed)
    }

    /// Works on the pool as it is, so that its cost is known.
    pub(crate) fn measured(mut self, same_boot: bool) -> Judged<Sound> {
        self.cost = self.work_on(&self.words, same_boot)?;
        if !self.cost.closed {
            return Err(Failure::new("a sound pool cannot be opened, worked on and closed"));
        }
        Ok(self)
    }

    /// Opens an image in every way there is, and calls everything on it.
    fn work_on(&self, words: &[u64], same_boot: bool) -> Judged<Cost> {
        let bytes = words.len() as u64 * 8;
        let image = Image::of(words, bytes, bytes + MORE_BYTES);
        let region = Region::new(image.with_guarantees(self.model.guarantees()));
        let (worked, allocated_bytes) =
            AllocationMeter::measure(|| no_panic(|| self.call_everything(&region, same_boot)));
        let growth_bytes = region.media().bytes() - bytes;
        Ok(Cost { growth_bytes, allocated_bytes, ..worked? })
    }

    fn call_everything(&self, region: &Region<Image>, same: bool) -> Judged<Cost> {
        let mut cost = Cost::default();
        if let Ok(table) = self.design.open_read_only(region.clone(), &Inline) {
            self.read(&*table)?;
            let _ = table.close();
        }
        let Boot([machine, boot]) = Opening::default().boot;
        let boot = Boot([machine, boot + u64::from(!same)]);
        let _ = self.design.check(region, boot, &mut |_, _| {});
        let _ = self.design.salvage(region, boot, &mut |_, _| {}, &mut |_| {});
        let Ok(table) = self.design.open(region.clone(), boot, &Inline) else { return Ok(cost) };
        cost.opened = true;
        self.read(&*table)?;
        self.write(&*table);
        self.read(&*table)?;
        let _ = table.clear();
        let _ = table.put(&self.shape.key(2), &self.shape.value(2));
        let _ = table.maintain(Duration::from_secs(90), 1000);
        let _ = table.check();
        cost.closed = table.close().is_ok();
        if let Ok(table) = self.design.open(region.clone(), boot, &Inline) {
            self.read(&*table)?;
        }
        Ok(cost)
    }

    fn read(&self, table: &dyn Table) -> Judged<()> {
        let (mut value, mut calls) = (Vec::new(), 0);
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next {
            next = table.scan(cursor, &mut |_, _| {}).unwrap_or(None);
            calls += 1;
            if calls > ENDLESS {
                return Err(Failure::new("a scan does not end"));
            }
        }
        let keys: Vec<_> = (0..self.numbers).map(|number| self.shape.key(number)).collect();
        for key in &keys {
            let _ = table.get(key, &mut value);
        }
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let _ = table.get_many(&keys, &mut |_, _| {});
        let _ = (table.len(), table.stats(), table.check());
        Ok(())
    }

    fn write(&self, table: &dyn Table) {
        for number in 0..self.numbers {
            let (key, value) = (self.shape.key(number), self.shape.value(u32::from(number) + 7));
            let _ = match number % 4 {
                0 => table.put(&key, &value),
                1 => table.insert(&key, &value),
                2 => table.update(&key, &value),
                _ => table.modify(&key, &mut |_| Change::Put(value.clone())).map(|()| true),
            };
            let _ = table.remove(&self.shape.key(number / 3));
            if number % 16 == 0 {
                let _ = table.maintain(Duration::from_secs(number.into()), 8);
            }
        }
        for second in 60..70 {
            let _ = table.maintain(Duration::from_secs(second), 100);
        }
        let _ = table.sync();
    }
}

/// Makes images of one pool, and judges each.
fn overwrite(
    pool: &Sound,
    effort: &Effort,
    seed: u64,
    begun: Instant,
    report: &mut Report,
) -> Judged<()> {
    let mut random = Random::new(seed);
    let used: Vec<usize> = (0..pool.words.len()).filter(|i| pool.words[*i] != 0).collect();
    for image in 0..effort.images {
        if begun.elapsed().as_secs_f64() > effort.seconds {
            break;
        }
        let mut words = pool.words.clone();
        for _ in 0..=random.below(3) {
            forge_one(&mut words, &used, effort.forge, &mut random);
        }
        let same_boot = random.once_in(2);
        let cost = judge_image(pool, effort, &words, same_boot).map_err(|told| {
            let stores = shortest(pool, effort, &words, same_boot);
            let stores: Vec<_> = stores.iter().map(|(i, word)| format!("{i}={word:#x}")).collect();
            told.at(format!("image {image} (same boot: {same_boot}), words {}", stores.join(" ")))
        })?;
        report.images += 1;
        report.opened += u32::from(cost.opened);
        report.closed += u32::from(cost.closed);
        report.growth_bytes = report.growth_bytes.max(cost.growth_bytes);
        report.allocated_bytes = report.allocated_bytes.max(cost.allocated_bytes);
    }
    Ok(())
}

pub(crate) fn judge_image(
    pool: &Sound,
    effort: &Effort,
    words: &[u64],
    same_boot: bool,
) -> Judged<Cost> {
    let begun = Instant::now();
    let cost = pool.work_on(words, same_boot)?;
    let seconds = begun.elapsed().as_secs_f64();
    let (grown, allocated) = (cost.growth_bytes, cost.allocated_bytes);
    if grown > pool.cost.growth_bytes + effort.most_growth_bytes {
        let sound = pool.cost.growth_bytes;
        let what = format!("the medium grew by {grown} bytes; the sound pool's by {sound}");
        return Err(Failure::new(what));
    }
    if allocated > pool.cost.allocated_bytes + effort.most_allocated_bytes {
        let sound = pool.cost.allocated_bytes;
        let what = format!("{allocated} bytes were allocated; {sound} for the sound pool");
        return Err(Failure::new(what));
    }
    if seconds > effort.most_seconds {
        return Err(Failure::new(format!("it took {seconds:.1} s")));
    }
    Ok(cost)
}

/// Overwrites one word.
pub(crate) fn forge_one(
    words: &mut [u64],
    used: &[usize],
    forge: Option<Forge>,
    random: &mut Random,
) {
    let index = match random.below(8) {
        0 => random.below(words.len() as u64) as usize,
        1 => *random.pick(&[0, 512]) + random.below(Header::WORDS as u64) as usize,
        _ => *random.pick(used),
    };
    let value = hostile_value(words, index, used, random);
    let header = index & !512 < Header::WORDS;
    match forge {
        Some(forge) if !header && !random.once_in(4) => forge(words, index, value, random.next()),
        _ => words[index] = value,
    }
    if header && !random.once_in(4) {
        reseal_header(words, index & 512);
    }
}

fn hostile_value(words: &[u64], index: usize, used: &[usize], random: &mut Random) -> u64 {
    let (length, present) = (words.len() as u64, words[index]);
    match random.below(14) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << 40,
        4 => 1 << random.below(64),
        5 => random.below(256),
        6 => random.next(),
        // The length of the medium in words, bytes and lines, and just beside it.
        7 => (length << 3 >> (3 * random.below(3))).wrapping_add(random.below(3)).wrapping_sub(1),
        8 => present.wrapping_add(1),
        9 => present.wrapping_sub(1),
        10 => random.below(length),
        11 => words[*random.pick(used)],
        _ => present ^ 1 << random.below(64),
    }
}

/// Redoes the checksum of the header slot that begins at word `slot`.
fn reseal_header(words: &mut [u64], slot: usize) {
    let header = &words[slot..slot + Header::CHECKSUM];
    let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    words[slot + Header::CHECKSUM] = xxh3_64_with_seed(&bytes, slot as u64 * 8);
}

/// Leaves out each store of a violation that it does not need.
pub(crate) fn shortest(pool: &Sound, effort: &Effort, words: &[u64], same: bool) -> Vec<Store> {
    let differs = |index: &usize| words[*index] != pool.words[*index];
    let mut stores: Vec<Store> =
        (0..words.len()).filter(differs).map(|index| (index, words[index])).collect();
    let mut next = 0;
    while next < stores.len() {
        let without = || stores.iter().enumerate().filter(|(place, _)| *place != next);
        let mut words = pool.words.clone();
        without().for_each(|(_, (index, word))| words[*index] = *word);
        if judge_image(pool, effort, &words, same).is_err() {
            stores.remove(next);
        } else {
            next += 1;
        }
    }
    stores
}

/// Opens one image that a violation named: `words` are stored into the pool of `pairs` pairs that
/// was closed or not.
///
/// # Errors
/// The violation, if there still is one.
pub fn replay(
    design: &Design<Image>,
    (form, pairs, closed): (Form, u16, bool),
    effort: &Effort,
    same_boot: bool,
    stores: &[Store],
) -> Judged<()> {
    let pool = Sound::new(design, (form, pairs, closed), effort.model)?;
    let mut words = pool.words.clone();
    stores.iter().for_each(|(index, word)| words[*index] = *word);
    judge_image(&pool, effort, &words, same_boot).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;
    use core::sync::atomic::{AtomicU32, Ordering};
    use everhash_pmem::{Pool, Shutdown};

    #[test]
    fn an_engine_with_checks_over_everything_is_never_accused() {
        // Fails by a false alarm, or if nothing is overwritten, or nothing that opens.
        let effort = Effort { images: 150, ..Effort::default() };
        let report = judge(&Design::of::<Reference>(), Form::WORDS, &effort).unwrap();
        println!("{report}");
        assert!((10..report.images).contains(&report.opened), "{report}");
    }

    #[test]
    fn a_pool_holds_pairs_before_it_is_overwritten() {
        // Fails if pools are empty: no image would have a pair in it that was forged.
        let design = Design::of::<Reference>();
        for (pairs, closed) in PAIRS.into_iter().flat_map(|pairs| [(pairs, true), (pairs, false)]) {
            let pool = Sound::new(&design, (Form::WORDS, pairs, closed), Model::Adr).unwrap();
            let bytes = pool.words.len() as u64 * 8;
            let region = Region::new(Image::of(&pool.words, bytes, bytes + MORE_BYTES));
            let status = Pool::status(&region, Opening::default().boot).unwrap();
            assert_eq!(status.previous == Shutdown::Clean, closed);
            let table = OpenTable::open(&design, region.media().clone()).unwrap();
            let left = table.table().len().unwrap();
            assert_eq!(left, u64::from(pairs - pairs.div_ceil(5)));
        }
    }

    #[test]
    fn a_header_that_is_sealed_again_is_believed() {
        // Fails if the formula of the checksum is not the pool's: no header would be forged then.
        let pool =
            Sound::new(&Design::of::<Reference>(), (Form::WORDS, 6, true), Model::Adr).unwrap();
        let mut words = pool.words.clone();
        for slot in [0, 512] {
            words[slot + Header::VERSION] = 9;
            reseal_header(&mut words, slot);
        }
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<everhash_pmem::Std>::of(&words, bytes, bytes));
        let found = Pool::inspect(&region).unwrap_err();
        assert!(matches!(found, everhash_pmem::Error::Unsupported { .. }), "{found}");
    }

    #[test]
    fn words_of_every_kind_are_overwritten_and_headers_are_sealed_again() {
        // Fails if the checksum of a header refuses every forged number, if words are never
        // overwritten that hold nothing, or if a number that engines trip over is never stored.
        let pool =
            Sound::new(&Design::of::<Reference>(), (Form::WORDS, 6, true), Model::Adr).unwrap();
        let used: Vec<usize> = (0..pool.words.len()).filter(|i| pool.words[*i] != 0).collect();
        let (mut random, mut sealed, mut empty) = (Random::new(1), 0, 0);
        let mut values = Vec::new();
        for _ in 0..2000 {
            let mut words = pool.words.clone();
            forge_one(&mut words, &used, None, &mut random);
            let differs = |index: &usize| words[*index] != pool.words[*index];
            let changed: Vec<usize> = (0..words.len()).filter(differs).collect();
            let (Some(first), Some(last)) = (changed.first(), changed.last()) else { continue };
            assert!(changed.len() <= 2, "{changed:?}");
            sealed += u32::from(first != last && last & 511 == Header::CHECKSUM);
            empty += u32::from(pool.words[*first] == 0);
            values.push(words[*first]);
        }
        assert!(sealed > 30 && empty > 60, "{sealed} {empty}");
        let length = pool.words.len() as u64;
        let bounds = [length, length * 8, length / 8].map(|bound| [bound - 1, bound, bound + 1]);
        for value in [0, 1, u64::MAX, 1 << 40].into_iter().chain(bounds.concat()) {
            assert!(values.contains(&value), "{value}");
        }
    }

    /// How often a value was stored with its checks.
    static FORGED: AtomicU32 = AtomicU32::new(0);

    fn forge(words: &mut [u64], index: usize, value: u64, _kind: u64) {
        FORGED.fetch_add(1, Ordering::Relaxed);
        words[index] = value;
    }

    #[test]
    fn time_is_bounded_and_a_violation_names_only_the_words_that_it_needs() {
        // Fails if an image may take as long as it likes, if the words of a violation are all that
        // were overwritten, if nothing is forged, or if a judge goes on when its time is up.
        let design = Design::of::<Reference>();
        let judge = |effort: Effort| judge(&design, Form::WORDS, &effort);
        let few = Effort { images: 20, forge: Some(forge), seconds: 600.0, ..Effort::default() };
        let found = judge(Effort { most_seconds: 0.0, ..few.clone() }).unwrap_err().to_string();
        assert!(found.contains(", words : it took "), "{found}");
        assert_eq!(judge(Effort { seconds: 0.0, ..few.clone() }).unwrap(), Report::default());
        let report = judge(few).unwrap();
        assert!(report.images == 120 && report.growth_bytes > 0, "{report}");
        assert!(FORGED.load(Ordering::Relaxed) > 20);
    }
}
