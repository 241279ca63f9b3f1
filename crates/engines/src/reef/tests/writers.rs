//! What a write does beside storing its object: it prepares memory, and collects.

use core::time::Duration;

use everhash_index::{Form, Inline, Opening, Table, WordTable, create, open};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Image, Lock, Region, Std, WORD};
use everhash_testkit::session::Session;

use super::settings::Immediate;
use crate::reef::collection::STEP;
use crate::reef::{Reef, ReefSettings, ReefTable};

#[test]
fn what_is_stored_beside_memory_that_is_prepared_stays() {
    // Fails if a writer stores where another one is writing zeros, or if a segment ends meanwhile
    // and its room gets another use.
    const THREADS: u64 = 4;
    const PAIRS: u64 = 20_000;
    let path = std::env::temp_dir().join(format!("reef-prepared-{}", std::process::id()));
    let options = FileOptions { durability: FileDurability::Process, ..FileOptions::default() };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    // One stream, whose memory is prepared in pieces of ten pairs.
    let settings = ReefSettings { streams: 1, segment_bytes: 16 << 10, ..ReefSettings::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    region.media().publish().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                for round in 0..3 {
                    for key in (thread..THREADS * PAIRS).step_by(THREADS as usize) {
                        table.put_word(key, key ^ round).unwrap();
                        assert_eq!(table.get_word(key).unwrap(), Some(key ^ round), "{key}");
                    }
                }
            });
        }
    });
    drop((table, region));
    let region = Region::new(FileMedium::open(&path, &options).unwrap());
    let table = open::<Reef, _>(region, opening.boot, &Inline).unwrap();
    for key in 0..THREADS * PAIRS {
        assert_eq!(table.get_word(key).unwrap(), Some(key ^ 2), "{key}");
    }
    drop(table);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_write_collects_no_more_than_a_step() {
    // Fails if a write pays at once for what was written while there was nothing to collect.
    const PAIRS: u64 = 50_000;
    let region = Region::new(Image::<Std>::new(0, 64 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ReefSettings { segment_bytes: 64 << 10, ..ReefSettings::default() };
    let table = create::<Reef, _>(region, &opening, &settings, &Inline).unwrap();
    let moved = || -> u64 { table.streams.iter().map(|it| it.0.lock().unwrap().moved).sum() };
    let (mut before, mut most) = (0, 0);
    for number in 0..6 * PAIRS {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        table.put_word(key % PAIRS, number).unwrap();
        let now = moved();
        most = most.max(now - before);
        before = now;
    }
    assert!(before > PAIRS * 24, "hardly anything was collected: {before} bytes");
    assert!(most <= (STEP + 64) * WORD, "{most} bytes by one write");
}

/// Lets a thread write while the memory behind the newest segments is being prepared; returns
/// whether it is done before that is.
fn is_done_beside_preparing(write: fn(&ReefTable<Image>)) -> bool {
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let table = create::<Reef, _>(region, &opening, &ReefSettings::tiny(), &Inline).unwrap();
    (0..100).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let prepares = |is_preparing| {
        for stream in &table.streams {
            let mut stream = stream.0.lock().unwrap();
            let open = stream.open.as_mut().unwrap();
            (open.is_preparing, open.renewed) = (is_preparing, open.fill);
        }
    };
    prepares(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&table));
        // Without the wait for the memory it is done by then.
        for _ in 0..50 {
            if writer.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_done = writer.is_finished();
        prepares(false);
        writer.join().unwrap();
        is_done
    })
}

#[test]
fn batches_and_clears_wait_for_memory_that_is_prepared() {
    // Fails if they store, or end the segment, where another thread is writing zeros.
    let batch = |table: &ReefTable<Image>| {
        let key = 7u64.to_le_bytes();
        table.atomic().unwrap().write_all(&[(&key, Some(&key))]).unwrap();
    };
    assert!(!is_done_beside_preparing(batch));
    assert!(!is_done_beside_preparing(|table| table.clear().unwrap()));
}

#[test]
fn an_immediate_write_leaves_nothing_to_flush() {
    // Fails if it is not noted as durable: each later one would flush all of the segment again, and
    // a table at rest would end epochs.
    let session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    let is_durable = || {
        let streams = table.streams.iter().map(|stream| stream.0.lock().unwrap());
        streams.into_iter().all(|stream| stream.position() == stream.durable)
    };
    for key in 0..50 {
        assert!(table.insert_word(key, key).unwrap());
        assert!(is_durable(), "behind pair {key}");
    }
    table.clear().unwrap();
    assert!(is_durable(), "behind a clear");
}

#[test]
fn a_clear_of_nothing_writes_nothing() {
    // Fails if each of them begins segments.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    let last = || [0, 1].map(|stream: usize| table.streams[stream].0.lock().unwrap().last);
    assert!(table.insert_word(1, 1).unwrap() && table.remove_word(1).unwrap());
    let before = last();
    table.clear().unwrap();
    assert_eq!(last(), before);
}

#[test]
fn a_write_that_helps_pays_for_what_was_written_since_the_last_one() {
    // Fails if each write pays for all before it, again and again.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..20).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let owed = || {
        let stream = table.streams[0].0.lock().unwrap();
        stream.written() - stream.paid
    };
    assert!(owed() > 0);
    table.after_write(0).unwrap();
    assert_eq!(owed(), 0);
}
