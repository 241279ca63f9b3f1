//! Slots of the backup log that are reserved and hold nothing yet: who waits for one. And who takes
//! a block when the medium is full.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::mpsc;

use everhash_index::{Change, Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Image, LINE, Lock};
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

#[test]
fn on_a_full_medium_a_lane_gets_the_blocks_that_another_one_has_no_use_for() {
    // Fails if a lane that has no block left is refused one while another has some that are free;
    // or if it takes the last one away, which the other needs to go on.
    let settings = ElimDaSettings { collecting_logs: 0, ..ElimDaSettings::tiny() };
    let medium = Image::new(0, 64 << 10).with_guarantees(Model::Adr.guarantees());
    let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let table = of_words(&session);
    let pm = &table.pool.access();
    let slots_of = |lane| core::iter::from_fn(move || table.reserve(pm, lane).unwrap());
    // The medium has no room left when these are reserved, and then nobody needs them.
    let all = slots_of(0).collect::<Vec<_>>().len() as u64;
    // The last one again, and the first of the next block: all the others are free then.
    let own: Vec<_> = slots_of(0).take(2).collect();
    let left = slots_of(1).collect::<Vec<_>>().len() as u64;
    println!("{all} slots of one lane, then {left} of the other one");
    assert_eq!(own.len(), 2);
    let kept = 4 * table.geometry.block_slots();
    assert!(all > 10 * kept && left + kept > all, "{left} of {all}");
    let blocks = table.lanes[0].lock().unwrap().blocks();
    assert_eq!(blocks.1, 1, "the other lane keeps one");
}

#[test]
fn a_block_that_another_lane_had_holds_nothing_of_it() {
    // Fails if its lines are taken for old ones of the lane that gets it, whose blocks have lower
    // numbers: the next open finds lines of blocks to come, and refuses the pool.
    let settings = ElimDaSettings { collecting_logs: 0, ..ElimDaSettings::tiny() };
    let medium = Image::new(0, 64 << 10).with_guarantees(Model::Adr.guarantees());
    let mut session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let table = of_words(&session);
    let pm = &table.pool.access();
    let key = keys_of(table, 0).next().unwrap();
    let mut orders = Vec::new();
    while let Some(slot) = table.reserve(pm, 0).unwrap() {
        orders.push(table.fill(pm, slot, &[key, 1, 0, 0]).unwrap().order);
    }
    for order in &orders {
        table.end_in_log(pm, 0, *order).unwrap();
    }
    table.release(0, orders.iter().copied()).unwrap();
    // All but the last block of the lane are free by the second one of these.
    drop([0, 1].map(|_| table.reserve(pm, 0).unwrap().unwrap()));
    let slots_of = |lane| core::iter::from_fn(move || table.reserve(pm, lane).unwrap());
    let taken = slots_of(1).collect::<Vec<_>>().len();
    assert!(taken * 2 > orders.len(), "{taken} of {}", orders.len());
    session.kill().unwrap();
    assert_eq!((session.table().len().unwrap(), session.table().check().unwrap().items), (0, 0));
}
