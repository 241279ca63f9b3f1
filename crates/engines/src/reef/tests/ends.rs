//! The process ends between any two of its stores; the machine goes on.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use everhash_index::{Cursor, Engine, Form, Inline, Opening, Table, create, open};
use everhash_pmem::crash::{FREED, Model, What};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Region, Std, WORD};
use everhash_testkit::workload::Shape;

use super::settings::Immediate;
use crate::reef::Reef;
use crate::reef::segments::sites;

/// What a process does: one write, or an atomic batch of them. A write is a put or a removal.
pub type Step = Vec<(u16, Option<u32>)>;

/// Returns the steps of a process that collects, removes, and begins segments.
fn steps() -> Vec<Step> {
    (0..40u16).map(|n| vec![(n * 7 % 12, (n % 5 != 4).then_some(1000 + u32::from(n)))]).collect()
}

/// Takes a step.
pub fn take(table: &dyn Table, shape: &Shape, step: &Step) {
    let writes: Vec<_> = step
        .iter()
        .map(|(key, value)| (shape.key(*key), value.map(|value| shape.value(value))))
        .collect();
    match &writes[..] {
        [(key, Some(value))] => drop(table.put(key, value).unwrap()),
        [(key, None)] => drop(table.remove(key).unwrap()),
        _ => {
            let writes: Vec<_> =
                writes.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
            table.atomic().unwrap().write_all(&writes).unwrap();
        }
    }
}

/// Lets a process end before each of its stores; returns how many ends there were, and after how
/// many of them something was wrong.
pub fn end_everywhere<E: Engine>(form: Form, steps: &[Step], mutant: Option<Mutant>) -> (u64, u64) {
    let shape = Shape::tiny(form);
    let region = Region::new(Traced::<Std>::new(Model::File, 0, 64 << 10));
    let opening = Opening { form, ..Opening::default() };
    let table = create::<E, _>(region.clone(), &opening, &E::tiny(form), &Inline).unwrap();
    fill(&table, &shape);
    drop(table);
    let mut words = region.media().visible();
    region.media().restart(&words);
    region.media().set_mutant(mutant);
    region.media().begin(0);
    let table = open::<E, _>(region.clone(), opening.boot, &Inline).unwrap();
    region.media().returned(0);
    for (step, number) in steps.iter().zip(1..) {
        region.media().begin(number);
        take(&table, &shape, step);
        region.media().returned(number);
    }
    drop(table);
    let log = region.media().take_log();
    region.media().set_mutant(None);
    let (mut ends, mut wrong, mut done) = (0, 0, 0);
    for event in log.events() {
        match event.what {
            What::Return { operation } => done = operation as usize,
            What::Grow { bytes } => words.resize((bytes / WORD) as usize, 0),
            What::Free { word, count } => {
                words[word as usize..][..count as usize].fill(FREED);
            }
            What::Store { word, value, .. } => {
                region.media().restart(&words);
                let found = catch_unwind(AssertUnwindSafe(|| {
                    let checked = checked::<E>(&region, &opening);
                    (checked, contents::<E>(&region, &opening))
                }));
                let may_be = [done, done + 1].map(|count| expected(&shape, steps, count));
                let is_one = |(checked, found)| checked == found && may_be.contains(&found);
                wrong += u64::from(!found.is_ok_and(is_one));
                ends += 1;
                words[word as usize] = value;
            }
            _ => {}
        }
    }
    (ends, wrong)
}

/// Puts the pairs with which a process begins.
pub fn fill(table: &dyn Table, shape: &Shape) {
    (0..30).for_each(|key| assert!(!table.put(&shape.key(key), &shape.value(1)).unwrap()));
}

/// Returns all pairs that a check finds.
fn checked<E: Engine>(region: &Region<Traced>, opening: &Opening) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    let visit = &mut |key: &[u8], value: &[u8]| drop(pairs.insert(key.into(), value.into()));
    E::check(region, opening.boot, visit).unwrap();
    pairs
}

/// Opens the table and returns all pairs.
pub fn contents<E: Engine>(
    region: &Region<Traced>,
    opening: &Opening,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let table = open::<E, _>(region.clone(), opening.boot, &Inline).unwrap();
    let (mut pairs, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(next) = cursor {
        let visit = &mut |key: &[u8], value: &[u8]| drop(pairs.insert(key.into(), value.into()));
        cursor = table.scan(next, visit).unwrap();
    }
    pairs
}

/// Returns what there is after some of the steps.
pub fn expected(shape: &Shape, steps: &[Step], count: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs: BTreeMap<_, _> = (0..30).map(|key| (shape.key(key), shape.value(1))).collect();
    for (key, value) in steps.iter().take(count).flatten() {
        let key = shape.key(*key);
        match value {
            Some(value) => drop(pairs.insert(key, shape.value(*value))),
            None => drop(pairs.remove(&key)),
        }
    }
    pairs
}

#[test]
fn a_process_may_end_between_any_two_stores() {
    // Fails if what a tail names is not whole, if a segment is there before its head is, or if an
    // immediate write behind the tail is not found.
    for form in super::FORMS {
        let batch = end_everywhere::<Reef>(form, &steps(), None);
        let immediate = end_everywhere::<Immediate>(form, &steps(), None);
        for ((ends, wrong), least) in [(batch, 500), (immediate, 300)] {
            println!("{form}: {ends} ends");
            assert!(ends > least && wrong == 0, "{form}: {wrong} of {ends}");
        }
    }
    // A tail that is stored before the last word of its object goes unnoticed nowhere else.
    let mutant = Mutant { site: sites::TAIL, change: Change::SwapCommit };
    let (ends, wrong) = end_everywhere::<Reef>(Form::WORDS, &steps(), Some(mutant));
    assert!(wrong > 0, "none of {ends}");
}
