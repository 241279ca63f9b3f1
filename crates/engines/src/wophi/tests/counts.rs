//! How many lines an operation flushes, and how evenly they wear (WOPHI IV-B, Fig. 3).

use std::ops::Range;

use everhash_index::{Form, Table};
use everhash_pmem::Media;
use everhash_testkit::measured::{FILE, MEMORY, Measured};

use crate::wophi::{Wophi, WophiSettings};

/// Per operation: lines flushed and fences.
type Cost = (f64, f64);

/// What operations on numbered pairs cost.
trait Pairs {
    /// Does something with the pairs `range`; returns what one of them cost.
    fn cost_of(&self, range: Range<u64>, act: impl Fn(&dyn Table, &[u8], &[u8])) -> Cost;

    fn insert(&self, range: Range<u64>) -> Cost {
        self.cost_of(range, |table, key, value| assert!(table.insert(key, value).unwrap()))
    }
}

impl Pairs for Measured<Wophi> {
    fn cost_of(&self, range: Range<u64>, act: impl Fn(&dyn Table, &[u8], &[u8])) -> Cost {
        let cost = self.cost(range, |i| {
            let (key, value) = pair(self.form, i);
            act(&self.table, &key, &value);
        });
        (cost.lines, cost.fences)
    }
}

fn pair(form: Form, i: u64) -> (Vec<u8>, Vec<u8>) {
    let bytes = i.to_le_bytes().to_vec();
    match form {
        Form::DOUBLE_WORDS => (bytes.repeat(2), bytes.repeat(2)),
        _ => (bytes.clone(), bytes),
    }
}

fn presized(rotate: u64) -> WophiSettings {
    let buckets = 1024;
    WophiSettings {
        initial_buckets: buckets,
        stripes: 64,
        grow_percent: 1000,
        rotate,
        ..WophiSettings::default()
    }
}

/// Items at a load of `percent`, and slots.
fn items(form: Form, percent: u64) -> u64 {
    1024 * if form == Form::DOUBLE_WORDS { 4 } else { 3 } * percent / 100
}

#[test]
fn an_insert_flushes_as_few_lines_as_promised() {
    // Fails if a write flushes a line twice, or if slots spread over more lines than need be.
    println!("flushes and fences per insert, presized, from empty up to the load:");
    for (form, most) in [(Form::WORDS, 1.15), (Form::DOUBLE_WORDS, 1.75), (Form::Variable, 2.15)] {
        for percent in [25, 50, 75] {
            let measured = Measured::<Wophi>::new(form, &presized(1), MEMORY).unwrap();
            let (flushes, fences) = measured.insert(0..items(form, percent));
            println!("  {form:>8} load 0.{percent}: {flushes:.3} {fences:.3}");
            assert!(flushes <= most && flushes >= 1.0, "{form} {percent}: {flushes}");
        }
    }
}

#[test]
fn a_growing_table_flushes_three_lines_per_insert_at_most() {
    // Fails if a split flushes lines that nothing was written to, or if growth is repeated.
    println!("flushes and fences per insert while growing from 64 to 16384 buckets and more:");
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let settings = WophiSettings { initial_buckets: 64, stripes: 64, ..presized(1) };
        let measured =
            Measured::new(form, &WophiSettings { grow_percent: 75, ..settings }, MEMORY).unwrap();
        let (flushes, fences) = measured.insert(0..40_000);
        let stats = measured.table.stats().unwrap();
        println!("  {form:>8}: {flushes:.3} {fences:.3}, {} growths", stats.growth_steps);
        assert!(stats.growth_steps >= 8, "{stats:?}");
        assert!(flushes <= if form == Form::Variable { 4.0 } else { 3.0 }, "{form}: {flushes}");
        assert_eq!(measured.table.check().unwrap().items, 40_000);
    }
}

#[test]
fn updates_and_removes_cost_what_they_must() {
    // Fails if an update writes more than its new value, or a remove more than its token.
    println!("flushes and fences per update and remove at each load, memory and file:");
    for (form, update) in [
        (Form::WORDS, [(1.0, 1.0), (1.0, 1.0)]),
        (Form::DOUBLE_WORDS, [(2.0, 2.0), (2.95, 2.2)]),
        (Form::Variable, [(2.0, 2.0), (2.0, 2.0)]),
    ] {
        for (guarantees, most) in [MEMORY, FILE].into_iter().zip(update) {
            for percent in [25, 50, 75] {
                let measured = Measured::<Wophi>::new(form, &presized(1), guarantees).unwrap();
                let count = items(form, percent);
                measured.insert(0..count);
                let updated = measured.cost_of(0..count, |table, key, value| {
                    assert!(table.update(key, value).unwrap());
                });
                let removed = measured.cost_of(0..count, |table, key, _| {
                    assert!(table.remove(key).unwrap());
                });
                let domain = guarantees.domain;
                println!("  {form:>8} load 0.{percent} {domain:?}: {updated:.3?} {removed:.3?}");
                assert!(updated.0 <= most.0 && updated.1 <= most.1, "{form}: {updated:?}");
                assert_eq!(removed, (1.0, 1.0), "{form}");
            }
        }
    }
}

#[test]
fn a_growth_costs_updates_no_more_than_inserts_and_removes_nothing() {
    // Fails if a remove splits buckets, which a full medium could then refuse, or if an update
    // splits more than its share.
    println!("flushes and fences per update and remove while a growth is under way:");
    for (form, most) in [(Form::WORDS, 4.5), (Form::DOUBLE_WORDS, 5.5), (Form::Variable, 5.5)] {
        let settings = WophiSettings { grow_percent: 75, ..presized(1) };
        let measured = Measured::<Wophi>::new(form, &settings, MEMORY).unwrap();
        let mut count = 0;
        while !measured.table.stats().unwrap().own.contains(&("growing", 1)) {
            measured.insert(count..count + 1);
            count += 1;
        }
        let removed = measured.cost_of(0..50, |table, key, _| assert!(table.remove(key).unwrap()));
        let updated = measured.cost_of(50..100, |table, key, value| {
            assert!(table.update(key, value).unwrap());
        });
        println!("  {form:>8}: {updated:.3?} {removed:.3?}");
        assert_eq!(removed, (1.0, 1.0), "{form}");
        assert!(updated.0 <= most && updated.0 > 1.0, "{form}: {updated:?}");
        assert!(measured.table.stats().unwrap().own.contains(&("growing", 1)), "{form}");
    }
}

#[test]
fn a_medium_without_line_order_costs_a_second_fence() {
    // Fails if the engine relies on the order of stores where the medium does not give it, or
    // pays for the missing order where it has it.
    for (guarantees, fences) in [(MEMORY, 1.0), (FILE, 2.0)] {
        let measured = Measured::<Wophi>::new(Form::WORDS, &presized(1), guarantees).unwrap();
        assert_eq!(measured.insert(0..1), (fences, fences));
    }
}

#[test]
fn reads_flush_nothing() {
    // Fails if a reader helps a writer, or notes anything on the medium.
    for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
        let measured = Measured::<Wophi>::new(form, &presized(1), MEMORY).unwrap();
        measured.insert(0..1000);
        let cost = measured.cost_of(0..2000, |table, key, _| {
            table.get(key, &mut Vec::new()).unwrap();
            assert!(!table.insert(&pair(form, 7).0, key).unwrap());
        });
        assert_eq!(cost, (0.0, 0.0), "{form}");
        assert_eq!(measured.media.guarantees(), MEMORY);
    }
}
