//! What a write does beside storing its object: it prepares memory, and collects.

use everhash_index::{Form, Inline, Opening, WordTable, create, open};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Image, Lock, Region, Std, WORD};

use crate::reef::collection::STEP;
use crate::reef::{Reef, ReefSettings};

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
