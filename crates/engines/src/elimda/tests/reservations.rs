//! Slots of the backup log that are reserved and hold nothing yet: who waits for one.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::mpsc;

use everhash_index::{Change, Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Image, LINE};
use everhash_testkit::session::Session;

use crate::common::slot_codec::Words;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// How long an insert must stand still to count as one that waits.
const STILL: Duration = Duration::from_millis(300);

/// A table on a medium on which nothing is free: it has what it took in hand when it was opened.
fn on_a_full_medium(model: Model, settings: &ElimDaSettings) -> Session<ElimDa> {
    let medium = Image::new(0, 64 << 10).with_guarantees(model.guarantees());
    let session = Session::<ElimDa>::create(medium, Form::WORDS, settings).unwrap();
    let space = &of_words(&session).space;
    while space.take(LINE, LINE).is_ok() {}
    session
}

fn of_words(session: &Session<ElimDa>) -> &Inner<Image, Words> {
    let ElimDaTable::Words(inner) = session.table() else { unreachable!("these are words") };
    inner
}

/// The keys of a bucket.
fn keys_of(table: &Inner<Image, Words>, bucket: u64) -> impl Iterator<Item = u64> {
    (0u64..).filter(move |key| table.geometry.bucket_of(table.hasher.word(*key)) == bucket)
}

/// Waits until a counter stands still.
fn stands_still(counter: &AtomicU64) -> u64 {
    loop {
        let before = counter.load(Ordering::Acquire);
        std::thread::sleep(STILL);
        if counter.load(Ordering::Acquire) == before {
            return before;
        }
    }
}

#[test]
fn an_insert_waits_for_a_slot_that_a_modify_has_reserved() {
    // Fails if an insert is refused because another thread, which decides what becomes of another
    // key, has reserved a slot of the block that would be used again: there is room when that is
    // decided. With the File model each insert reserves its slot, too.
    let settings = ElimDaSettings { collecting_logs: 0, lanes: 1, ..ElimDaSettings::tiny() };
    for model in [Model::Adr, Model::File] {
        let session = on_a_full_medium(model, &settings);
        let (table, inner) = (session.table(), of_words(&session));
        let modified = keys_of(inner, 0).next().unwrap().to_le_bytes();
        let most = 2 * inner.geometry.block_slots() + 2;
        let keys: Vec<u64> = keys_of(inner, 1).take(most as usize).collect();
        let added = AtomicU64::new(0);
        let (told, heard) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (before, outcome) = std::thread::scope(|scope| {
            scope.spawn(move || {
                let decide = &mut |_: Option<&[u8]>| {
                    told.send(()).unwrap();
                    ended.recv().unwrap();
                    Change::Keep
                };
                table.modify(&modified, decide).unwrap();
            });
            heard.recv().unwrap();
            let inserts = scope.spawn(|| {
                keys.iter().try_for_each(|key| {
                    assert!(table.insert(&key.to_le_bytes(), &[1; 8])?);
                    added.fetch_add(1, Ordering::Release);
                    Ok::<(), everhash_index::Error>(())
                })
            });
            let before = stands_still(&added);
            end.send(()).unwrap();
            (before, inserts.join().unwrap())
        });
        println!("{model}: {before} of {most} inserts, then {outcome:?}");
        assert!(before < most, "{model}: the slot that was reserved was in nobody's way");
        assert!(outcome.is_ok(), "{model}: refused after {before} of {most}: {outcome:?}");
        assert_eq!((inner.len(), table.check().unwrap().items), (most, most), "{model}");
    }
}
