//! Who goes on while another thread flushes a collecting log, splits a segment, or was held up
//! between its look at a log and its append (ElimDA 3.3, 3.5). A thread is held up by a lock that
//! the test has.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::time::Instant;

use everhash_index::{Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::measured::{MEMORY, Measured};

use crate::common::slot_codec::Words;
use crate::elimda::state::{ElimDa as Inner, Need};
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// How long a thread may take for what nobody holds up: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(20);

fn of_words(measured: &Measured<ElimDa>) -> &Inner<Image, Words> {
    let ElimDaTable::Words(inner) = &measured.table else { panic!("8/8 has words") };
    inner
}

/// Waits until something holds; returns whether it does in time.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A table with durable caches, two collectors and one spare log. The logs have three slots.
fn collecting() -> Measured<ElimDa> {
    let settings = ElimDaSettings::tiny();
    Measured::<ElimDa>::new(Form::WORDS, &settings, Model::Eadr.guarantees()).unwrap()
}

/// Keys of a collector whose pairs go to a bucket, from `first` on.
fn keys_of(
    table: &Inner<Image, Words>,
    first: u64,
    collector: u64,
    bucket: u64,
) -> impl Iterator<Item = u64> {
    (first..).filter(move |key| {
        let (hash, geometry) = (table.hasher.word(*key), &table.geometry);
        geometry.collector_of(hash) == collector && geometry.bucket_of(hash) == bucket
    })
}

#[test]
fn inserts_go_on_while_a_full_log_is_flushed() {
    // Fails if an insert waits for the flush of the full log instead of taking a slot of the one
    // that took its place; or if a pair is not found while it is in the log that is flushed, moves,
    // or has moved.
    let measured = collecting();
    let (table, words) = (of_words(&measured), measured.words());
    let own = |first, bucket| keys_of(table, first, 0, bucket).take(2).collect::<Vec<_>>();
    let [near, far, later] = [own(0, 0), own(0, 1), own(1 << 20, 0)];
    // The second item of the log waits for its bucket, and the first one has moved by then.
    let full = [near[0], far[0], near[1]];
    full.iter().for_each(|key| assert!(words.insert_word(*key, !key).unwrap()));
    let collectors = table.collectors.as_ref().unwrap();
    let pm = table.pool.access();
    let held = table.lock(&pm, table.hasher.word(far[0])).unwrap();
    let (told, heard) = mpsc::channel();
    let (in_flight, gone_on) = std::thread::scope(|scope| {
        scope.spawn(|| assert!(words.insert_word(far[1], !far[1]).unwrap()));
        let in_flight = comes_true(|| collectors.logs(0).in_flight.is_some());
        scope.spawn(move || {
            for key in later.iter().copied() {
                assert!(words.insert_word(key, !key).unwrap());
            }
            for key in full.iter().chain(&later) {
                assert_eq!(words.get_word(*key).unwrap(), Some(!key), "{key}");
                assert!(!words.insert_word(*key, 0).unwrap(), "{key} is there");
            }
            told.send(collectors.logs(0).in_flight.is_some()).unwrap();
        });
        let gone_on = heard.recv_timeout(PATIENCE);
        drop(held);
        (in_flight, gone_on)
    });
    assert!(in_flight, "the full log was never swapped");
    assert_eq!(gone_on, Ok(true), "nobody went on, or the flush had come to its end before");
    assert_eq!(collectors.logs(0).in_flight, None);
    assert_eq!((table.len(), measured.table.check().unwrap().items), (6, 6));
}

#[test]
fn a_write_that_finds_its_log_full_again_and_again_goes_on() {
    // Fails if a flush counts as a round of a write: other threads may fill the log before the
    // write gets a slot of it, as often as they like, and it would be refused though there is room.
    let measured = collecting();
    let table = of_words(&measured);
    let mut times = 0;
    let written = table.write_to(&table.pool.access(), table.hasher.word(7), |_| {
        times += 1;
        Ok(if times <= 1000 { Err(Need::Log) } else { Ok(()) })
    });
    assert!(written.is_ok(), "{written:?} after {times} times");
}

#[test]
fn an_append_that_was_held_up_does_not_go_to_a_log_that_serves_other_keys_by_now() {
    // Fails if an exchange succeeds that was prepared before the log was flushed, became a spare
    // one and was given to another collector: the pair would lie where no search looks for it.
    // The log holds as many items then as when the append looked at it.
    for items in 0..3 {
        let measured = collecting();
        let (table, words) = (of_words(&measured), measured.words());
        let keys = |collector| keys_of(table, 0, collector, 0).take(5).collect::<Vec<_>>();
        let [mine, others] = [keys(0), keys(1)];
        let pm = table.pool.access();
        let collectors = table.collectors.as_ref().unwrap();
        let insert = |key: &u64| assert!(words.insert_word(*key, !key).unwrap());
        mine[..items].iter().for_each(insert);
        let late = mine[4];
        let seen = table.look_at_log(&pm, table.hasher.word(late)).unwrap().unwrap();
        mine[items..4].iter().for_each(insert);
        others[..3].iter().for_each(insert);
        table.flush(&pm, 1).unwrap();
        assert_eq!(collectors.at(collectors.logs(1).current), seen.at, "it serves the others");
        others[3..][..items.min(2)].iter().for_each(insert);
        let held = items.min(2) as u64;
        let now = table.look_at_log(&pm, table.hasher.word(others[0])).unwrap().unwrap();
        assert_eq!((now.at, now.control.reserved), (seen.at, held));
        for append in [table.collect(&pm, &seen), table.collect_beside(&pm, &seen)] {
            assert!(matches!(append, Ok(Err(Need::Append))), "with {items} items");
        }
        insert(&late);
        for key in mine.iter().chain(&others[..3 + held as usize]) {
            assert_eq!(words.get_word(*key).unwrap(), Some(!key), "{key}");
        }
        let count = 5 + 3 + held;
        assert_eq!((table.len(), measured.table.check().unwrap().items), (count, count));
    }
}

#[test]
fn a_split_holds_up_the_writers_of_its_segment_and_nobody_else() {
    // Fails if a split takes a lock that writers of other segments or readers wait for. It has all
    // locks of its own segment here, and waits for the segment table, which the test holds.
    let settings = ElimDaSettings { initial_segments: 2, ..ElimDaSettings::tiny() };
    let measured = Measured::<ElimDa>::new(Form::WORDS, &settings, MEMORY).unwrap();
    let (table, words) = (of_words(&measured), measured.words());
    let in_half =
        |upper: bool| (0u64..).filter(move |key| (table.hasher.word(*key) >> 63 == 1) == upper);
    let other: Vec<u64> = in_half(true).take(16).collect();
    let (early, late) = other.split_at(8);
    early.iter().for_each(|key| assert!(words.insert_word(*key, !key).unwrap()));
    let segment = table.locate(0).segment;
    let splits = || segment.locks().all(|lock| lock.is_held());
    let (added, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stuck, gone_on, at_work) = std::thread::scope(|scope| {
        let held = table.segment_table.lock().unwrap();
        scope.spawn(|| {
            for key in in_half(false).take(60) {
                assert!(words.insert_word(key, !key).unwrap());
                added.fetch_add(1, Ordering::Release);
            }
        });
        let stuck = comes_true(splits);
        scope.spawn(|| {
            let done = added.load(Ordering::Acquire);
            for key in in_half(false).take(done as usize) {
                assert_eq!(words.get_word(key).unwrap(), Some(!key), "{key}");
            }
            assert_eq!(words.get_word(in_half(false).nth(70).unwrap()).unwrap(), None);
            late.iter().for_each(|key| assert!(words.insert_word(*key, !key).unwrap()));
            for key in early {
                assert!(words.update_word(*key, 5).unwrap() && words.remove_word(*key).unwrap());
            }
            late.iter().for_each(|key| assert_eq!(words.get_word(*key).unwrap(), Some(!key)));
            told.store(1 + done, Ordering::Release);
        });
        let gone_on = comes_true(|| told.load(Ordering::Acquire) != 0);
        let at_work = splits() && added.load(Ordering::Acquire) + 1 == told.load(Ordering::Acquire);
        drop(held);
        (stuck, gone_on, at_work)
    });
    assert!(stuck, "the segment never began to split");
    assert!(gone_on, "the other segment, or a reader, waited for the split");
    assert!(at_work, "the split, or a write to its segment, went on");
    assert!(table.segments() > 2);
    let count = 60 + late.len() as u64;
    assert_eq!((table.len(), measured.table.check().unwrap().items), (count, count));
}
