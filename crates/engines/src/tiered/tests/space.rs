//! Space and counts: what is in use is what something leads to, and what a table says of itself is
//! so.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Form, Inline, Opening, Table, create, open};
use everhash_pmem::{Image, LINE, Region, Std, WORD, pool};
use everhash_testkit::measured::{MEMORY, Measured};
use everhash_testkit::random::Random;
use everhash_testkit::settle;

use super::copies::copies;
use super::growth::of_words;
use super::mechanisms::{of_the_paper, own, two_layers};
use crate::tiered::bucket::PairCodec;
use crate::tiered::layout;
use crate::tiered::state::Tiered as Open;
use crate::tiered::{Tiered, TieredSettings, TieredTable, bytes_needed, check};

/// Demands that no record, no overflow line and no layer is in use to which nothing leads.
fn nothing_leaks<C: PairCodec>(table: &Open<Image, C>, when: &str) {
    let layers: u64 = table.layers.view().all().iter().map(|place| place.bytes()).sum();
    let heap = table.heap.usage().unwrap();
    let checked = check::check(table.pool.region(), &mut |_, _| {}).unwrap();
    let used = pool::DATA.byte() + layers + heap.record_bytes;
    assert_eq!(checked.reachable_bytes, used, "{when}");
    let pages = heap.pages * table.settings.heap_page_bytes;
    assert_eq!(table.space.usage().unwrap().used_bytes, layers + pages, "{when}");
}

fn nothing_leaks_of(table: &TieredTable<Image>, when: &str) {
    match table {
        TieredTable::Words(table) => nothing_leaks(table, when),
        TieredTable::Bytes(table) => nothing_leaks(table, when),
    }
}

/// Settings, beside the small ones, under which a table takes paths of its own.
fn variants() -> [TieredSettings; 6] {
    let small = TieredSettings { page_bytes: 512, ..TieredSettings::tiny() };
    [
        small,
        TieredSettings { layers: 3, line_slots: 2, fingerprints: 2, ..small },
        TieredSettings { layers: 3, one_flush: 0, fingerprints: 1, ..small },
        TieredSettings { one_flush: 0, ..small },
        TieredSettings { movement: 0, ..small },
        TieredSettings { layers: 4, top_pages: 1, grow_percent: 100, ..small },
    ]
}

#[test]
fn what_is_in_use_is_what_something_leads_to() {
    // Fails if a record or an overflow line is not given back when the last slot that leads to it
    // ends: by a write, by what moves with one, by a drain, a sweep or a clear; or if an open does
    // not claim one.
    for (number, settings) in variants().into_iter().enumerate() {
        for form in [Form::WORDS, Form::Variable] {
            let measured = Measured::<Tiered>::new(form, &settings, MEMORY).unwrap();
            let (table, mut random) = (&measured.table, Random::new(number as u64));
            let mut write = |keys: u64, removes: u64| {
                let key = random.below(keys).to_le_bytes();
                let value = [random.next() as u8; 8];
                if random.below(10) < removes {
                    table.remove(&key).unwrap();
                } else {
                    table.put(&key, &value).unwrap();
                }
            };
            let mut now = Duration::ZERO;
            for (keys, removes) in [(150, 2), (250, 5), (400, 3), (400, 9)] {
                (0..600).for_each(|_| write(keys, removes));
                nothing_leaks_of(table, &format!("{number}, {form}: after writes"));
                now = settle(table, now, 8).unwrap();
                nothing_leaks_of(table, &format!("{number}, {form}: after upkeep"));
            }
            (0..600).for_each(|_| write(400, 2));
            let words = measured.media.words();
            let bytes = words.len() as u64 * WORD;
            let copy = Region::new(Image::<Std>::of(&words, bytes, bytes));
            let opened = open::<Tiered, _>(copy, Opening::default().boot, &Inline).unwrap();
            nothing_leaks_of(&opened, &format!("{number}, {form}: after an open"));
            table.clear().unwrap();
            nothing_leaks_of(table, &format!("{number}, {form}: after a clear"));
            assert!(own(table, "moved") > 0 || settings.movement == 0);
        }
    }
}

#[test]
fn a_table_fits_the_medium_that_it_asks_for() {
    // Fails if a table says less than it takes, or more, whatever the length of its pages: that is
    // where its layers begin.
    for page_log in 7..=16 {
        let settings = TieredSettings { page_bytes: 1 << page_log, ..TieredSettings::tiny() };
        let needed = bytes_needed(&settings);
        let made = |bytes| {
            let region = Region::new(Image::<Std>::new(0, bytes));
            create::<Tiered, _>(region, &Opening::default(), &settings, &Inline).map(drop)
        };
        made(needed).unwrap();
        assert!(made(needed - WORD).unwrap_err().is_full(), "{page_log}");
    }
}

#[test]
fn a_write_counts_for_the_layer_that_it_goes_to() {
    // Fails if a write is not counted, or as one of another layer: how skewed writes are is read
    // from these figures.
    for (number, settings) in variants().into_iter().enumerate() {
        let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
        let (table, words) = (of_words(&measured), measured.words());
        table.grow_at.store(u64::MAX, Ordering::Relaxed);
        let (mut random, mut counts, mut removed_below) = (Random::new(3), [0; 2], 0);
        for _ in 0..1500 {
            let (key, removes) = (random.below(200), random.once_in(4));
            let before = copies(table, table.hasher.word(key));
            if !removes {
                words.put_word(key, random.next()).unwrap();
            } else if !words.remove_word(key).unwrap() {
                continue;
            }
            let after = copies(table, table.hasher.word(key));
            let rank = after.first().unwrap_or_else(|| &before[0]).rank;
            counts[usize::from(rank > 0)] += 1;
            removed_below += u64::from(removes && rank > 0);
        }
        let counted = ["top_writes", "lower_writes"].map(|name| own(&measured.table, name));
        assert_eq!(counted, counts, "{number}");
        assert!(removed_below > 20 && own(&measured.table, "overflowed") > 0, "{number}");
    }
}

#[test]
fn a_table_says_what_it_takes() {
    // Fails if a part is left out of what a table takes of its medium or of DRAM.
    for fingerprints in 0..=2 {
        for form in [Form::WORDS, Form::Variable] {
            let settings = TieredSettings { top_pages: 8, fingerprints, ..of_the_paper() };
            let measured = Measured::<Tiered>::new(form, &settings, MEMORY).unwrap();
            for key in 0..100u64 {
                assert!(measured.table.insert(&key.to_le_bytes(), &[1; 8]).unwrap());
            }
            let stats = measured.table.stats().unwrap();
            let [own_bytes, groups, heads, heap] = match &measured.table {
                TieredTable::Words(table) => dram_of(table),
                TieredTable::Bytes(table) => dram_of(table),
            };
            assert_eq!(stats.dram_bytes, own_bytes + groups + heads + heap);
            // Eight pages of 32 buckets, and twice as many below: a word for each line.
            let least = [0, 3 * 512 * WORD, 512 * WORD][fingerprints as usize];
            assert!(groups >= 8 * LINE && (least..=least + 2 * LINE).contains(&heads), "{heads}");
            assert_eq!(heap > 0, form == Form::Variable);
            let layers = 3 * 8 * settings.page_bytes;
            let pages = if heap > 0 { settings.heap_page_bytes } else { 0 };
            assert_eq!(stats.used_bytes, pool::DATA.byte() + layers + pages);
            assert_eq!(own(&measured.table, "buckets"), layers / layout::BUCKET_BYTES);
        }
    }
}

/// Returns what the parts of a table take in DRAM: itself, its groups, its fingerprints, its heap.
fn dram_of<C: PairCodec>(table: &Open<Image, C>) -> [u64; 4] {
    let heap = table.heap.usage().unwrap().dram_bytes;
    let groups = table.groups.dram_bytes();
    [size_of_val(table) as u64, groups, table.fingerprints.dram_bytes(), heap]
}

#[test]
fn the_estimate_follows_the_items() {
    // Fails if what groups have counted is reported twice or never, or only when it grows: a table
    // grows too early or too late then.
    for ratio_log in [1, 6] {
        let settings = TieredSettings { top_pages: 2, ratio_log, ..two_layers() };
        let measured = Measured::<Tiered>::new(Form::WORDS, &settings, MEMORY).unwrap();
        let (table, words) = (of_words(&measured), measured.words());
        table.grow_at.store(u64::MAX, Ordering::Relaxed);
        let groups = own(&measured.table, "groups");
        // A part of a group that is lost in the table, and a few dozen pairs at most.
        let most = if ratio_log == 1 { 12 } else { 64 };
        let follows = || {
            let (items, estimate) = (table.len(), table.estimated_items());
            assert!(items.abs_diff(estimate) < groups * most, "{items}, not {estimate}");
        };
        for _ in 0..3 {
            (0..500).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
            follows();
            (0..500).for_each(|key| assert!(words.remove_word(key).unwrap()));
            follows();
        }
        table.correct_estimate(-1000);
        assert_eq!(table.estimated_items(), 0, "for a moment it may be below zero");
    }
}
