//! What a check of a sound table counts.

use everhash_index::{Inline, Opening, Table, create, open};
use everhash_pmem::{HeapUsage, Image, Media, Region, Std};

use super::damage::pair;
use crate::turbo::{Turbo, TurboSettings, TurboTable};

fn heap_usage<M: Media>(table: &TurboTable<M>) -> HeapUsage {
    match table {
        TurboTable::Words(inner) => inner.heap.usage().unwrap(),
        TurboTable::Bytes(inner) => inner.heap.usage().unwrap(),
    }
}

#[test]
fn a_check_reaches_all_that_is_in_use_and_nothing_else() {
    // Fails if a check leaves out a shard or a record, of which it does not know then that it lies
    // in one place only; or if the table has space in use to which nothing leads.
    for form in super::FORMS {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form, ..Opening::default() };
        // In pages of that length every record is a part of one.
        let settings = TurboSettings { page_bytes: 4096, ..TurboSettings::tiny() };
        let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        let holds_true = |table: &TurboTable<Image>| {
            let heap = heap_usage(table);
            let free_in_pages = heap.pages * settings.page_bytes - heap.record_bytes;
            let reached = table.check().unwrap().reachable_bytes;
            assert_eq!(table.stats().unwrap().used_bytes, reached + free_in_pages, "{form}");
            reached
        };
        let empty = holds_true(&table);
        for (key, value) in (0..200).map(|number| pair(form, number)) {
            table.put(&key, &value).unwrap();
        }
        let full = holds_true(&table);
        assert!(full > empty + 200 * 16, "{form}: {empty} bytes, then {full}");
        for (key, _) in (0..80).map(|number| pair(form, number)) {
            assert!(table.remove(&key).unwrap());
        }
        holds_true(&table);
        drop(table);
        holds_true(&open::<Turbo, _>(region, opening.boot, &Inline).unwrap());
    }
}
