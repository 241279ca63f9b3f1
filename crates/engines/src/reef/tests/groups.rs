//! Atomic batches: of what one call writes, a crash leaves all or none.

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;

use everhash_index::{
    Engine, Error, Form, Inline, Opening, Table, WordTable, create, open, open_read_only,
};
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen, What};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Boot, Image, Lock, Region, Std, WORD};
use everhash_testkit::crash::Effort;
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use super::ends::{Step, contents, end_everywhere, expected, fill, take};
use super::settings::Immediate;
use crate::reef::layout::{BATCH, BatchRecord, SegmentHead};
use crate::reef::{Reef, ReefSettings, ReefTable, groups, layout};

/// Returns single writes and batches of new, present and removed keys, in turn.
fn steps() -> Vec<Step> {
    let batch = |first: u16| -> Step {
        let writes = first..first + 9;
        writes.map(|n| (n * 5 % 45, (n % 4 != 3).then_some(u32::from(n) * 10))).collect()
    };
    vec![vec![(1, Some(5))], batch(0), vec![(2, None)], batch(7), batch(20), vec![(3, Some(9))]]
}

#[test]
fn a_batch_is_a_map_of_its_writes() {
    // Fails if a write of a batch is lost or done twice, or if not the last one to a key counts.
    for form in super::FORMS {
        let (shape, mut known) = (Shape::tiny(form), BTreeMap::new());
        let mut session = Session::<Reef>::tiny(form, 1 << 20).unwrap();
        for round in 0..60u32 {
            let step: Step = (0..round % 23)
                .map(|n| (((round * 7 + n * 13) % 64) as u16, (n % 3 != 2).then_some(round + n)))
                .collect();
            if step.len() != 1 {
                take(session.table(), &shape, &step);
                for (key, value) in step {
                    match value {
                        Some(value) => drop(known.insert(shape.key(key), shape.value(value))),
                        None => drop(known.remove(&shape.key(key))),
                    }
                }
            }
            match round % 9 {
                4 => session.kill_unsynced().unwrap(),
                8 => session.reopen().unwrap(),
                _ => {}
            }
            assert_eq!(session.table().len().unwrap(), known.len() as u64);
            let mut value = Vec::new();
            for (key, expected) in &known {
                assert!(session.table().get(key, &mut value).unwrap() && value == *expected);
            }
        }
        assert_eq!(session.table().check().unwrap().items, known.len() as u64);
    }
}

#[test]
fn a_batch_without_room_writes_nothing() {
    // Fails if a part of a batch is there after it was refused.
    let session = Session::<Reef>::tiny(Form::Variable, 64 << 10).unwrap();
    let (table, value) = (session.table(), vec![7; 9000]);
    table.put(b"present", &value).unwrap();
    let keys: Vec<_> = (0..20u8).map(|number| [number]).collect();
    let mut writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&value[..]))).collect();
    writes.push((b"present", None));
    let refused = table.atomic().unwrap().write_all(&writes);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(table.len().unwrap() == 1 && table.contains(b"present").unwrap());
    table.atomic().unwrap().write_all(&writes[18..]).unwrap();
    assert!(table.len().unwrap() == 2 && !table.contains(b"present").unwrap());
}

#[test]
fn a_batch_whose_keys_crowd_the_directory_is_refused_before_it_is_written() {
    // Fails if room is made for each key of a batch alone: the table is poisoned then.
    let settings = ReefSettings { streams: 1, shards: 1, buckets: 1, ..ReefSettings::tiny() };
    let medium = Image::new(0, 4 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let table = session.table();
    let insert_all = |table: &ReefTable<_>, keys: &[[u8; 8]]| {
        let writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&key[..]))).collect();
        table.atomic().unwrap().write_all(&writes)
    };
    let is_alike = |key: &[u8; 8]| table.hash(key) & 0xfff == 5;
    let alike: Vec<_> = (0..).map(u64::to_le_bytes).filter(is_alike).take(12).collect();
    let refused = insert_all(table, &alike);
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    assert_eq!(table.len().unwrap(), 0);
    // Keys that were not chosen split all leaves alike.
    let others: Vec<_> = (0..5000).map(u64::to_le_bytes).collect();
    insert_all(table, &others).unwrap();
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().check().unwrap().items, 5000);
}

#[test]
fn the_end_of_a_process_leaves_all_of_a_batch_or_none() {
    // Fails if the tails of streams are followed one by one, or if objects of a batch behind them
    // count before its record does.
    for form in super::FORMS {
        let batch = end_everywhere::<Reef>(form, &steps(), None);
        let immediate = end_everywhere::<Immediate>(form, &steps(), None);
        for (ends, wrong) in [batch, immediate] {
            assert!(ends > 300 && wrong == 0, "{form}: {wrong} of {ends}");
        }
    }
    let record = Mutant { site: groups::sites::RECORD, change: Change::DropCommit };
    let tail = Mutant { site: groups::sites::TAIL, change: Change::SwapCommit };
    for mutant in [record, tail] {
        let (ends, wrong) = end_everywhere::<Reef>(Form::WORDS, &steps(), Some(mutant));
        assert!(wrong > 0, "{mutant}: none of {ends}");
    }
}

/// Loses power at every point of some steps; returns how many states there were.
fn lose_power<E: Engine>(form: Form, model: Model, is_immediate: bool) -> u64 {
    let shape = Shape::tiny(form);
    let region = Region::new(Traced::<Std>::new(model, 0, 64 << 10));
    let opening = Opening { form, ..Opening::default() };
    let table = create::<E, _>(region.clone(), &opening, &E::tiny(form), &Inline).unwrap();
    fill(&table, &shape);
    Box::new(table).close().unwrap();
    let words = region.media().visible();
    region.media().restart(&words);
    region.media().begin(0);
    let table = open::<E, _>(region.clone(), opening.boot, &Inline).unwrap();
    region.media().returned(0);
    for (step, number) in steps().iter().zip(1..) {
        region.media().begin(number);
        take(&table, &shape, step);
        region.media().returned(number);
    }
    drop(table);
    let log = region.media().take_log();
    let all: Vec<_> = (0..=steps().len()).map(|count| expected(&shape, &steps(), count)).collect();
    let Boot([machine, boot]) = opening.boot;
    let after = Opening { boot: Boot([machine, boot + 1]), ..opening };
    let mut explorer = Explorer::new(Memory::of(model, words), log.events());
    let limits =
        Limits { product: 24, lazy: 8, single: 8, pairs: 8, random: 8, ..Effort::default().limits };
    let (mut seen, mut states) = (Seen::default(), 0);
    while let Some(moment) = explorer.next_point().cloned() {
        let done = (moment.returned as usize).saturating_sub(1);
        let first = if is_immediate { done } else { 0 };
        let may_be = &all[first..(done + 2).min(all.len())];
        let _ = explorer.states(&limits, &mut seen, done as u64, &mut |state| {
            let found = state.on(region.media(), || {
                // A check of what power loss left finds damage only where an opening does.
                E::check(&region, Boot::default(), &mut |_, _| {}).unwrap();
                contents::<E>(&region, &after)
            });
            assert!(may_be.contains(&found), "{form}, {model}, after {done} steps: {found:?}");
            states += 1;
            ControlFlow::Continue(())
        });
    }
    states
}

#[test]
fn power_loss_leaves_all_of_a_batch_or_none() {
    // Fails if a cut comes between the objects of a batch, or if immediate writes count before a
    // commit record speaks of all of them.
    for model in [Model::Adr, Model::Eadr, Model::File] {
        for form in super::FORMS {
            let batch = lose_power::<Reef>(form, model, false);
            let immediate = lose_power::<Immediate>(form, model, true);
            println!("{form}, {model}: {batch} states of batches, {immediate} of immediate writes");
            assert!(batch > 50 && immediate > 50);
        }
    }
}

#[test]
fn a_batch_that_power_loss_took_never_comes_back() {
    // Fails if the record of a batch counts for a later opening than its own: a process that is
    // killed then would bring back what was gone before.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..4u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    table.sync().unwrap();
    let keys: Vec<_> = (4..8u64).map(u64::to_le_bytes).collect();
    let writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&key[..]))).collect();
    table.atomic().unwrap().write_all(&writes).unwrap();
    let words = session.region().media().words();
    let medium = Image::of(&words, 8 * words.len() as u64, 1 << 20);
    let mut session = Session::<Reef>::open_after_power(medium, Form::WORDS).unwrap();
    assert_eq!(session.table().len().unwrap(), 4);
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().len().unwrap(), 4);
}

#[test]
fn what_is_written_in_batches_alone_is_collected_and_waits_for_no_longer_epoch() {
    // Fails if only single writes count: power loss would take back more than it may, and the
    // table would grow without end.
    let session = Session::<Reef>::tiny(Form::WORDS, 4 << 20).unwrap();
    let table = session.table();
    let (batches, bytes) = (2000u64, 20 * 24);
    for round in 0..batches {
        let pairs: Vec<_> = (0..20u64).map(|key| [key, round].map(u64::to_le_bytes)).collect();
        let writes = pairs.iter().map(|[key, value]| (&key[..], Some(&value[..])));
        let writes: Vec<_> = writes.collect();
        table.atomic().unwrap().write_all(&writes).unwrap();
    }
    let epochs = table.epochs.lock().unwrap().number;
    let flush_bytes = table.settings.flush_bytes;
    assert!(epochs > batches * bytes / flush_bytes / 2, "{epochs} epochs");
    let used = table.used.load(Ordering::Relaxed);
    assert!(used < 40 << 10, "{used} bytes");
}

#[test]
fn tombstones_of_a_batch_count_as_those_of_single_writes() {
    // Fails if a table that is emptied by batches is taken for one without tombstones, which are
    // collected only if they are many.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..40u64).for_each(|key| assert!(table.insert_word(key, 1).unwrap()));
    let tombstones = || -> u64 {
        let streams = table.streams.iter().map(|stream| stream.0.lock().unwrap());
        let each = streams.map(|stream| {
            let sealed: u64 = stream.sealed.values().map(|it| it.tombstones).sum();
            sealed + stream.open.map_or(0, |it| it.tombstones)
        });
        each.sum()
    };
    assert!(table.remove_word(0).unwrap());
    let one = tombstones();
    let keys: Vec<_> = (1..3u64).map(u64::to_le_bytes).collect();
    let writes: Vec<_> = keys.iter().map(|key| (&key[..], None)).collect();
    table.atomic().unwrap().write_all(&writes).unwrap();
    assert!(one > 0 && tombstones() == 3 * one, "{one}, {}", tombstones());
}

/// Returns so many keys of a stream, and a write of each.
fn keys_of(table: &ReefTable<Traced>, stream: usize, count: usize) -> Vec<[u8; 8]> {
    let keys = (0..).map(u64::to_le_bytes);
    keys.filter(|key| table.shard(table.hash(key)).1 == stream).take(count).collect()
}

#[test]
fn of_two_batches_beside_each_other_the_end_of_the_process_leaves_all_or_none() {
    // Fails if one of them overwrites the record of the other before all its tails have moved.
    const ROUNDS: u64 = 60;
    let region = Region::new(Traced::<Std>::new(Model::File, 0, 256 << 10));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = ReefSettings { streams: 4, shards: 4, buckets: 4, ..ReefSettings::tiny() };
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    // Each batch has streams of its own, so that both may hold their latches.
    let parts = [[0, 1], [2, 3]].map(|streams| streams.map(|stream| keys_of(&table, stream, 2)));
    let keys = parts.map(|parts| parts.concat());
    let write = |keys: &[[u8; 8]], round: u64| {
        let value = round.to_le_bytes();
        let writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&value[..]))).collect();
        table.atomic().unwrap().write_all(&writes).unwrap();
    };
    keys.iter().for_each(|keys| write(keys, 0));
    table.sync().unwrap();
    let mut words = region.media().visible();
    drop(region.media().take_log());
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for keys in &keys {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    start.wait();
                    write(keys, round);
                }
            });
        }
    });
    drop(table);
    let log = region.media().take_log();
    let mut ends = 0;
    for event in log.events() {
        match event.what {
            What::Grow { bytes } => words.resize((bytes / WORD) as usize, 0),
            What::Store { word, value, .. } => {
                words[word as usize] = value;
                // The record, or where a stream ends: what may be there in part.
                let (word, record) = (u64::from(word), BATCH.word());
                let is_record = (record..record + BatchRecord::WORDS as u64).contains(&word);
                if !is_record && word % 8 != SegmentHead::TAIL as u64 {
                    continue;
                }
                region.media().restart(&words);
                let table = open::<Reef, _>(region.clone(), opening.boot, &Inline).unwrap();
                for keys in &keys {
                    let values = keys.iter().map(|key| table.get_word(u64::from_le_bytes(*key)));
                    let values: BTreeSet<_> = values.map(Result::unwrap).collect();
                    assert_eq!(values.len(), 1, "half a batch is there: {values:?}");
                }
                ends += 1;
            }
            _ => {}
        }
    }
    assert!(ends > 1000, "{ends}");
}

#[test]
fn objects_of_a_batch_say_so() {
    // Fails if an object of a batch could be taken for one that counts by itself.
    for kind in [layout::Kind::Put, layout::Kind::Removed] {
        let word = layout::fixed_head(1, kind.batched_code(), &[2, 3]);
        assert!(layout::is_batched(word) && layout::Kind::of(word) == Some(kind));
        assert!(!layout::is_batched(layout::fixed_head(1, kind.code(), &[2, 3])));
    }
}

#[test]
fn a_batch_tells_which_keys_came_and_went() {
    // Fails if a write that only replaces is told of, or a removal of nothing, or the one as the
    // other: a count of pairs beside the table would be wrong.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    let [replaced, removed, new, absent] = [1u64, 2, 3, 4].map(u64::to_le_bytes);
    [1, 2].into_iter().for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let (value, mut told) = (Some(&[9; 8][..]), BTreeMap::new());
    let writes = [(&replaced[..], value), (&removed, None), (&new, value), (&absent, None)];
    let tell = &mut |key: &[u8], is_there| assert!(told.insert(key.to_vec(), is_there).is_none());
    table.atomic().unwrap().write_all_and_tell(&writes, tell).unwrap();
    assert_eq!(told, BTreeMap::from([(removed.to_vec(), false), (new.to_vec(), true)]));
}

#[test]
fn a_batch_is_refused_where_only_reading_is_allowed() {
    // Fails if single writes alone ask: a pool that is open for reading only would be written to.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    assert!(session.table().insert_word(1, 1).unwrap());
    session.close().unwrap();
    let (before, key) = (session.region().media().words(), 1u64.to_le_bytes());
    let table = open_read_only::<Reef, _>(session.region().clone(), &Inline).unwrap();
    for value in [Some(&key[..]), None] {
        let refused = table.atomic().unwrap().write_all(&[(&key, value)]);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    assert_eq!(table.get_word(1).unwrap(), Some(1));
    drop(table);
    assert_eq!(session.region().media().words(), before);
}

#[test]
fn a_batch_of_which_not_all_can_be_published_is_the_last_thing_that_a_table_answers() {
    // Fails if readers go on with a part of it: the medium has all of it by then.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (table, pm) = (session.table(), session.region().access());
    let [new, present] = [1u64, 2].map(u64::to_be_bytes);
    assert!(table.insert(&present, &[7; 8]).unwrap());
    let number = table.shard(table.hash(&present)).1;
    let at = {
        let stream = table.streams[number].0.lock().unwrap();
        stream.open.unwrap().span.start.plus(SegmentHead::WORDS as u64)
    };
    // Behind the first key that came, and before the other one is looked for again.
    let damage = &mut |_: &[u8], _| pm.store(at, !pm.load(at).unwrap()).unwrap();
    let writes: [(&[u8], Option<&[u8]>); 2] = [(&new, Some(&[8; 8])), (&present, Some(&[9; 8]))];
    let outcome = table.atomic().unwrap().write_all_and_tell(&writes, damage);
    assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
    let after = table.get(&new, &mut Vec::new());
    assert!(matches!(after, Err(Error::Poisoned)), "{after:?}");
}

#[test]
fn a_batch_that_adds_and_removes_takes_nothing_of_what_is_kept_back() {
    // Fails if one removal lets all of a batch have the room that only removals may take.
    let session = Session::<Reef>::tiny(Form::WORDS, 64 << 10).unwrap();
    let table = session.table();
    let count = (0..).find(|key| table.insert_word(*key, 1).is_err()).unwrap();
    let kept = || table.kept.lock().unwrap().iter().map(|span| span.bytes()).sum::<u64>();
    let before = kept();
    let keys: Vec<_> = (count..count + 40).map(u64::to_le_bytes).collect();
    let mut writes: Vec<_> = keys.iter().map(|key| (&key[..], Some(&key[..]))).collect();
    writes.push((&[0; 8], None));
    let refused = table.atomic().unwrap().write_all(&writes);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert_eq!((kept(), table.len().unwrap()), (before, count));
}

#[test]
fn an_immediate_batch_begins_no_segment_where_it_writes_nothing() {
    // Fails if each opening leaves one in every stream of which a batch says the end.
    let mut session = Session::<Immediate>::tiny(Form::WORDS, 1 << 20).unwrap();
    assert!(session.table().insert_word(1, 1).unwrap());
    session.reopen().unwrap();
    let (table, key) = (session.table(), 1u64.to_le_bytes());
    table.atomic().unwrap().write_all(&[(&key, Some(&key))]).unwrap();
    let begun = table.streams.iter().map(|stream| stream.0.lock().unwrap().open.is_some());
    assert_eq!(begun.filter(|is_begun| *is_begun).count(), 1);
}
