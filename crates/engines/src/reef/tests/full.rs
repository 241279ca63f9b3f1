//! A medium without room: removing, clearing and collecting go on.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use everhash_index::{AtomicTable, Change, Error, Form, Result, Table, WordTable};
use everhash_pmem::{Addr, Image, Lock, Span};
use everhash_testkit::session::Session;

use crate::reef::layout::{Kind, SegmentHead};
use crate::reef::reserve::Purpose;
use crate::reef::segments::Object;
use crate::reef::stream::{Sealed, Step, Stream, Victim};
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Fills a table of words; returns how many pairs fit.
fn filled(bytes: u64) -> (Session<Reef>, u64) {
    let session = Session::<Reef>::tiny(Form::WORDS, bytes).unwrap();
    for number in 0.. {
        match session.table().insert_word(number, !number) {
            Ok(true) => {}
            Err(Error::Full { .. }) => return (session, number),
            other => panic!("{number}: {other:?}"),
        }
    }
    unreachable!("a medium has an end")
}

#[test]
fn a_full_table_removes_every_pair_and_takes_as_many_again() {
    // Fails if removing needs room that only removing could make, or if tombstones pile up.
    for bytes in [64 << 10, 128 << 10] {
        let (session, count) = filled(bytes);
        println!("{bytes} bytes: {count} pairs, {:?}", session.table().stats().unwrap());
        let table = session.table();
        for number in 0..count {
            let removed = table.remove_word(number);
            assert!(
                matches!(removed, Ok(true)),
                "{number} of {count}: {removed:?}, {:?}",
                table.stats()
            );
        }
        for number in 0..count * 9 / 10 {
            let added = table.insert_word(number, number);
            assert!(
                matches!(added, Ok(true)),
                "{number} of {count} again: {added:?}, {:?}",
                table.stats()
            );
        }
        table.clear().unwrap();
        assert_eq!(table.len().unwrap(), 0);
    }
}

/// Fills a table of words whose segments are one unit long, of hundreds.
fn filled_with_units(bytes: u64) -> (Session<Reef>, u64) {
    filled_streams(ReefSettings::tiny().streams, bytes)
}

/// As [`filled_with_units`], with so many streams.
fn filled_streams(streams: u64, bytes: u64) -> (Session<Reef>, u64) {
    let settings = ReefSettings { streams, segment_bytes: 256 << 10, ..ReefSettings::tiny() };
    let medium = Image::new(0, bytes);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let refused = (0..).find(|number| session.table().insert_word(*number, !number).is_err());
    (session, refused.unwrap())
}

/// Returns the number of the newest segment of stream 0.
fn sequence(table: &ReefTable<Image>) -> u64 {
    table.streams[0].0.lock().unwrap().last.sequence
}

/// Returns whether a key belongs to stream 0.
fn is_of_stream(table: &ReefTable<Image>, key: u64) -> bool {
    table.shard(table.hash(&key.to_le_bytes())).1 == 0
}

/// Does something until stream 0 has a new segment.
fn until_a_segment_begins(table: &ReefTable<Image>, mut step: impl FnMut(&ReefTable<Image>)) {
    let first = sequence(table);
    while sequence(table) == first {
        step(table);
    }
}

/// Does something until stream 0 has a new segment, and demands that a pair which is not there yet
/// is refused then, and that removals go on.
fn takes_no_pair(session: &Session<Reef>, count: u64, step: impl FnMut(&ReefTable<Image>)) {
    let table = session.table();
    until_a_segment_begins(table, step);
    let fresh = (count + 1..).find(|key| is_of_stream(table, *key)).unwrap();
    let refused = table.insert_word(fresh, 1).unwrap_err();
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    let removed = (0..count).rev().find(|key| is_of_stream(table, *key)).unwrap();
    assert!(table.remove_word(removed).unwrap());
}

/// Gives back all that is kept back, as of a table that was just opened.
fn keep_nothing(table: &ReefTable<Image>) {
    let kept = core::mem::take(&mut *table.kept.lock().unwrap());
    kept.into_iter().for_each(|span| table.space.give(span));
}

/// As who collects does: puts an object of stream 0 into it anew.
fn move_one(table: &ReefTable<Image>) {
    let (key, value) = (0u64.to_le_bytes(), 7u64.to_le_bytes());
    let object = Object { kind: Kind::Put, key: &key, value: &value, behind: Addr::NULL };
    table.append(&table.pool.access(), 0, Purpose::Move, &object).unwrap();
}

#[test]
fn p07_nothing_is_added_to_a_segment_that_was_taken_out_of_what_is_kept_back() {
    // Fails if pairs that others add meanwhile fill it: the objects of one segment need two then,
    // and as much less is kept back ever after. So it was where a removal had taken it, or a batch
    // of removals: after one in each stream no removal was possible ever again.
    let remove: fn(&ReefTable<Image>) = |table| {
        let key = 0u64.to_le_bytes();
        let object = Object { kind: Kind::Removed, key: &key, value: &[], behind: Addr::NULL };
        table.append(&table.pool.access(), 0, Purpose::Remove, &object).unwrap();
    };
    for step in [move_one, remove] {
        let (session, count) = filled_with_units(512 << 10);
        let kept = || session.table().kept.lock().unwrap().len();
        let before = kept();
        takes_no_pair(&session, count, step);
        assert_eq!(kept(), before - 1);
    }
    let (session, count) = filled_with_units(512 << 10);
    let mut next = 0..count;
    takes_no_pair(&session, count, |table| {
        let key = next.next().unwrap().to_le_bytes();
        table.write_all(&[(&key, None)]).unwrap();
    });
}

#[test]
fn p07_nothing_is_added_to_a_segment_that_was_taken_before_anything_was_kept_back() {
    // Fails if collecting right after an opening takes a segment which nobody then makes good: with
    // pairs in it, less is kept back for as long as the medium is full.
    let (session, count) = filled_with_units(512 << 10);
    keep_nothing(session.table());
    takes_no_pair(&session, count, move_one);
}

#[test]
fn a_removal_after_an_opening_takes_what_room_there_is() {
    // Fails if it is refused on a medium that has room, or that can grow, because collecting has
    // begun a segment before anything was kept back.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..100).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    table.sync().unwrap();
    keep_nothing(table);
    until_a_segment_begins(table, move_one);
    let collected = table.collections.load(Relaxed);
    let removed = (0..100).find(|key| is_of_stream(table, *key)).unwrap();
    assert!(table.remove_word(removed).unwrap());
    assert_eq!(table.collections.load(Relaxed), collected, "there was room without it");
}

#[test]
fn p07_where_nothing_can_be_collected_removals_leave_one_segment() {
    // Fails if removals are refused for ever where less than half is kept back, and all the rest is
    // full of pairs; if they take the last segment, without which nothing can be collected; or if
    // they go on to do so when there is enough again.
    let session = with_kept_units(Form::WORDS);
    let table = session.table();
    let half = table.kept_bytes() / 2 / table.unit_bytes;
    let mut others = table.kept.lock().unwrap().split_off(half as usize);
    let take = || table.take_segment(Purpose::Remove, 1, Step::SMALL);
    assert!(matches!(take(), Err(Error::Full { .. })));
    assert!(!table.make_room(Purpose::Add, 0).unwrap());
    assert!(matches!(take(), Err(Error::Full { .. })));
    assert!(table.make_room(Purpose::Remove, 0).unwrap());
    let taken: Vec<Span> = core::iter::from_fn(|| take().ok()).map(|(span, _)| span).collect();
    assert_eq!(taken.len() as u64, half - table.segment_bytes() / table.unit_bytes);
    assert!(!table.make_room(Purpose::Remove, 0).unwrap(), "there is no more to lend");
    taken.into_iter().for_each(|span| table.give(span).unwrap());
    assert!(matches!(take(), Err(Error::Full { .. })), "half is there again");
    table.kept.lock().unwrap().append(&mut others);
}

#[test]
fn p07_a_removal_leaves_the_segment_that_collecting_took_to_those_who_collect() {
    // Fails if tombstones fill it where nothing else is kept back to collect, or the run of a
    // thread: the next segment cannot be moved, and no removal is possible ever again.
    let (session, _) = filled_with_units(512 << 10);
    let table = session.table();
    let (pm, key) = (table.pool.access(), 0u64.to_le_bytes());
    until_a_segment_begins(table, move_one);
    let newest = sequence(table);
    let remove = || {
        let object = Object { kind: Kind::Removed, key: &key, value: &[], behind: Addr::NULL };
        table.append(&pm, 0, Purpose::Remove, &object)
    };
    let half = (table.kept_bytes() / 2 / table.segment_bytes()) as usize;
    let mut others = table.kept.lock().unwrap().split_off(half);
    remove().unwrap();
    others.extend(table.kept.lock().unwrap().pop());
    assert!(matches!(remove(), Err(Error::Full { .. })));
    table.kept.lock().unwrap().append(&mut others);
    remove().unwrap();
    assert_eq!(sequence(table), newest);
    let mut stream = table.streams[0].0.lock().unwrap();
    let fill = |stream: &Stream| stream.open.as_ref().unwrap().fill;
    let before = fill(&stream);
    table.begin_run(&pm, &mut stream, 16).unwrap();
    assert_eq!(fill(&stream), before);
}

#[test]
fn p07_a_full_table_is_emptied_by_processes_that_remove_some_pairs_each() {
    // Fails if each opening takes a segment out of what is kept back, and nobody ever gives one
    // back: after some removals nothing works any more, not even a clear.
    type End = fn(&mut Session<Reef>) -> Result<()>;
    for (end, each, processes) in [
        (Session::reopen as End, 1, 60),
        (Session::kill as End, 1, 60),
        (Session::reopen as End, 40, 60),
        (Session::reopen as End, 300, 40),
    ] {
        let (mut session, count) = filled_with_units(512 << 10);
        for number in 0..each * processes {
            if number % each == 0 {
                end(&mut session).unwrap();
            }
            let removed = session.table().remove_word(number);
            assert!(matches!(removed, Ok(true)), "{each}: {number} of {count}: {removed:?}");
        }
        // What some pairs leave is less than a segment.
        for number in 0..if each > 1 { each * processes / 2 } else { 0 } {
            if number % each == 0 {
                end(&mut session).unwrap();
            }
            let added = session.table().insert_word(number, number);
            assert!(matches!(added, Ok(true)), "{each}: {number} of {count} again: {added:?}");
        }
        session.table().clear().unwrap();
    }
}

#[test]
fn p07_a_process_that_is_killed_while_it_collects_leaves_room_for_the_next_one() {
    // Fails if less is kept back for a single stream than some of them take, each for a segment
    // that it fills no further: nothing can be removed then ever again.
    let (mut session, count) = filled_streams(1, 512 << 10);
    for _ in 0..3 {
        session.kill().unwrap();
        until_a_segment_begins(session.table(), move_one);
    }
    session.kill().unwrap();
    for number in 0..count {
        let removed = session.table().remove_word(number);
        assert!(matches!(removed, Ok(true)), "{number} of {count}: {removed:?}");
    }
}

/// Returns the oldest segment of stream 0, of which nothing is collected yet.
fn oldest(table: &ReefTable<Image>) -> Victim {
    let stream = table.streams[0].0.lock().unwrap();
    let (sequence, segment) = stream.sealed.first_key_value().unwrap();
    Victim::new(0, (*sequence, *segment), true, 1)
}

#[test]
fn p07_nothing_is_moved_of_a_segment_that_finds_no_room() {
    // Fails if some of it is: that takes of what is kept back, and gives back nothing.
    let (session, _) = filled_with_units(512 << 10);
    let table = session.table();
    until_a_segment_begins(table, move_one);
    let mut victim = oldest(table);
    let fill = || table.streams[0].0.lock().unwrap().open.unwrap().fill;
    let before = (fill(), table.units.garbage(victim.segment.span.start));
    let mut kept = core::mem::take(&mut *table.kept.lock().unwrap());
    let refused = table.collect(&mut victim, u64::MAX);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert_eq!(before, (fill(), table.units.garbage(victim.segment.span.start)));
    table.kept.lock().unwrap().extend(kept.pop());
    assert!(table.collect(&mut victim, u64::MAX).unwrap());
    table.kept.lock().unwrap().append(&mut kept);
}

#[test]
fn what_is_moved_needs_room_for_what_is_alive() {
    // Fails if a segment of garbage and of tombstones that nothing needs is left for want of room.
    let (session, count) = filled_with_units(512 << 10);
    let table = session.table();
    let victim = oldest(table);
    let lengths = |victim: &Victim| table.live_lengths(victim).unwrap().unwrap();
    let all = lengths(&victim);
    assert_eq!(all.iter().sum::<u64>(), victim.segment.fill - SegmentHead::WORDS as u64);
    let removed = (0..count).filter(|key| is_of_stream(table, *key)).take(10);
    removed.for_each(|key| assert!(table.remove_word(key).unwrap()));
    assert_eq!(lengths(&victim).len(), all.len() - 10);
    let stream = table.streams[0].0.lock().unwrap();
    let open = stream.open.unwrap();
    drop(stream);
    let begun = Sealed { span: open.span, seal: open.seal, fill: open.fill, ..victim.segment };
    let pairs = lengths(&Victim { segment: begun, ..victim }).len();
    let with_tombstones = lengths(&Victim { segment: begun, is_oldest: false, ..victim }).len();
    assert_eq!(with_tombstones, pairs + 10);
}

#[test]
fn what_fits_is_counted_as_it_would_be_taken() {
    // Fails if a move is begun that does not come to its end, or one that would is not; or if who
    // asks takes something.
    let session = with_kept_units(Form::Variable);
    let table = session.table();
    let room = table.unit_bytes / 8 - SegmentHead::WORDS as u64;
    let some = |words: u64, count: u64| vec![words; count as usize];
    let kept = || {
        let kept = table.kept.lock().unwrap();
        kept.iter().map(|span| span.start).collect::<Vec<_>>()
    };
    let before = kept();
    let units = before.len() as u64;
    let fits = |left, lengths: &[u64]| table.fits(left, lengths, Step::SMALL).unwrap();
    for (left, words, most) in [(0, room, units), (room, room, units + 1), (0, room / 2, 2 * units)]
    {
        assert!(fits(left, &some(words, most)) && !fits(left, &some(words, most + 1)), "{words}");
    }
    // Two do not fit where one is more than half.
    assert!(fits(0, &some(room / 2 + 1, units)) && !fits(0, &some(room / 2 + 1, units + 1)));
    assert!(!fits(room, &[room + 1]));
    assert_eq!(kept(), before);
    let free = table.kept.lock().unwrap().pop().unwrap();
    table.space.give(free);
    assert!(fits(0, &some(room, units)) && !fits(0, &some(room, units + 1)));
    table.kept.lock().unwrap().push(table.space.take(free.bytes(), free.bytes()).unwrap().span);
    assert!(table.keeps_segment_for(room).unwrap() && !table.keeps_segment_for(room + 1).unwrap());
}

#[test]
fn a_full_table_can_be_cleared() {
    // Fails if clearing needs more than what is kept back.
    let (session, count) = filled(64 << 10);
    session.table().clear().unwrap();
    assert_eq!(session.table().len().unwrap(), 0);
    (0..count / 2).for_each(|number| assert!(session.table().insert_word(number, 1).unwrap()));
}

/// Puts pairs with keys of one length and values of another until there is no room; returns how
/// many fit.
fn filled_with(bytes: u64, (key_bytes, value_bytes): (usize, usize)) -> (Session<Reef>, u32) {
    let session = Session::<Reef>::tiny(Form::Variable, bytes).unwrap();
    for number in 0.. {
        match session.table().insert(&long_key(number, key_bytes), &vec![3; value_bytes]) {
            Ok(true) => {}
            Err(Error::Full { .. }) => return (session, number),
            other => panic!("{number}: {other:?}"),
        }
    }
    unreachable!("a medium has an end")
}

fn long_key(number: u32, bytes: usize) -> Vec<u8> {
    let mut key = vec![5; bytes];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}

#[test]
fn p07_a_full_table_of_long_keys_removes_every_pair() {
    // Fails if no room is kept back that is as long as the tombstone of a long key.
    let (session, count) = filled_with(64 << 10, (2000, 0));
    let table = session.table();
    for number in 0..count {
        let removed = table.remove(&long_key(number, 2000));
        assert!(matches!(removed, Ok(true)), "{number} of {count}: {removed:?}");
    }
    assert!(table.insert(&long_key(count, 2000), b"").unwrap());
}

#[test]
fn p07_room_is_kept_back_for_the_longest_object() {
    // Fails if what is kept back is too short to move a long value: each segment of a full table
    // keeps one then, and what was removed beside it is never room again.
    let (session, count) = filled_with(256 << 10, (8, 960));
    let table = session.table();
    let long = table.whole_units(SegmentHead::WORDS as u64 + table.longest.load(Relaxed));
    assert!(long > 960 && long > table.segment_bytes());
    let kept: Vec<u64> = table.kept.lock().unwrap().iter().map(|span| span.bytes()).collect();
    assert!(kept.iter().filter(|bytes| **bytes >= long).count() >= 2, "{kept:?}");
    for number in (0..count).step_by(2) {
        assert!(table.remove(&long_key(number, 8)).unwrap());
    }
    for number in 0..count / 3 {
        let added = table.insert(&long_key(count + number, 8), &[4; 960]);
        assert!(matches!(added, Ok(true)), "{number} of {count} again: {added:?}");
    }
}

#[test]
fn room_is_kept_back_for_the_longest_object_of_a_batch() {
    // Fails if only single writes count: a long value of a batch could not be moved, or removed,
    // once the medium is full.
    let session = Session::<Reef>::tiny(Form::Variable, 4 << 20).unwrap();
    let (table, value) = (session.table(), [9; 6000]);
    (0..2000u32).for_each(|key| assert!(table.insert(&key.to_le_bytes(), &[7; 40]).unwrap()));
    table.atomic().unwrap().write_all(&[(b"a long value", Some(&value))]).unwrap();
    assert!(table.longest.load(Relaxed) * 8 > 6000);
    let long = table.whole_units(SegmentHead::WORDS as u64 + table.longest.load(Relaxed));
    let kept: Vec<u64> = table.kept.lock().unwrap().iter().map(|span| span.bytes()).collect();
    assert!(kept.iter().filter(|bytes| **bytes >= long).count() >= 2, "{kept:?}");
}

#[test]
fn a_full_table_removes_pairs_in_batches() {
    // Fails if a batch that only removes asks for room as if it added pairs.
    let (session, count) = filled(64 << 10);
    let table = session.table();
    let keys: Vec<_> = (0..count).map(u64::to_le_bytes).collect();
    for keys in keys.chunks(7) {
        let writes: Vec<_> = keys.iter().map(|key| (&key[..], None)).collect();
        let removed = table.atomic().unwrap().write_all(&writes);
        assert!(removed.is_ok(), "{removed:?}, {:?}", table.stats());
    }
    assert_eq!(table.len().unwrap(), 0);
}

#[test]
fn what_is_kept_back_follows_the_longest_object() {
    // Fails if each longer object adds to what is kept back, until that is as long as the table.
    let session = Session::<Reef>::tiny(Form::Variable, 4 << 20).unwrap();
    let table = session.table();
    for round in 0..60u32 {
        for number in 0..20 {
            let value = vec![7; 200 + 40 * round as usize];
            table.put(&(100 * round + number).to_le_bytes(), &value).unwrap();
        }
    }
    let bytes: u64 = table.kept.lock().unwrap().iter().map(|span| span.bytes()).sum();
    let long = table.whole_units(SegmentHead::WORDS as u64 + table.longest.load(Relaxed));
    let most = 3 * long + 2 * 4 * table.segment_bytes();
    assert!(bytes <= most, "{bytes} of {most} bytes");
}

#[test]
fn what_is_kept_back_for_a_long_object_takes_the_place_of_shorter_spans() {
    // Fails if spans are kept back that others make superfluous: they are no room for pairs.
    // No epoch ends by itself, and gives room back meanwhile.
    let settings = ReefSettings { flush_bytes: 1 << 30, ..ReefSettings::tiny() };
    let medium = Image::new(0, 4 << 20);
    let session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    let table = session.table();
    (0..2000u32).for_each(|key| assert!(table.insert(&key.to_le_bytes(), &[7; 40]).unwrap()));
    let spans = || table.kept.lock().unwrap().iter().map(|span| span.bytes()).collect::<Vec<_>>();
    let short = spans();
    assert!(table.insert(b"a long value", &[9; 6000]).unwrap());
    let long = table.whole_units(SegmentHead::WORDS as u64 + table.longest.load(Relaxed));
    let kept = spans();
    println!("kept back were {short:?}, and are {kept:?}; a long one has {long}");
    assert!(short.len() > 2 && short.iter().all(|bytes| *bytes < long));
    assert!(kept.len() == 2 && kept.iter().all(|bytes| *bytes >= long), "{kept:?}");
}

#[test]
fn a_long_span_is_kept_back_when_it_comes_back() {
    // Fails if short spans are enough because they are many: a long object could not be moved.
    let session = Session::<Reef>::tiny(Form::Variable, 4 << 20).unwrap();
    let table = session.table();
    (0..2000u32).for_each(|key| assert!(table.insert(&key.to_le_bytes(), &[7; 40]).unwrap()));
    assert!(table.insert(b"a long value", &[9; 6000]).unwrap());
    let long = table.whole_units(SegmentHead::WORDS as u64 + table.longest.load(Relaxed));
    let take = |bytes| table.space.take(bytes, table.unit_bytes).unwrap().span;
    let longs = || {
        let kept = table.kept.lock().unwrap();
        kept.iter().filter(|span| span.bytes() >= long).count()
    };
    let count = table.kept_bytes() / table.unit_bytes;
    let short: Vec<_> = (0..count).map(|_| take(table.unit_bytes)).collect();
    *table.kept.lock().unwrap() = short;
    for kept in [1, 2, 2] {
        let span = take(long);
        table.used.fetch_add(span.bytes(), Relaxed);
        table.give(span).unwrap();
        assert_eq!(longs(), kept);
    }
}

#[test]
fn nothing_is_kept_back_for_an_object_that_is_much_of_the_table() {
    // Fails if a small table with one long value is as long again.
    let session = Session::<Reef>::tiny(Form::Variable, 4 << 20).unwrap();
    let table = session.table();
    assert!(table.insert(b"a long value", &[9; 100_000]).unwrap());
    (0..200u32).for_each(|key| assert!(table.insert(&key.to_le_bytes(), &[7; 40]).unwrap()));
    let kept: u64 = table.kept.lock().unwrap().iter().map(|span| span.bytes()).sum();
    assert!(kept < 20_000, "{kept} bytes");
}

#[test]
fn p07_a_clear_takes_a_long_span_apart() {
    // Fails if what is kept back counts by its bytes alone: of one long span only one stream would
    // get a segment.
    let session = Session::<Reef>::tiny(Form::WORDS, 64 << 10).unwrap();
    let table = session.table();
    let span = table.space.take(16 << 10, table.unit_bytes).unwrap().span;
    let refused = (0..).find_map(|key| table.insert_word(key, key).err());
    assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
    // Of all that is kept back only this one, which is long enough for all of it.
    let kept = core::mem::replace(&mut *table.kept.lock().unwrap(), vec![span]);
    assert!(kept.iter().map(|span| span.bytes()).sum::<u64>() <= span.bytes());
    table.clear().unwrap();
    assert_eq!(table.len().unwrap(), 0);
}

#[test]
fn a_long_span_that_comes_back_is_mostly_room_for_pairs() {
    // Fails if all of it is kept back because a little is wanting, or if readers take it for the
    // segment that lay there.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..2000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    keep_nothing(table);
    let span = table.space.take(256 << 10, table.unit_bytes).unwrap().span;
    table.used.fetch_add(span.bytes(), Relaxed);
    table.units.set(span, 7, table.unit_bytes);
    let free = table.space.usage().unwrap().free_bytes;
    table.give(Span::new(span.start, span.words)).unwrap();
    assert!(table.space.usage().unwrap().free_bytes >= free + span.bytes() * 3 / 4);
    assert_eq!(table.units.seal(span.start), 0, "it is no segment any more");
}

#[test]
fn a_closure_is_asked_once_however_full_the_medium_is() {
    // Fails if what was decided of another value than the key has now is decided again.
    const KEY: u64 = 7;
    const OTHERS: usize = 40;
    let (session, count) = filled(64 << 10);
    let (table, calls) = (session.table(), AtomicU64::new(0));
    // No stream has room, whichever the key belongs to.
    (count..count + 300).for_each(|number| drop(table.insert_word(number, 1)));
    let len = table.len().unwrap();
    let outcome = std::thread::scope(|scope| {
        // Whoever finds no room waits here.
        let making_room = table.making_room.lock().unwrap();
        let modified = scope.spawn(|| {
            table.modify(&KEY.to_le_bytes(), &mut |_| {
                calls.fetch_add(1, Relaxed);
                Change::Put(vec![1; 8])
            })
        });
        while calls.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        // It has decided, and holds the latch until it has found no room. A removal has some.
        assert!(table.remove_word(KEY).unwrap());
        // So much garbage in both streams that room can be made more than once. What the
        // removals append fits into what is kept back.
        let others = (0..count).filter(|key| *key != KEY).take(OTHERS);
        others.for_each(|key| assert!(table.remove_word(key).unwrap(), "{key}"));
        drop(making_room);
        modified.join().unwrap()
    });
    assert_eq!(calls.load(Relaxed), 1, "{outcome:?}");
    assert!(matches!(outcome, Err(Error::Full { needed }) if needed > 0), "{outcome:?}");
    assert_eq!(
        (table.get_word(KEY).unwrap(), table.len().unwrap()),
        (None, len - 1 - OTHERS as u64)
    );
}

#[test]
fn a_long_object_that_cannot_be_moved_holds_up_no_other_segment() {
    // Fails if collection tries the segment of such an object for ever, however much garbage others
    // have: of 23,000 removals 22,000 were refused.
    for (streams, bytes) in [(1, 1 << 20), (4, 300 << 10)] {
        let segment_bytes = 64 << 10;
        let settings =
            ReefSettings { streams, shards: 4, buckets: 64, segment_bytes, ..ReefSettings::tiny() };
        let medium = Image::new(0, 4 << 20);
        let session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
        let table = session.table();
        let mut beside = Vec::new();
        for stream in 0..streams as usize {
            let is_its = |key: &u32| table.shard(table.hash(&key.to_le_bytes())).1 == stream;
            let long = (1_000_000u32..).find(is_its).unwrap();
            assert!(table.insert(&long.to_le_bytes(), &vec![1; bytes]).unwrap());
            for key in (2_000_000u32..).filter(is_its).take(3) {
                assert!(table.insert(&key.to_le_bytes(), &[9; 40]).unwrap());
                beside.push(key);
            }
        }
        let fill = |mut keys: core::ops::RangeFrom<u32>| {
            keys.find(|key| table.insert(&key.to_le_bytes(), &[7; 100]).is_err()).unwrap()
        };
        let end = fill(0..);
        for key in beside {
            assert!(table.remove(&key.to_le_bytes()).unwrap());
        }
        // Those of the other streams too.
        (0..400).for_each(|key| drop(table.insert(&(3_000_000u32 + key).to_le_bytes(), &[7; 100])));
        for key in 0..end {
            let removed = table.remove(&key.to_le_bytes());
            assert!(matches!(removed, Ok(true)), "{streams}: {key} of {end}: {removed:?}");
        }
        assert!(fill(4_000_000..) > 4_000_000 + end / 2, "{streams}: the room is there again");
    }
}

/// Takes all free room of a medium, unit by unit.
pub(super) fn take_all(table: &ReefTable<Image>) -> Vec<Span> {
    let take = || table.space.take(table.unit_bytes, table.unit_bytes).ok();
    core::iter::from_fn(take).map(|taken| taken.span).collect()
}

/// Returns a table whose medium has no room but what is kept back, which is of one unit each.
fn with_kept_units(form: Form) -> Session<Reef> {
    let session = Session::<Reef>::tiny(form, 1 << 20).unwrap();
    let table = session.table();
    (0..100u64).for_each(|key| assert!(!table.put(&key.to_le_bytes(), &[7; 8]).unwrap()));
    table.sync().unwrap();
    let all = take_all(table);
    let count = (table.kept_bytes() / table.unit_bytes) as usize;
    *table.kept.lock().unwrap() = all[..count].to_vec();
    session
}

#[test]
fn what_is_kept_back_to_collect_is_not_taken_to_remove() {
    // Fails if removals take all of it: nothing could be collected any more, which makes room.
    let session = with_kept_units(Form::WORDS);
    let table = session.table();
    let count = |purpose| {
        let take = || table.take_segment(purpose, 1, Step::SMALL).ok();
        core::iter::from_fn(take).map(|(span, _)| span.bytes()).sum::<u64>()
    };
    let half = table.kept_bytes() / 2;
    assert_eq!((count(Purpose::Add), count(Purpose::Remove)), (0, half));
    assert_eq!(count(Purpose::Move), half);
}

#[test]
fn the_last_long_span_that_is_kept_back_is_not_taken_to_remove() {
    // Fails if the tombstone of a long key takes what its pair needs to be moved.
    let session = with_kept_units(Form::Variable);
    let table = session.table();
    let words = 3 * table.unit_bytes / 8;
    table.longest.store(words, Relaxed);
    table.used.fetch_add(1 << 20, Relaxed);
    let mut kept = table.kept.lock().unwrap();
    let long = Span::new(kept[0].start, 4 * table.unit_bytes / 8);
    kept.extend([long, Span::new(long.start.plus(long.words), long.words)]);
    drop(kept);
    let take = |purpose| table.take_segment(purpose, words, Step::SMALL).is_ok();
    assert_eq!([Purpose::Remove, Purpose::Remove, Purpose::Move].map(take), [true, false, true]);
}

#[test]
fn a_long_object_that_could_not_be_moved_is_refused() {
    // Fails if it is stored, since it fits into the newest segment, although nothing is kept back
    // that is as long: what is garbage beside it would never be room again.
    const KEY: &[u8] = b"a long value";
    let settings = ReefSettings { segment_bytes: 64 << 10, ..ReefSettings::tiny() };
    let medium = Image::new(0, 4 << 20);
    let session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    let (table, value) = (session.table(), [9; 6000]);
    let has_room = |_: &u32| {
        let stream = table.streams[table.shard(table.hash(KEY)).1].0.lock().unwrap();
        stream.left() > 1000 && table.used.load(Relaxed) > 1 << 20
    };
    let mut keys =
        (0u32..).inspect(|key| assert!(table.insert(&key.to_le_bytes(), &[7; 40]).unwrap()));
    keys.find(has_room).unwrap();
    table.sync().unwrap();
    keep_nothing(table);
    let all = take_all(table);
    // Enough units, of which no two are neighbours.
    all.iter().step_by(2).for_each(|span| table.space.give(*span));
    let refused = table.insert(KEY, &value);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(!table.contains(KEY).unwrap());
    all.iter().skip(1).step_by(2).for_each(|span| table.space.give(*span));
    assert!(table.insert(KEY, &value).unwrap());
}

#[test]
fn a_segment_of_long_objects_has_room_for_a_whole_number_of_them() {
    // Fails if the head is forgotten: of each segment the room of one object would be left over.
    let session = Session::<Reef>::tiny(Form::Variable, 1 << 20).unwrap();
    let table = session.table();
    table.used.fetch_add(1 << 20, Relaxed);
    let unit = table.unit_bytes / 8;
    for words in [unit, 2 * unit, 5 * unit] {
        let (span, _) = table.take_segment(Purpose::Move, words, Step::SMALL).unwrap();
        let left = (span.words - SegmentHead::WORDS as u64) % words;
        assert!(left < unit, "{left} of {} words are left over", span.words);
    }
}

#[test]
fn a_clear_of_a_full_table_waits_for_room_that_an_epoch_makes() {
    // Fails if it is refused although only an epoch is missing for there to be room.
    let session = with_kept_units(Form::WORDS);
    let table = session.table();
    let mut kept = core::mem::take(&mut *table.kept.lock().unwrap());
    kept.truncate(2);
    table.used.fetch_add(2 * table.unit_bytes, Relaxed);
    table.streams[1].0.lock().unwrap().ends.extend(kept);
    table.clear().unwrap();
    assert_eq!(table.len().unwrap(), 0);
}

#[test]
fn a_closure_that_finds_no_room_waits_until_there_is_some() {
    // Fails if it is refused although collecting makes room, as for every other write.
    let (session, count) = filled(64 << 10);
    let table = session.table();
    (0..count).for_each(|key| assert!(table.remove_word(key).unwrap()));
    for key in 0..count * 9 / 10 {
        let put = &mut |_: Option<&[u8]>| Change::Put(vec![1; 8]);
        let added = table.modify(&key.to_le_bytes(), put);
        assert!(added.is_ok(), "{key} of {count}: {added:?}");
    }
    assert_eq!(table.len().unwrap(), count * 9 / 10);
}
