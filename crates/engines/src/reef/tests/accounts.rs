//! Every byte in use belongs to a segment, to what is kept back, or to a checkpoint: whatever is
//! done, and however full the medium is.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{AtomicTable, Error, Form, Result, Table, WordTable};
use everhash_pmem::{Image, Lock, pool};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::checkpoints::checkpoint;
use crate::reef::checkpoint::Moment;
use crate::reef::collection::AT_REST;
use crate::reef::stream::Victim;
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Demands that the room in use is that of what there is.
fn is_accounted_for(table: &ReefTable<Image>, when: &str) {
    let mut segments = 0;
    for stream in &table.streams {
        let stream = stream.0.lock().unwrap();
        let sealed = stream.sealed.values().filter(|segment| !segment.is_empty);
        segments += sealed.map(|segment| segment.span.bytes()).sum::<u64>();
        segments += stream.open.map_or(0, |open| open.span.bytes()) + stream.waiting();
    }
    let used = table.used.load(Ordering::Relaxed);
    assert_eq!(used, segments, "{when}: what segments take, and what waits for an epoch");
    let kept: u64 = table.kept.lock().unwrap().iter().map(|span| span.bytes()).sum();
    let spare = table.spare.lock().unwrap().map_or(0, |span| span.bytes());
    let checkpoint = table.epochs.lock().unwrap().checkpoint.clone();
    let checkpoint = checkpoint.map_or(0, |checkpoint| checkpoint.span.bytes());
    let all = table.space.usage().unwrap().used_bytes;
    assert_eq!(all, used + kept + spare + checkpoint, "{when}");
}

/// Does something at random; says what.
fn act(session: &mut Session<Reef>, random: &mut Random, step: u64) -> (&'static str, Result<()>) {
    let keys = [0; 4].map(|_| random.below(400).to_le_bytes());
    let most = 1 << random.below(12);
    let value = vec![step as u8; random.below(most) as usize];
    let table = session.table();
    match random.below(200) {
        0 => ("clear", table.clear()),
        1..4 => {
            let ends = table.ends(&[]).unwrap();
            let bytes = table.checkpoint_bytes().unwrap();
            ("checkpoint", table.replace_checkpoint(bytes, ends))
        }
        4..8 => ("sync", table.sync()),
        8..20 => ("upkeep", table.maintain(Duration::from_secs(step), 1000).map(drop)),
        20..23 => ("reopen", session.reopen()),
        23..26 => ("kill", session.kill_unsynced()),
        26 => ("outage", session.outage()),
        27..50 => {
            let writes = keys.each_ref().map(|key| (&key[..], Some(&value[..])));
            ("batch", AtomicTable::write_all(table, &writes))
        }
        50..80 => ("remove", table.remove(&keys[0]).map(drop)),
        _ => ("put", table.put(&keys[0], &value).map(drop)),
    }
}

#[test]
fn every_byte_in_use_is_accounted_for() {
    // Fails if a segment that ends, empties or is left over, a checkpoint that was replaced, or
    // what is cut off a long span is lost, or given back twice.
    let (mut random, mut refused) = (Random::new(3), 0);
    for capacity in [20 << 10, 32 << 10, 1 << 20] {
        let mut session = Session::<Reef>::tiny(Form::Variable, capacity).unwrap();
        for step in 0..6000 {
            let (what, outcome) = act(&mut session, &mut random, step);
            match outcome {
                Ok(()) => {}
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{what}: {error}"),
            }
            is_accounted_for(session.table(), &format!("{what}, step {step} of {capacity} bytes"));
        }
        session.table().check().unwrap();
    }
    assert!(refused > 100, "{refused}: the media were never full");
}

#[test]
fn a_clear_that_finds_no_room_gives_back_what_it_took() {
    // Fails if the segments are lost that a clear has for some streams when there is none for the
    // next one.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, refusals) = (session.table(), session.region().media().refusals());
    (0..20).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.sync().unwrap();
    // Nothing is kept back, and there is room for one of two streams.
    table.kept.lock().unwrap().drain(..).for_each(|span| table.space.give(span));
    refusals.takes.plan(1, u64::MAX);
    let cleared = table.clear();
    assert!(matches!(cleared, Err(Error::Full { .. })), "{cleared:?}");
    is_accounted_for(table, "a clear was refused");
    assert_eq!(table.len().unwrap(), 20);
    refusals.takes.plan(0, 0);
    table.clear().unwrap();
    is_accounted_for(table, "cleared");
}

#[test]
fn short_objects_find_room_in_pieces_that_are_too_short_for_the_longest() {
    // Fails if no short pair is taken any more because nothing is free that is as long as what is
    // kept back for the longest one.
    let session = Session::<Reef>::tiny(Form::Variable, 256 << 10).unwrap();
    let table = session.table();
    (0..2500u32).for_each(|key| assert!(table.insert(&key.to_le_bytes(), &[1; 8]).unwrap()));
    assert!(table.insert(b"the longest", &[2; 3000]).unwrap());
    table.sync().unwrap();
    let piece = table.segment_bytes();
    table.kept.lock().unwrap().drain(..).for_each(|span| table.space.give(span));
    let take = || table.space.take_first(&[piece], table.unit_bytes, 0);
    let pieces: Vec<_> = core::iter::from_fn(|| take().ok()).collect();
    pieces.iter().step_by(2).for_each(|taken| table.space.give(taken.span));
    let long = table.whole_units(table.longest.load(Ordering::Relaxed));
    assert!(table.space.longest_free_bytes().unwrap() < long, "a long piece is free");
    for key in 0..200u32 {
        let added = table.insert(&key.to_be_bytes(), &[3; 8]);
        assert!(added.is_ok(), "{key}, with {} pieces: {added:?}", pieces.len() / 2);
    }
}

#[test]
fn upkeep_comes_to_the_same_end_whatever_its_budget() {
    // Fails if upkeep says that it has nothing to do while there is garbage that it should collect,
    // or room that waits for the end of an epoch: nobody would call it again.
    for (form, budget) in super::FORMS.into_iter().flat_map(|form| [(form, 1), (form, 1000)]) {
        let mut session = Session::<Reef>::tiny(form, 4 << 20).unwrap();
        let shape = Shape::tiny(form);
        let put = |session: &Session<Reef>, keys: core::ops::Range<u16>, value| {
            for key in keys {
                session.table().put(&shape.key(key), &shape.value(value)).unwrap();
            }
        };
        (0..8).for_each(|value| put(&session, 0..400, value));
        for key in 0..300 {
            assert!(session.table().remove(&shape.key(key)).unwrap());
        }
        // Segments that an opening found.
        for round in 0..6 {
            session.reopen().unwrap();
            put(&session, 290 + 5 * round..300 + 5 * round, 9);
        }
        let (table, mut now) = (session.table(), Duration::ZERO);
        let mut is_done = || {
            now += Duration::from_secs(5);
            let upkeep = table.maintain(now, budget).unwrap();
            !upkeep.more && upkeep.deadline.is_none()
        };
        assert!((0..100_000).any(|_: u32| is_done()), "upkeep has no end");
        for stream in &table.streams {
            let stream = stream.0.lock().unwrap();
            let left = table.victim(&stream, AT_REST);
            assert!(left.is_none(), "{form}, budget {budget}: {left:?}");
            assert_eq!(stream.waiting(), 0, "{form}, budget {budget}");
        }
        is_accounted_for(table, "at rest");
        assert_eq!(table.check().unwrap().items, table.len().unwrap());
    }
}

/// Returns for each segment its stream, its number, and its words of garbage and of tombstones.
fn counted(table: &ReefTable<Image>) -> Vec<[u64; 4]> {
    let mut counted = Vec::new();
    for stream in &table.streams {
        let stream = stream.0.lock().unwrap();
        let sealed = stream.sealed.iter().map(|(number, it)| (*number, it.span, it.tombstones));
        let open = stream.open.iter().map(|it| (it.sequence, it.span, it.tombstones));
        for (number, span, tombstones) in sealed.chain(open) {
            counted.push([stream.number, number, table.units.garbage(span.start), tombstones]);
        }
    }
    counted
}

/// Inserts pairs, replaces a quarter of them and removes another; collects nothing.
fn change(table: &ReefTable<Image>, keys: core::ops::Range<u64>) {
    // Who would collect finds that somebody does.
    let _collecting: Vec<_> = table.collected.iter().map(|it| it.0.lock().unwrap()).collect();
    for key in keys {
        table.put_word(key, 1).unwrap();
        match key % 4 {
            0 => assert!(table.remove_word(key).unwrap()),
            1 => assert!(table.put_word(key, 2).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn what_is_garbage_is_known_to_the_next_process() {
    // Fails if the garbage or the tombstones of a segment are forgotten with the process, which
    // nobody would collect then, or if those that a checkpoint counts are counted once more.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    for has_checkpoint in [false, true] {
        let medium = Image::new(0, 1 << 20);
        let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
        // The last time, the checkpoint is that of a table without open segments.
        for (keys, behind) in [(0..101, 80..123), (100..150, 0..0), (0..0, 0..0)] {
            change(session.table(), keys);
            if has_checkpoint {
                checkpoint(session.table());
            }
            change(session.table(), behind);
            let before = counted(session.table());
            session.kill_unsynced().unwrap();
            let is_loaded = session.table().epochs.lock().unwrap().checkpoint.is_some();
            assert_eq!(is_loaded, has_checkpoint);
            assert_eq!(counted(session.table()), before, "with a checkpoint: {has_checkpoint}");
        }
    }
}

#[test]
fn statistics_say_what_there_is() {
    // Fails if tombstones, what was replaced or the newest segment are left out, or if they count
    // as pairs.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    change(table, 0..100);
    let (stats, segments) = (table.stats().unwrap(), counted(table).len() as u64);
    // A quarter replaced, and a quarter removed; a tombstone has two words.
    let (live, dead) = (75 * 24 + segments * 64, 50 * 24 + 25 * 16);
    assert_eq!((stats.items, stats.live_bytes, stats.dead_bytes), (75, live, Some(dead)));
    let all = table.space.usage().unwrap().used_bytes;
    assert_eq!(stats.used_bytes, pool::DATA.byte() + all);
    let shards = table.shards.all().iter();
    let buckets: u64 = shards.map(|it| it.buckets(&it.latch.lock().unwrap())).sum();
    assert_eq!(stats.slots, 8 * buckets);
    assert_eq!(stats.own[0], ("segments", segments));
}

#[test]
fn statistics_leave_out_what_waits_for_an_epoch_and_name_all_memory() {
    // Fails if an emptied segment still counts, or if memory of a part of the table is forgotten.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    change(table, 0..100);
    let before = table.stats().unwrap();
    let (units, arena) = (table.units.dram_bytes(), table.arena.dram_bytes().unwrap());
    assert!(units > 0 && before.dram_bytes >= units + arena, "{before:?}");
    assert_eq!(before.growth_steps, table.space.usage().unwrap().growth_steps);
    assert!(before.growth_steps > 0);
    let pm = session.region().access();
    let mut stream = table.streams[0].0.lock().unwrap();
    let (sequence, fill) =
        stream.sealed.first_key_value().map(|(it, one)| (*it, one.fill)).unwrap();
    table.mark_empty(&pm, &mut stream, sequence).unwrap();
    drop(stream);
    let (after, all) = (table.stats().unwrap(), |it: &everhash_index::Stats| {
        it.live_bytes + it.dead_bytes.unwrap()
    });
    assert_eq!(all(&after), all(&before) - 8 * fill);
    // Garbage may be counted twice.
    let open = table.streams[0].0.lock().unwrap().open.unwrap();
    table.units.add_garbage(open.span.start, 1 << 40);
    assert_eq!(all(&table.stats().unwrap()), all(&after));
}

#[test]
fn tombstones_behind_the_end_of_a_checkpoint_are_counted_once() {
    // Fails if those that came into the newest segment while a checkpoint was written are counted
    // by it, and once more when the log behind it is read.
    let settings =
        ReefSettings { segment_bytes: 64 << 10, flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    (0..10).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    assert!(table.remove_word(0).unwrap() && table.remove_word(1).unwrap());
    let (ends, bytes) = (table.ends(&[]).unwrap(), table.checkpoint_bytes().unwrap());
    (2..6).for_each(|key| assert!(table.remove_word(key).unwrap()));
    table.replace_checkpoint(bytes + 1024, ends).unwrap();
    let tombstones = |table: &ReefTable<Image>| counted(table).iter().map(|it| it[3]).sum::<u64>();
    assert_eq!(tombstones(table), 6 * 2);
    session.kill_unsynced().unwrap();
    assert!(session.table().epochs.lock().unwrap().checkpoint.is_some());
    assert_eq!(tombstones(session.table()), 6 * 2);
}

#[test]
fn garbage_in_a_checkpoint_is_that_of_the_segment_that_lay_there() {
    // Fails if a segment that was begun since, at the place of another one, has its garbage: it
    // would be collected although all in it is alive.
    let settings = ReefSettings { streams: 1, flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    change(table, 0..60);
    let (sequence, first) = {
        let stream = table.streams[0].0.lock().unwrap();
        stream.sealed.first_key_value().map(|(it, one)| (*it, *one)).unwrap()
    };
    assert!(table.units.garbage(first.span.start) > 0);
    checkpoint(table);
    let mut victim = Victim::new(0, (sequence, first), true, 1);
    assert!(table.collect(&mut victim, u64::MAX).unwrap());
    table.commit_epoch().unwrap();
    let lies_there = |table: &ReefTable<Image>| {
        let stream = table.streams[0].0.lock().unwrap();
        stream.sealed.values().any(|it| it.span.start == first.span.start)
    };
    // Nothing of it is garbage.
    let collecting = table.collected[0].0.lock().unwrap();
    let keys = (1000..2000).take_while(|_| !lies_there(table));
    keys.for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    assert!(lies_there(table));
    drop(collecting);
    assert_eq!(table.units.garbage(first.span.start), 0);
    session.kill_unsynced().unwrap();
    assert!(session.table().epochs.lock().unwrap().checkpoint.is_some());
    assert!(lies_there(session.table()));
    assert_eq!(session.table().units.garbage(first.span.start), 0);
}

#[test]
fn the_room_of_a_checkpoint_that_is_given_up_is_free_at_once() {
    // Fails if it waits for a next one, of which there may be none on a full medium.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..100).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    checkpoint(table);
    let bytes = table.epochs.lock().unwrap().checkpoint.as_ref().unwrap().span.bytes();
    let before = table.space.usage().unwrap().used_bytes;
    assert!(table.give_up_checkpoint().unwrap());
    assert_eq!(table.space.usage().unwrap().used_bytes, before - bytes);
    is_accounted_for(table, "given up");
}

#[test]
fn a_checkpoint_notes_all_that_was_written_before_it() {
    // Fails if what no epoch has covered yet counts for the next one: it would come too early.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..10).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let streams = || table.streams.iter().map(|it| it.0.lock().unwrap());
    let pending: u64 = streams().map(|stream| stream.pending).sum();
    let written: u64 = streams().map(|stream| stream.written).sum();
    assert!(pending > 0);
    checkpoint(table);
    let noted = table.epochs.lock().unwrap().checkpoint.as_ref().unwrap().written;
    assert_eq!(noted, written + pending);
}

#[test]
fn a_close_behind_a_long_log_of_a_large_table_writes_a_checkpoint() {
    // Fails if the log may be as long as a part of the directory, however long that is.
    let settings = ReefSettings { flush_bytes: 4 << 10, buckets: 4096, ..ReefSettings::tiny() };
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    (0..20_000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    checkpoint(table);
    let sum = || table.epochs.lock().unwrap().checkpoint.as_ref().unwrap().sum;
    let (before, bytes) = (sum(), 2 * settings.flush_bytes);
    assert!(table.checkpoint_bytes().unwrap() / 8 > 2 * bytes);
    (20_000..20_100).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.checkpoint_if_due(Moment::Close).unwrap();
    assert_eq!(sum(), before, "a short log");
    (20_100..20_400).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    table.checkpoint_if_due(Moment::Close).unwrap();
    assert_ne!(sum(), before);
}

#[test]
fn what_power_loss_took_gives_its_room_back() {
    // Fails if segments behind the commit record are in use for ever.
    let settings = ReefSettings { flush_bytes: 1 << 20, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..10).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    session.table().sync().unwrap();
    (10..100).for_each(|key| assert!(session.table().insert_word(key, 1).unwrap()));
    let words = session.region().media().words();
    let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
    let session = Session::<Reef>::open_after_power(medium, Form::WORDS).unwrap();
    assert_eq!(session.table().len().unwrap(), 10);
    is_accounted_for(session.table(), "opened after power loss");
}

#[test]
fn a_stream_without_segments_goes_on_with_its_next_number() {
    // Fails if segments are numbered anew: what an earlier one left would be taken for theirs.
    let settings = ReefSettings { streams: 1, ..ReefSettings::tiny() };
    let medium = Image::new(0, 1 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    assert!(session.table().insert_word(1, 1).unwrap());
    session.reopen().unwrap();
    assert!(session.table().remove_word(1).unwrap());
    session.reopen().unwrap();
    let table = session.table();
    let sealed = || table.streams[0].0.lock().unwrap().sealed.clone();
    for (sequence, segment) in sealed() {
        let mut victim = Victim::new(0, (sequence, segment), true, 1);
        assert!(table.collect(&mut victim, u64::MAX).unwrap());
    }
    table.commit_epoch().unwrap();
    let last = table.streams[0].0.lock().unwrap().last;
    assert!(sealed().is_empty() && last.sequence > 1, "{last:?}");
    session.reopen().unwrap();
    assert_eq!(session.table().streams[0].0.lock().unwrap().last, last);
}
