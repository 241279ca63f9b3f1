//! What a salvage gives back of damaged pools, whatever the engine.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};

use everhash_engines::designs;
use everhash_index::{Design, Form, Opening};
use everhash_pmem::{Boot, Image, Region, Std, pool};
use everhash_testkit::OpenTable;
use everhash_testkit::workload::Shape;

/// Words of a cache line, and of a page.
const HOLES: [usize; 2] = [8, 512];

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A pool, what it holds, and what it held once.
struct Pool {
    form: Form,
    is_closed: bool,
    boot: Boot,
    words: Vec<u64>,
    pairs: Pairs,
    once: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl Pool {
    /// Makes a table of which some pairs were replaced and some removed, soon and late.
    fn new(design: &Design<Image>, form: Form, is_closed: bool) -> Pool {
        let shape = Shape::tiny(form);
        let mut session = OpenTable::tiny(design, form, 1 << 20).unwrap();
        let (mut pairs, mut once) = (Pairs::new(), BTreeSet::new());
        let mut put = |pairs: &mut Pairs, number: u16, value: u32| {
            let (key, value) = (shape.key(number), shape.value(value));
            session.table().put(&key, &value).unwrap();
            once.insert((key.clone(), value.clone()));
            pairs.insert(key, value);
        };
        for number in 0..120u16 {
            put(&mut pairs, number, number.into());
            for back in [3, 40] {
                let Some(older) = number.checked_sub(back) else { continue };
                match (number + back) % 3 {
                    0 => {
                        session.table().remove(&shape.key(older)).unwrap();
                        pairs.remove(&shape.key(older));
                    }
                    1 => put(&mut pairs, older, 1000 + u32::from(number + back)),
                    _ => {}
                }
            }
        }
        session.table().sync().unwrap();
        if is_closed {
            session.close().unwrap();
        }
        let words = session.region().media().words();
        let Boot([machine, boot]) = Opening::default().boot;
        let boot = Boot([machine, boot + u64::from(is_closed)]);
        Pool { form, is_closed, boot, words, pairs, once }
    }

    /// Returns the pool with one damage each: with one bit flipped of each word that is not zero,
    /// or with zeros in each line and page.
    fn damaged(&self) -> impl Iterator<Item = (String, Vec<u64>)> {
        let first = pool::DATA.word() as usize;
        let flips = (first..self.words.len()).map(|index| (1, index));
        let holes = HOLES.into_iter().flat_map(move |length| {
            let behind = first.next_multiple_of(length)..self.words.len();
            behind.step_by(length).map(move |index| (length, index))
        });
        flips.chain(holes).filter_map(|(length, index)| {
            let mut words = self.words.clone();
            let end = words.len().min(index + length);
            match &mut words[index..end] {
                [0] => {}
                [word] => *word ^= 1 << (index * 7 % 64),
                words => words.fill(0),
            }
            (words != self.words).then(|| (format!("{length} words at {index}"), words))
        })
    }
}

/// What a salvage gave back.
#[derive(Default)]
struct Salvaged {
    found: Pairs,
    reports: u64,
}

/// Returns what is intact; `None` if the salvage says that nothing can be read.
fn salvage(design: &Design<Image>, pool: &Pool, words: &[u64]) -> Option<Salvaged> {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes));
    let (mut salvaged, mut twice) = (Salvaged::default(), None);
    let Salvaged { found, reports } = &mut salvaged;
    let mut visit = |key: &[u8], value: &[u8]| {
        if found.insert(key.to_vec(), value.to_vec()).is_some() {
            twice = Some(key.to_vec());
        }
    };
    design.salvage(&region, pool.boot, &mut visit, &mut |_| *reports += 1).ok()?;
    assert_eq!(twice, None, "a key is given back twice");
    Some(salvaged)
}

#[test]
fn p06_a_salvage_gives_back_what_is_intact_and_nothing_that_was_replaced_or_removed() {
    // Fails if one damage brings a pair back that was replaced or removed, or makes one that never
    // was; or if something is lost or old and nothing is reported. The exceptions are those that
    // the documentation of `Db::salvage` names.
    for design in designs::<Image>() {
        for form in design.capabilities.all_forms() {
            judge(&Pool::new(&design, form, true), &design);
            judge(&Pool::new(&design, form, false), &design);
        }
    }
}

fn judge(pool: &Pool, design: &Design<Image>) {
    let (name, form) = (design.name, pool.form);
    // Pairs of these forms have no check of their own there.
    let is_bare = form != Form::Variable && ["wophi", "elimda", "tiered"].contains(&name);
    // A hole in a unit of a pool that lost power looks like one that was never used.
    let is_blind = name == "elimda" && !pool.is_closed;
    let keeps_older = ["reef", "tiered"].contains(&name);
    let (mut tried, mut all_lost, mut all_old) = (0, 0, 0);
    for (place, words) in pool.damaged() {
        let Some(Salvaged { found, reports }) = salvage(design, pool, &words) else { continue };
        let lost = pool.pairs.keys().filter(|key| !found.contains_key(*key)).count();
        let wrong = found.into_iter().filter(|(key, value)| pool.pairs.get(key) != Some(value));
        let (old, never): (Vec<_>, Vec<_>) = wrong.partition(|pair| pool.once.contains(pair));
        let told = format!("{name}, {form}, closed: {}, {place}", pool.is_closed);
        assert!(never.is_empty() || is_bare, "{told}: {never:?} never was");
        assert!(old.is_empty() || keeps_older || is_blind, "{told}: {old:?} is old");
        let is_excused = is_blind || is_bare && !never.is_empty();
        let is_complete = lost == 0 && old.is_empty();
        assert!(is_complete || reports > 0 || is_excused, "{told}: {lost} lost without a report");
        (tried, all_lost, all_old) = (tried + 1, all_lost + lost, all_old + old.len());
    }
    let pairs = pool.pairs.len();
    println!("{name}, {form}: {tried} damages of {pairs} pairs, {all_lost} lost, {all_old} old");
    assert!(tried > 300, "{name}, {form}: {tried}");
}
