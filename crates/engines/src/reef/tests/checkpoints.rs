//! Checkpoints: an opening believes one only as far as it is sound, and the log behind it wins.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::time::Duration;

use everhash_index::{Form, Inline, Opening, Table, WordTable, create, open as open_table};
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Addr, Boot, Image, Lock, Media, Region, Std};
use everhash_testkit::random::Random;
use everhash_testkit::session::Session;

use crate::reef::layout::{self, CheckpointHead, CheckpointShard, Epoch};
use crate::reef::{Reef, ReefTable};

type Pairs = BTreeMap<u64, u64>;

/// Writes a checkpoint, whether or not the log is long.
pub fn checkpoint<M: Media>(table: &ReefTable<M>) {
    let ends = table.ends(&[]).unwrap();
    let bytes = table.checkpoint_bytes().unwrap();
    table.replace_checkpoint(bytes, ends).unwrap();
}

fn has_checkpoint<M: Media>(table: &ReefTable<M>) -> bool {
    table.epochs.lock().unwrap().checkpoint.is_some()
}

fn holds(session: &Session<Reef>, pairs: &Pairs, keys: u64) -> bool {
    let table = session.table();
    table.len().unwrap() == pairs.len() as u64
        && (0..keys).all(|key| table.get_word(key).unwrap() == pairs.get(&key).copied())
}

/// Returns a table with a checkpoint and a log behind it, and its pairs.
fn with_checkpoint() -> (Session<Reef>, Pairs) {
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    (0..60).for_each(|key| assert!(table.insert_word(key, !key).unwrap()));
    checkpoint(table);
    let mut pairs: Pairs = (0..60).map(|key| (key, !key)).collect();
    for key in 50..70 {
        table.put_word(key, key).unwrap();
        pairs.insert(key, key);
    }
    assert!(table.remove_word(7).unwrap());
    pairs.remove(&7);
    (session, pairs)
}

/// Opens an image that a killed process has left.
fn open(words: &[u64]) -> everhash_index::Result<Session<Reef>> {
    Session::open(Image::of(words, 8 * words.len() as u64, 1 << 20), Form::WORDS)
}

/// Returns where the checkpoint lies that the newest commit record names. Unit: words.
fn place(words: &[u64]) -> usize {
    let record = |number| &words[layout::epoch_place(number).word() as usize..][..Epoch::WORDS];
    let newest = [record(0), record(1)].into_iter().max_by_key(|it| it[Epoch::NUMBER]).unwrap();
    newest[Epoch::CHECKPOINT] as usize / 8
}

#[test]
fn whatever_happens_behind_a_checkpoint_the_newest_version_counts() {
    // Fails if loading brings back what was replaced, removed, cleared or collected meanwhile, or
    // passes over what is only there.
    const KEYS: u64 = 40;
    let mut random = Random::new(11);
    let (mut session, mut pairs) =
        (Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap(), Pairs::new());
    let (mut loaded, mut collected) = (0, 0);
    for step in 0..12_000u64 {
        let (key, table) = (random.below(KEYS), session.table());
        match random.below(400) {
            0 => {
                table.clear().unwrap();
                pairs.clear();
            }
            1..4 => checkpoint(table),
            4 | 5 => table.sync().unwrap(),
            kind @ 6..12 => {
                collected += table.stats().unwrap().own[2].1;
                match kind {
                    6 | 7 => session.reopen().unwrap(),
                    8 | 9 => session.kill_unsynced().unwrap(),
                    _ => session.outage().unwrap(),
                }
                loaded += u64::from(has_checkpoint(session.table()));
                assert!(holds(&session, &pairs, KEYS), "step {step}");
            }
            12..100 => assert_eq!(table.remove_word(key).unwrap(), pairs.remove(&key).is_some()),
            _ => {
                table.put_word(key, step).unwrap();
                pairs.insert(key, step);
            }
        }
    }
    assert!(loaded > 50 && collected > 50, "{loaded} loaded, {collected} collected");
    session.table().check().unwrap();
}

#[test]
fn an_opening_reads_nothing_before_a_checkpoint() {
    // Fails if objects are read that the checkpoint stands for.
    let (mut session, _) = with_checkpoint();
    let first = {
        let stream = session.table().streams[0].0.lock().unwrap();
        stream.sealed.values().next().unwrap().span.start
    };
    let pm = session.region().access();
    let object = first.plus(layout::SegmentHead::WORDS as u64);
    pm.store(object, !pm.load(object).unwrap()).unwrap();
    session.kill_unsynced().unwrap();
    checkpoint(session.table());
    // Without one, the damage is seen at once.
    session.table().give_up_checkpoint().unwrap();
    assert!(session.kill_unsynced().is_err());
}

#[test]
fn p07_a_damaged_checkpoint_is_ignored() {
    // Fails if a flipped bit in a checkpoint changes an answer, or refuses the opening.
    let (mut session, pairs) = with_checkpoint();
    session.table().sync().unwrap();
    let words = session.region().media().words();
    let sound = open(&words).unwrap();
    assert!(has_checkpoint(sound.table()) && holds(&sound, &pairs, 70));
    let start = place(&words);
    let length = words[start + CheckpointHead::LENGTH] as usize;
    for word in 0..length {
        let mut words = words.clone();
        words[start + word] ^= 1 << (7 * word % 64);
        let damaged = open(&words).unwrap_or_else(|error| panic!("word {word}: {error}"));
        assert!(!has_checkpoint(damaged.table()) && holds(&damaged, &pairs, 70), "word {word}");
    }
    session.close().unwrap();
}

/// Redoes all checksums that a checkpoint has, and those of the commit records that name it.
fn redo_sums(words: &mut [u64], start: usize, seed: u64, shards: usize) {
    let at = |word: usize| Addr::new(8 * word as u64);
    let sum = |words: &[u64], from: usize, count: u64| {
        let part = words.get(from..from.saturating_add(count as usize))?;
        Some(layout::long_sum(part, at(from), seed))
    };
    let index = start + CheckpointHead::WORDS;
    let mut part = index + CheckpointShard::WORDS * shards;
    for number in 0..shards {
        let entry = index + CheckpointShard::WORDS * number;
        let count = words[entry + CheckpointShard::LENGTH];
        let Some(sum) = sum(words, part, count) else { break };
        words[entry + CheckpointShard::CHECKSUM] = sum;
        part += count as usize;
    }
    let segments = words[start + CheckpointHead::SEGMENTS].saturating_mul(4);
    if let Some(sum) = sum(words, part, segments) {
        words[start + CheckpointHead::SEGMENTS_SUM] = sum;
    }
    let count = (CheckpointShard::WORDS * shards) as u64;
    words[start + CheckpointHead::SHARDS_SUM] = sum(words, index, count).unwrap();
    let head = &words[start..][..CheckpointHead::CHECKSUM];
    let head_sum = layout::sum(head, at(start), seed);
    words[start + CheckpointHead::CHECKSUM] = head_sum;
    for number in [0, 1] {
        let place = layout::epoch_place(number);
        let record = place.word() as usize;
        words[record + Epoch::CHECKPOINT + 1] = head_sum;
        let record_sum = layout::sum(&words[record..][..Epoch::CHECKSUM], place, seed);
        words[record + Epoch::CHECKSUM] = record_sum;
    }
}

#[test]
fn p07_a_forged_checkpoint_costs_an_error_and_no_more() {
    // Fails if a length, a shape, a count, a place or an end is used before it is bounded: all
    // checksums are right.
    let (session, pairs) = with_checkpoint();
    session.table().sync().unwrap();
    session.table().sync().unwrap();
    let words = session.region().media().words();
    let (start, seed) = (place(&words), session.table().seed);
    let shards = session.table().shards.all().len();
    let mut same = words.clone();
    redo_sums(&mut same, start, seed, shards);
    let sound = open(&same).unwrap();
    assert!(has_checkpoint(sound.table()) && holds(&sound, &pairs, 70));
    let length = words[start + CheckpointHead::LENGTH] as usize;
    let (mut opened, mut loaded) = (0, 0);
    for word in 0..length {
        let present = words[start + word];
        for value in [0, 1, present.wrapping_add(1), present << 1, 1 << 40, u64::MAX] {
            let mut words = words.clone();
            words[start + word] = value;
            redo_sums(&mut words, start, seed, shards);
            let Ok(forged) = open(&words) else { continue };
            opened += 1;
            loaded += u64::from(has_checkpoint(forged.table()));
            let table = forged.table();
            for key in 0..80 {
                let _ = table.get_word(key);
                let _ = table.put_word(key, 1);
                let _ = table.remove_word(key / 2);
            }
            let _ = table.clear();
            let dram = table.stats().unwrap().dram_bytes;
            assert!(dram < 1 << 20, "word {word}, {value:#x}: {dram} bytes of memory");
        }
    }
    println!("{length} words, {opened} opened, {loaded} with their checkpoint");
    assert!(opened > 500 && loaded > 100);
}

#[test]
fn a_full_table_gives_up_its_checkpoint() {
    // Fails if room is refused to pairs for the sake of a checkpoint.
    let fill = |with: bool| {
        let session = Session::<Reef>::tiny(Form::WORDS, 64 << 10).unwrap();
        let table = session.table();
        (0..300).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
        if with {
            checkpoint(table);
            assert!(has_checkpoint(table));
        }
        let count = (300..).take_while(|key| table.insert_word(*key, *key).is_ok()).count();
        assert!(!has_checkpoint(table));
        count
    };
    let (without, with) = (fill(false), fill(true));
    assert!(with + 40 >= without, "{with} pairs, and {without} without a checkpoint");
}

#[test]
fn a_checkpoint_beside_writers_is_of_no_moment_and_right_all_the_same() {
    // Fails if a shard that was copied early or late loses or doubles what was written meanwhile.
    let mut loaded = 0;
    for round in 0..8u64 {
        let mut session = Session::<Reef>::tiny(Form::WORDS, 4 << 20).unwrap();
        let table = session.table();
        let (writes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = |thread: u64| {
            for number in 0.. {
                let key = 2 * (number * 7 % 400) + thread;
                let _ = match (number + round) % 5 {
                    0 => table.remove_word(key).unwrap(),
                    _ => table.put_word(key, number).unwrap(),
                };
                writes.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(0));
            scope.spawn(|| work(1));
            let mut count = 0;
            // Ends: the writers go on until it does.
            while count < 20 || writes.load(Ordering::Relaxed) < 10_000 {
                checkpoint(table);
                count += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        let expected: Vec<_> = (0..800).map(|key| table.get_word(key).unwrap()).collect();
        let was_written = has_checkpoint(table);
        session.kill_unsynced().unwrap();
        let table = session.table();
        assert_eq!(has_checkpoint(table), was_written, "round {round}");
        loaded += u64::from(was_written);
        for (key, value) in (0..).zip(expected) {
            assert_eq!(table.get_word(key).unwrap(), value, "round {round}, key {key}");
        }
    }
    assert!(loaded > 4, "{loaded} loaded");
}

#[test]
fn a_short_log_needs_no_checkpoint_and_a_long_one_gets_it_before_it_is_needed() {
    // Fails if a close of a small table costs room, or if upkeep never writes a checkpoint.
    let settings =
        crate::reef::ReefSettings { flush_bytes: 1 << 14, ..crate::reef::ReefSettings::tiny() };
    let medium = Image::new(0, 8 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..20).for_each(|key| assert!(session.table().insert_word(key, key).unwrap()));
    session.reopen().unwrap();
    assert!(!has_checkpoint(session.table()));
    let mut rounds = 0;
    while !has_checkpoint(session.table()) {
        (0..2000).for_each(|key| {
            session.table().put_word(key, rounds).unwrap();
        });
        let now = Duration::from_secs(rounds);
        session.table().maintain(now, 1000).unwrap();
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(rounds > 2, "{rounds}: it is written again and again");
}

/// Returns where the checkpoint lies that commit records name.
fn named(table: &ReefTable<Image>) -> Option<Addr> {
    let epochs = table.epochs.lock().unwrap();
    epochs.checkpoint.as_ref().map(|checkpoint| checkpoint.span.start)
}

#[test]
fn a_close_with_nothing_behind_a_checkpoint_writes_no_other_one() {
    // Fails if the log that a checkpoint stands for counts once more: each close would write it.
    let (mut session, pairs) = with_checkpoint();
    checkpoint(session.table());
    let before = named(session.table());
    for _ in 0..3 {
        session.reopen().unwrap();
        assert_eq!(named(session.table()), before);
    }
    assert!(before.is_some() && holds(&session, &pairs, 70));
}

#[test]
fn the_log_that_an_opening_has_read_counts_for_the_next_checkpoint() {
    // Fails if a process that is killed again and again reads an ever longer log each time.
    let settings =
        crate::reef::ReefSettings { flush_bytes: 1 << 10, ..crate::reef::ReefSettings::tiny() };
    let medium = Image::new(0, 8 << 20);
    let mut session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    (0..200u8).for_each(|key| assert!(!session.table().put(&[key], &[key; 200]).unwrap()));
    assert!(!has_checkpoint(session.table()));
    session.kill_unsynced().unwrap();
    session.table().maintain(Duration::from_secs(1), 1000).unwrap();
    assert!(has_checkpoint(session.table()));
}

#[test]
fn a_checkpoint_that_does_not_fit_gives_its_room_back() {
    // Fails if room is lost each time a table grows while its checkpoint is being written.
    let (session, pairs) = with_checkpoint();
    let table = session.table();
    let (before, used) = (named(table), table.space.usage().unwrap().used_bytes);
    let heads = CheckpointHead::WORDS + CheckpointShard::WORDS * table.shards.all().len();
    for _ in 0..3 {
        let ends = table.ends(&[]).unwrap();
        table.replace_checkpoint(table.whole_units(heads as u64 + 1), ends).unwrap();
    }
    assert_eq!((named(table), table.space.usage().unwrap().used_bytes), (before, used));
    assert!(holds(&session, &pairs, 70));
}

#[test]
fn power_loss_leaves_a_checkpoint_that_was_written() {
    // Fails if a part of it is not flushed: it would be of no use when it is needed.
    let region = Region::new(Traced::<Std>::new(Model::Adr, 0, 1 << 20));
    let opening = Opening { form: Form::WORDS, ..Opening::default() };
    let settings = crate::reef::ReefSettings::tiny();
    let table = create::<Reef, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    Box::new(table).close().unwrap();
    let words = region.media().visible();
    region.media().restart(&words);
    region.media().begin(0);
    let table = open_table::<Reef, _>(region.clone(), opening.boot, &Inline).unwrap();
    (0..60).for_each(|key| assert!(table.insert_word(key, !key).unwrap()));
    checkpoint(&table);
    region.media().returned(0);
    drop(table);
    let log = region.media().take_log();
    let Boot([machine, boot]) = opening.boot;
    let mut explorer = Explorer::new(Memory::of(Model::Adr, words), log.events());
    let (limits, mut seen, mut states) = (Limits::default(), Seen::default(), 0);
    while let Some(moment) = explorer.next_point().cloned() {
        if moment.returned == 0 {
            continue;
        }
        let _ = explorer.states(&limits, &mut seen, 0, &mut |state| {
            let found = state.on(region.media(), || {
                let boot = Boot([machine, boot + 1]);
                let table = open_table::<Reef, _>(region.clone(), boot, &Inline).unwrap();
                has_checkpoint(&table) && table.len().unwrap() == 60
            });
            assert!(found);
            states += 1;
            ControlFlow::Continue(())
        });
    }
    assert!(states > 0);
}

#[test]
fn a_close_behind_a_long_log_writes_a_checkpoint() {
    // Fails if what a process wrote without upkeep is read object by object at every opening.
    let settings =
        crate::reef::ReefSettings { flush_bytes: 1 << 14, ..crate::reef::ReefSettings::tiny() };
    let medium = Image::new(0, 8 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..1000).for_each(|key| assert!(session.table().insert_word(key, !key).unwrap()));
    assert!(!has_checkpoint(session.table()));
    session.reopen().unwrap();
    assert!(has_checkpoint(session.table()));
    assert!(holds(&session, &(0..1000).map(|key| (key, !key)).collect(), 1001));
}

#[test]
fn a_checkpoint_that_is_longer_than_the_last_ones_finds_other_room() {
    // Fails if the room of the one before the last is taken although it is too short: the table
    // would have no new checkpoint.
    let (session, _) = with_checkpoint();
    let table = session.table();
    checkpoint(table);
    let before = named(table);
    (100..2000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    checkpoint(table);
    assert_ne!(named(table), before);
}

#[test]
fn room_for_the_next_checkpoint_is_given_up_at_rest() {
    // Fails if a table to which nobody writes keeps room for two checkpoints.
    let (session, pairs) = with_checkpoint();
    let table = session.table();
    checkpoint(table);
    assert!(table.spare.lock().unwrap().is_some());
    let is_done = |seconds| {
        let now = Duration::from_secs(seconds);
        let upkeep = table.maintain(now, 1000).unwrap();
        !upkeep.more && upkeep.deadline.is_none()
    };
    assert!((1..1000).any(|round| is_done(10 * round)));
    assert!(table.spare.lock().unwrap().is_none());
    assert!(has_checkpoint(table) && holds(&session, &pairs, 70));
}

#[test]
fn a_table_at_rest_is_found_by_its_checkpoint_when_its_process_is_killed() {
    // Fails if the objects of a table to which nobody writes are read because it was not closed, or
    // if each pause costs a checkpoint however little was written.
    let settings =
        crate::reef::ReefSettings { flush_bytes: 1 << 10, ..crate::reef::ReefSettings::tiny() };
    let medium = Image::new(0, 8 << 20);
    let mut session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    let mut pairs = Pairs::new();
    let mut now = 0;
    let mut write = |session: &Session<Reef>, count: u64| {
        for _ in 0..count {
            let key = pairs.len() as u64;
            assert!(session.table().insert_word(key, !key).unwrap());
            pairs.insert(key, !key);
        }
        now += 1;
        let upkeep = session.table().maintain(Duration::from_secs(now), 1000).unwrap();
        assert!(upkeep.deadline.is_some());
        pairs.clone()
    };
    let rest = |session: &Session<Reef>, from: u64| {
        // Ends: nothing is written, and what is left to do becomes less.
        (from..).step_by(10).find(|seconds| {
            let upkeep = session.table().maintain(Duration::from_secs(*seconds), 1000).unwrap();
            upkeep.deadline.is_none() && !upkeep.more
        });
    };
    write(&session, 2000);
    assert!(!has_checkpoint(session.table()), "somebody may still write");
    rest(&session, 100);
    let first = named(session.table());
    assert!(first.is_some());
    // A third of its length.
    write(&session, session.table().checkpoint_bytes().unwrap() / 24 / 3);
    rest(&session, 1000);
    assert_eq!(named(session.table()), first, "after so little");
    let pairs = write(&session, 20_000);
    rest(&session, 10_000);
    session.kill_unsynced().unwrap();
    let table = session.table();
    let tails = table.epochs.lock().unwrap().checkpoint.as_ref().unwrap().tails.clone();
    assert_ne!(named(table), first);
    assert_eq!(table.ends(&tails).unwrap().log, 0, "bytes of log");
    assert!(holds(&session, &pairs, pairs.len() as u64 + 1));
}
