//! Which segment is collected, and when: the choice by itself, where other tests see only that a
//! file stays short.

use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhash_index::{Error, Form, Inline, Opening, Table, WordTable, create};
use everhash_pmem::media::file::system::{Call, System};
use everhash_pmem::{FileDurability, FileMedium, FileOptions, Image, Lock, Region};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;

use super::full::take_all;
use crate::reef::collection::{AHEAD, AT_REST, Allowance, Collected, NOTHING};
use crate::reef::reserve::Purpose;
use crate::reef::stream::Victim;
use crate::reef::{Reef, ReefSettings, ReefTable};

/// One stream, and units of 64 words: of twenty pairs, whose segment has two.
const ONE_STREAM: ReefSettings = ReefSettings {
    streams: 1,
    shards: 1,
    buckets: 64,
    segment_bytes: 32 << 10,
    flush_bytes: 1 << 20,
    ..ReefSettings::tiny()
};

/// Returns the sequence of the segment that is chosen in the first stream.
fn chosen(table: &ReefTable<Image>, allowance: Allowance) -> Option<u64> {
    let stream = table.streams[0].0.lock().unwrap();
    table.victim(&stream, allowance).map(|victim| victim.sequence)
}

#[test]
fn a_segment_that_was_found_damaged_is_never_chosen_again() {
    // Fails if collecting comes back to one because of its garbage or its tombstones: each try is
    // in vain, and no other segment gets its turn.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..300).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    (0..250).for_each(|key| assert!(table.remove_word(key).unwrap()));
    let mut damaged = 0;
    for stream in &table.streams {
        let mut stream = stream.0.lock().unwrap();
        for allowance in [AT_REST, NOTHING] {
            while let Some(victim) = table.victim(&stream, allowance) {
                let segment = stream.sealed.get_mut(&victim.sequence).unwrap();
                assert!(!segment.is_damaged, "{allowance:?}: {victim:?} was chosen before");
                segment.is_damaged = true;
                damaged += 1;
            }
        }
    }
    assert!(damaged >= 4, "{damaged}");
}

/// Inserts pairs, replaces a quarter of them, and collects what is collected beside writers: what
/// is left is for a table at rest.
fn leave_for_rest(table: &ReefTable<Image>, pairs: u64) {
    (0..pairs).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    (0..pairs).step_by(4).for_each(|key| assert!(table.put_word(key, !key).unwrap()));
    while table.collect_stream(0, AHEAD, u64::MAX).unwrap() != Collected::Nothing {}
}

#[test]
fn what_writers_leave_is_collected_at_rest_a_step_at_a_time() {
    // Fails if a look of upkeep beside writers, which found too little garbage, counts as one at
    // rest, or if upkeep with a small budget says that it has nothing more to do.
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &ONE_STREAM).unwrap();
    let table = session.table();
    leave_for_rest(table, 20_000);
    let all = || table.collections.load(Ordering::Relaxed);
    let before = all();
    assert!(chosen(table, AHEAD).is_none() && chosen(table, AT_REST).is_some());
    // The first look is no rest.
    table.maintain(Duration::from_secs(100), 1000).unwrap();
    assert_eq!(all(), before);
    assert!(table.maintain(Duration::from_secs(200), 1).unwrap().more, "a step is not all");
    let mut now = Duration::from_secs(200);
    for _ in 0..1000 {
        now += Duration::from_secs(10);
        table.maintain(now, 1000).unwrap();
    }
    assert!(all() > before && chosen(table, AT_REST).is_none(), "{} segments", all() - before);
}

#[test]
fn writers_collect_only_what_upkeep_does_not() {
    // Fails if writers collect although upkeep keeps up, each a step of some microseconds; or if
    // nobody collects where there is no upkeep.
    for has_upkeep in [true, false] {
        let medium = Image::new(0, 8 << 20);
        let short = ReefSettings { segment_bytes: 8 << 10, ..ONE_STREAM };
        let session = Session::<Reef>::create(medium, Form::WORDS, &short).unwrap();
        let table = session.table();
        (0..20_000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
        let (mut random, mut helps) = (Random::new(1), 0);
        for number in 0..60_000 {
            assert!(table.put_word(random.below(20_000), number).unwrap());
            helps += u64::from(table.streams[0].0.lock().unwrap().is_behind);
            if has_upkeep && number.is_multiple_of(50) {
                // Too soon for rest.
                table.maintain(Duration::from_micros(number), 10_000).unwrap();
            }
        }
        let collections = table.collections.load(Ordering::Relaxed);
        assert!(collections > 20, "{collections} segments, upkeep {has_upkeep}");
        assert_eq!(helps == 0, has_upkeep, "{helps} writes, upkeep {has_upkeep}");
    }
}

#[test]
fn room_that_waits_for_an_epoch_gets_one_although_nothing_is_written() {
    // Fails if an emptied segment of a table at rest stays in use until somebody writes; or if
    // nobody looks again then, although the tombstones of the next segment are garbage now.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..100).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.sync().unwrap();
    let mut now = Duration::from_secs(1);
    table.maintain(now, 1).unwrap();
    {
        let pm = session.region().access();
        let mut stream = table.streams[0].0.lock().unwrap();
        let oldest = *stream.sealed.first_key_value().unwrap().0;
        table.mark_empty(&pm, &mut stream, oldest).unwrap();
        stream.tidied = Some(stream.written());
    }
    let settled = || {
        let stream = table.streams[0].0.lock().unwrap();
        stream.waiting() == 0 && stream.tidied.is_none()
    };
    assert!(!settled());
    table.age_epoch(now, Duration::from_secs(1)).unwrap();
    now += Duration::from_secs(10);
    table.age_epoch(now, Duration::from_secs(1)).unwrap();
    assert!(settled(), "what was emptied still waits");
}

#[test]
fn the_unused_ends_of_segments_are_room_on_a_full_medium() {
    // Fails if a write is refused although only an epoch is missing for there to be room.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..20).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.sync().unwrap();
    let end = table.space.take(table.unit_bytes, table.unit_bytes).unwrap().span;
    table.used.fetch_add(end.bytes(), Ordering::Relaxed);
    table.streams[1].0.lock().unwrap().ends.push(end);
    assert!(table.make_room(Purpose::Add, 0).unwrap(), "an end waits");
    assert_eq!(table.streams[1].0.lock().unwrap().waiting(), 0);
    assert!(!table.make_room(Purpose::Add, 0).unwrap(), "there is nothing more");
}

/// A system whose syncs fail when they shall.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl System for Failing {
    fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
        match call == Call::Sync && self.0.load(Ordering::Relaxed) {
            true => Err(io::Error::other("no device")),
            false => run(),
        }
    }
}

#[test]
fn p09_a_sync_of_a_relaxed_file_that_fails_is_an_error_from_then_on() {
    // Fails if the one call that makes such a file durable may fail in silence.
    let path = std::env::temp_dir().join(format!("reef-relaxed-{}", std::process::id()));
    let system = Arc::new(Failing::default());
    let options = FileOptions {
        durability: FileDurability::Process,
        system: Arc::<Failing>::clone(&system),
        ..FileOptions::default()
    };
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let region = Region::new(FileMedium::create(&path, 1 << 16, &options).unwrap());
    let table = create::<Reef, _>(region.clone(), &opening, &ONE_STREAM, &Inline).unwrap();
    region.media().publish().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(table.insert_word(1, 1).unwrap());
    table.sync().unwrap();
    system.0.store(true, Ordering::Relaxed);
    assert!(table.insert_word(2, 2).unwrap());
    assert!(table.sync().is_err());
    system.0.store(false, Ordering::Relaxed);
    let after = table.insert_word(3, 3);
    assert!(matches!(after, Err(Error::Poisoned)), "{after:?}");
}

/// Returns a table of one stream whose writers end epochs at half of so many bytes.
fn one_stream(flush_bytes: u64) -> Session<Reef> {
    let settings = ReefSettings { flush_bytes, ..ONE_STREAM };
    Session::<Reef>::create(Image::new(0, 8 << 20), Form::WORDS, &settings).unwrap()
}

fn epoch(table: &ReefTable<Image>) -> u64 {
    table.epochs.lock().unwrap().number
}

#[test]
fn a_young_epoch_ends_for_what_is_pending_and_not_before() {
    // Fails if upkeep ends an epoch no earlier than writers would, who have to wait for it then; or
    // if a writer whose epoch another one has ended meanwhile ends one more.
    const FLUSH: u64 = 64 << 10;
    let session = one_stream(FLUSH);
    let (table, before) = (session.table(), epoch(session.table()));
    let pending = || table.streams[0].0.lock().unwrap().pending;
    let visit = || table.age_epoch(Duration::ZERO, Duration::MAX).unwrap();
    let mut keys = 0..;
    while 4 * pending() <= FLUSH {
        assert!(table.insert_word(keys.next().unwrap(), 1).unwrap());
        table.bound_pending(0).unwrap();
        assert_eq!(epoch(table), before, "{} bytes are pending", pending());
        if 4 * pending() <= FLUSH {
            visit();
            assert_eq!(epoch(table), before, "{} bytes are pending", pending());
        }
    }
    visit();
    assert_eq!((epoch(table), pending()), (before + 1, 0));
}

#[test]
fn a_young_epoch_ends_for_much_room_that_waits() {
    // Fails if room waits as long as a write may: the file grows meanwhile. Or if a little of it is
    // enough: each segment would cost a sync.
    let session = one_stream(1 << 20);
    let table = session.table();
    (0..1000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.sync().unwrap();
    assert!(table.insert_word(1000, 1).unwrap());
    let wait = |bytes| {
        let end = table.space.take(bytes, table.unit_bytes).unwrap().span;
        table.used.fetch_add(end.bytes(), Ordering::Relaxed);
        table.streams[0].0.lock().unwrap().ends.push(end);
        let before = epoch(table);
        table.age_epoch(Duration::ZERO, Duration::MAX).unwrap();
        epoch(table) - before
    };
    assert_eq!((wait(table.unit_bytes), wait(256 << 10)), (0, 1));
    assert_eq!(table.streams[0].0.lock().unwrap().waiting(), 0);
}

#[test]
fn what_is_written_behind_a_sync_is_young() {
    // Fails if its age is that of what the sync made durable: each sync would cost one more.
    let session = one_stream(1 << 20);
    let (table, age) = (session.table(), Duration::from_secs(5));
    let visit = |ms| {
        let before = epoch(table);
        table.age_epoch(Duration::from_millis(ms), age).unwrap();
        epoch(table) - before
    };
    assert!(table.insert_word(1, 1).unwrap());
    assert_eq!(visit(1000), 0);
    table.sync().unwrap();
    assert!(table.insert_word(2, 2).unwrap());
    assert_eq!((visit(6500), visit(11_400), visit(11_500)), (0, 0, 1));
}

#[test]
fn a_table_is_at_rest_a_second_after_the_last_write() {
    // Fails if a long interval puts off what is collected at rest, or if a short pause is one.
    let settings = ReefSettings { flush_interval_ms: 60_000, ..ONE_STREAM };
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    leave_for_rest(table, 5000);
    assert!(chosen(table, AT_REST).is_some());
    let collected = |ms| {
        let before = table.collections.load(Ordering::Relaxed);
        table.maintain(Duration::from_millis(ms), 1 << 20).unwrap();
        table.collections.load(Ordering::Relaxed) - before
    };
    assert_eq!((collected(5000), collected(5999)), (0, 0));
    assert!(collected(6000) > 0);
}

#[test]
fn a_sync_of_what_is_durable_ends_no_epoch() {
    // Fails if each sync of a table at rest is a commit record, and one of the medium.
    let session = one_stream(1 << 20);
    let table = session.table();
    assert!(table.insert_word(1, 1).unwrap());
    let before = epoch(table);
    (0..3).for_each(|_| table.sync().unwrap());
    assert_eq!(epoch(table), before + 1);
}

#[test]
fn writers_bound_the_room_that_waits() {
    // Fails if what they have collected waits as long as a write may, where there is no upkeep.
    let session = one_stream(32 << 20);
    let table = session.table();
    (0..20_000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.sync().unwrap();
    let (mut most, before) = (0, epoch(table));
    for key in 0..60_000 {
        assert!(table.put_word(key % 20_000, !key).unwrap());
        most = most.max(table.streams[0].0.lock().unwrap().waiting());
    }
    println!("{most} bytes waited at most, {} epochs", epoch(table) - before);
    assert!((1..400 << 10).contains(&most), "{most} bytes waited");
}

#[test]
fn room_for_the_next_checkpoint_is_no_reason_to_collect() {
    // Fails if it counts as that of segments: after each checkpoint pairs would be moved for it.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..20_000);
    // Some segments are garbage, which is little of the table.
    insert_alone(table, 0..1000);
    assert_eq!(chosen(table, AHEAD), None);
    let span = table.space.take(4 << 20, table.unit_bytes).unwrap().span;
    *table.spare.lock().unwrap() = Some(span);
    assert_eq!(chosen(table, AHEAD), None);
    // What is kept for segments is theirs.
    table.spare.lock().unwrap().take();
    table.kept.lock().unwrap().push(span);
    assert!(chosen(table, AHEAD).is_some());
}

#[test]
fn on_a_full_medium_the_oldest_segment_makes_way_for_the_tombstones_behind_it() {
    // Fails if a write is refused because the oldest segment has no garbage itself, or if one is
    // chosen that is empty and waits for an epoch.
    let session = one_stream(1 << 20);
    let table = session.table();
    (0..1000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    assert_eq!(chosen(table, NOTHING), None);
    let (oldest, second) = {
        let mut stream = table.streams[0].0.lock().unwrap();
        let mut sealed = stream.sealed.iter_mut();
        let (oldest, second) = (sealed.next().unwrap(), sealed.next().unwrap());
        second.1.tombstones = 10;
        (*oldest.0, *second.0)
    };
    assert_eq!(chosen(table, NOTHING), Some(oldest));
    table.streams[0].0.lock().unwrap().sealed.get_mut(&oldest).unwrap().is_empty = true;
    assert_ne!(chosen(table, NOTHING), Some(oldest), "{second} is the next one");
}

#[test]
fn on_a_full_medium_a_segment_of_garbage_comes_before_the_tombstones_behind_live_pairs() {
    // Fails if the oldest segment, in which everything is alive, is moved again and again while
    // others are nearly empty; or if a few words of garbage are worth a collection.
    let session = one_stream(1 << 20);
    let table = session.table();
    (0..1000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let (oldest, third, place, fill) = {
        let mut stream = table.streams[0].0.lock().unwrap();
        let mut sealed = stream.sealed.iter_mut();
        let (oldest, second) = (*sealed.next().unwrap().0, sealed.next().unwrap());
        second.1.tombstones = second.1.fill - 1;
        let third = sealed.next().unwrap();
        (oldest, *third.0, third.1.span.start, third.1.fill)
    };
    table.units.add_garbage(place, fill / 8);
    assert_eq!(chosen(table, NOTHING), Some(oldest));
    table.units.add_garbage(place, 1);
    assert_eq!(chosen(table, NOTHING), Some(third));
}

#[test]
fn full_segments_that_an_opening_found_are_not_merged() {
    // Fails if a full medium moves one that fits nowhere: the room that it gives is what it took.
    let mut session = one_stream(1 << 20);
    (0..1000).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    session.reopen().unwrap();
    let segments = session.table().streams[0].0.lock().unwrap().sealed.len();
    assert!(segments > 2, "{segments}");
    assert_eq!(chosen(session.table(), NOTHING), None);
}

/// Returns the numbers of the full segments of a stream.
fn full_segments(table: &ReefTable<Image>, stream: usize) -> Vec<u64> {
    table.streams[stream].0.lock().unwrap().sealed.keys().copied().collect()
}

/// Inserts pairs of which nobody collects what is replaced.
fn insert_alone(table: &ReefTable<Image>, keys: core::ops::Range<u64>) {
    let _collecting: Vec<_> = table.collected.iter().map(|it| it.0.lock().unwrap()).collect();
    keys.for_each(|key| {
        table.put_word(key, !key).unwrap();
    });
}

#[test]
fn a_full_medium_collects_first_where_most_is_gained() {
    // Fails if the first stream is always the first, whatever little garbage it has.
    let settings = ReefSettings { streams: 2, shards: 2, ..ONE_STREAM };
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    insert_alone(table, 0..1000);
    table.sync().unwrap();
    let stream_of = |key: u64| table.shard(table.hash(&key.to_le_bytes())).1;
    for (most, least) in [(1, 0), (0, 1)] {
        let segments = [0, 1].map(|stream| full_segments(table, stream));
        for stream in [least, most, most, most] {
            let at = {
                let stream = table.streams[stream].0.lock().unwrap();
                stream.sealed.first_key_value().unwrap().1.span.start
            };
            table.units.add_garbage(at, 9);
        }
        assert!(table.make_room(Purpose::Add, 0).unwrap());
        let left = [0, 1].map(|stream| full_segments(table, stream));
        assert_eq!(left[least], segments[least], "stream {least} has the least garbage");
        assert_ne!(left[most], segments[most], "stream {most} has the most garbage");
    }
    assert!((0..1000).all(|key| stream_of(key) < 2 && table.get_word(key).unwrap().is_some()));
}

#[test]
fn a_full_medium_goes_on_with_what_is_half_collected() {
    // Fails if a write is refused because the one segment with garbage is being collected.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..200);
    insert_alone(table, 0..10);
    table.sync().unwrap();
    let segments = full_segments(table, 0);
    let begun = table.victim(&table.streams[0].0.lock().unwrap(), NOTHING);
    assert!(begun.is_some());
    *table.collected[0].0.lock().unwrap() = begun;
    assert!(table.make_room(Purpose::Add, 0).unwrap());
    assert_ne!(full_segments(table, 0), segments);
}

#[test]
fn a_segment_for_which_there_was_no_room_gets_another_turn() {
    // Fails if a full medium, all of whose segments were refused, never tries one again: there may
    // be room the next time.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..1000);
    insert_alone(table, 0..10);
    table.sync().unwrap();
    table.kept.lock().unwrap().drain(..).for_each(|span| table.space.give(span));
    let all = take_all(table);
    // No object finds room in the newest segment.
    {
        let mut stream = table.streams[0].0.lock().unwrap();
        let open = stream.open.as_mut().unwrap();
        (open.span.words, open.renewed) = (open.fill, open.fill);
    }
    assert!(!table.make_room(Purpose::Add, 0).unwrap());
    all.iter().for_each(|span| table.space.give(*span));
    assert!(table.make_room(Purpose::Add, 0).unwrap());
}

#[test]
fn a_segment_that_is_collected_by_half_has_as_much_garbage_more() {
    // Fails if what was moved still counts as alive: whoever comes back to the segment later, or a
    // process that reads of it in a checkpoint, finds less garbage than there is.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..20_000);
    let (sequence, segment) = {
        let stream = table.streams[0].0.lock().unwrap();
        stream.sealed.last_key_value().map(|(sequence, it)| (*sequence, *it)).unwrap()
    };
    assert!(segment.span.bytes() > table.unit_bytes);
    let mut victim = Victim::new(0, (sequence, segment), false, 1);
    let head = victim.offset;
    assert!(!table.collect(&mut victim, 1).unwrap());
    assert!(victim.offset > head);
    assert_eq!(table.units.garbage(segment.span.start), victim.offset - head);
}

#[test]
fn a_segment_of_one_unit_is_collected_in_one_step() {
    // Fails if processes that end soon begin it again and again: it would never come to its end.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..200);
    let (sequence, segment) = {
        let stream = table.streams[0].0.lock().unwrap();
        stream.sealed.first_key_value().map(|(sequence, it)| (*sequence, *it)).unwrap()
    };
    assert_eq!(segment.span.bytes(), table.unit_bytes);
    let mut victim = Victim::new(0, (sequence, segment), false, 1);
    assert!(table.collect(&mut victim, 1).unwrap());
}

#[test]
fn a_segment_for_which_there_was_no_room_is_passed_over_for_a_while() {
    // Fails if it is tried again at once, or never again.
    let session = one_stream(1 << 20);
    let table = session.table();
    insert_alone(table, 0..1000);
    insert_alone(table, 0..60);
    let best = chosen(table, NOTHING).unwrap();
    let refuse = |at: fn(u64) -> u64| {
        let mut stream = table.streams[0].0.lock().unwrap();
        let newest = stream.last.sequence;
        stream.sealed.get_mut(&best).unwrap().refused_at = Some(at(newest));
    };
    refuse(|newest| newest);
    assert!(chosen(table, NOTHING).is_some_and(|other| other != best));
    // The stream has found room for one more.
    refuse(|newest| newest - 1);
    assert_eq!(chosen(table, NOTHING), Some(best));
}
