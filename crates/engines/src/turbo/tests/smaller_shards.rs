//! Shards that become smaller where a medium had no room for another one to grow.

use core::time::Duration;
use std::collections::BTreeMap;

use everhash_index::{Cursor, Form, Inline, Opening, Table, create, open};
use everhash_pmem::{Image, Region, Std};

use super::damage::pair;
use crate::turbo::{Turbo, TurboSettings, TurboTable};

fn table(most_bytes: u64, settings: &TurboSettings, form: Form) -> TurboTable<Image> {
    let region = Region::new(Image::<Std>::new(0, most_bytes));
    let opening = Opening { form, ..Opening::default() };
    create::<Turbo, _>(region, &opening, settings, &Inline).unwrap()
}

fn opened_again(table: TurboTable<Image>) -> TurboTable<Image> {
    let region = match &table {
        TurboTable::Words(inner) => inner.pool.region().clone(),
        TurboTable::Bytes(inner) => inner.pool.region().clone(),
    };
    Box::new(table).close().unwrap();
    open::<Turbo, _>(region, Opening::default().boot, &Inline).unwrap()
}

fn maintain(table: &dyn Table) {
    while table.maintain(Duration::ZERO, 1000).unwrap().more {}
}

fn buckets(table: &dyn Table) -> u64 {
    let own = table.stats().unwrap().own;
    own.iter().find(|(name, _)| *name == "buckets").expect("it is counted").1
}

#[test]
fn a_full_table_takes_as_many_other_pairs_after_each_emptying() {
    // Fails if a shard that had to be large once stays so, for pairs that are gone: with other keys
    // other shards have to grow, and there is no room for that. So it was: after ten fillings a
    // sixth of the room was gone. A process that finds the medium full need not be the one that
    // empties the table.
    let settings = TurboSettings {
        shards: 64,
        buckets_per_shard: 1,
        page_bytes: 4096,
        ..TurboSettings::default()
    };
    for form in super::FORMS {
        let mut table = table(1 << 20, &settings, form);
        let mut next = 0;
        let mut counts = Vec::new();
        for round in 0..12 {
            let (mut stored, mut refused_in_a_row) = (Vec::new(), 0);
            while refused_in_a_row < 300 {
                let (key, value) = pair(form, next);
                next += 1;
                match table.put(&key, &value) {
                    Ok(_) => {
                        refused_in_a_row = 0;
                        stored.push(key);
                    }
                    Err(error) if error.is_full() => refused_in_a_row += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            if round % 2 == 1 {
                table = opened_again(table);
            }
            for (count, key) in stored.iter().enumerate() {
                assert!(table.remove(key).unwrap(), "{form}, round {round}");
                if count % 50 == 0 {
                    maintain(&table);
                }
            }
            maintain(&table);
            assert_eq!(table.check().unwrap().items, 0);
            counts.push(stored.len());
        }
        println!("{form}: {counts:?}");
        let least = counts.iter().min().unwrap();
        assert!(least * 100 >= counts[0] * 95, "{form}: {counts:?}");
    }
}

#[test]
fn a_shard_becomes_smaller_only_where_another_one_found_no_room_to_grow() {
    // Fails if a table that has room gives up buckets which it will want again; or if one without
    // keeps what its pairs do not need, becomes smaller than it was made, or so small that it is
    // nearly full.
    let settings = TurboSettings { shards: 2, buckets_per_shard: 4, ..TurboSettings::default() };
    for (most_bytes, is_short) in [(16 << 20, false), (1 << 20, true)] {
        let table = table(most_bytes, &settings, Form::WORDS);
        let words = table.words().unwrap();
        // A shard of 2,048 buckets would have to lie beside one of 1,024.
        let full = (0..).find(|key| *key == 25_000 || words.insert_word(*key, !key).is_err());
        let full = full.unwrap();
        assert_eq!(full < 25_000, is_short, "{full}");
        let largest = buckets(&table);
        for kept in [full / 2, 500, 0] {
            (kept..full).for_each(|key| _ = words.remove_word(key).unwrap());
            maintain(&table);
            let buckets = buckets(&table);
            let (slots, least) = (buckets * 14, if is_short { 2 * 4 } else { largest });
            assert!(buckets >= least && buckets <= largest, "{kept} pairs in {buckets} buckets");
            assert!(kept * 100 <= slots * 55, "{kept} pairs in {buckets} buckets");
            if is_short && kept < full / 2 {
                assert!(buckets * 4 <= largest, "{kept} pairs in {buckets} of {largest} buckets");
            }
            (0..kept).for_each(|key| assert_eq!(words.get_word(key).unwrap(), Some(!key)));
            assert_eq!(table.check().unwrap().items, kept);
        }
    }
}

#[test]
fn a_scan_shows_each_pair_once_while_its_shard_becomes_smaller() {
    // Fails if a scan that stands between two homes shows the first one again, or leaves the second
    // one out, when both have become one.
    let settings = TurboSettings { shards: 1, buckets_per_shard: 1, ..TurboSettings::default() };
    for form in super::FORMS {
        // The first call ends behind another home each time.
        for kept in (100..200).step_by(20) {
            let table = table(1 << 20, &settings, form);
            for (key, value) in (0..3000).map(|number| pair(form, number)) {
                assert!(table.insert(&key, &value).unwrap());
            }
            let table = opened_again(table);
            (kept..3000).for_each(|number| assert!(table.remove(&pair(form, number).0).unwrap()));
            let before = buckets(&table);
            let mut visits = BTreeMap::new();
            let mut visit = |key: &[u8], _: &[u8]| *visits.entry(key.to_vec()).or_insert(0) += 1;
            let mut next = table.scan(Cursor::default(), &mut visit).unwrap();
            maintain(&table);
            assert!(buckets(&table) * 4 <= before, "{before}");
            while let Some(cursor) = next {
                next = table.scan(cursor, &mut visit).unwrap();
            }
            let expected = (0..kept).map(|number| (pair(form, number).0, 1));
            assert_eq!(visits, expected.collect(), "{form}, {kept} pairs");
        }
    }
}
