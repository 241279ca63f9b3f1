//! Runs: what threads that write one stream by turns store each for itself.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::mpsc;

use everhash_index::{Design, Engine, Error, Form, Inline, Table, WordTable, open};
use everhash_pmem::{Image, Lock, Region, Std, WORD, as_thread};
use everhash_testkit::session::Session;
use everhash_testkit::{model, race};

use crate::reef::collection::{Collected, NOTHING};
use crate::reef::layout;
use crate::reef::runs::Run;
use crate::reef::stream::{Stream, Victim};
use crate::reef::{Reef, ReefSettings, ReefTable};

/// Threads, as it were: who has written alone, and two whose runs follow one another.
const ALONE: u32 = 1;
const FIRST: u32 = 2;
const SECOND: u32 = 3;

/// How long a run is here. Unit: words.
const RUN: u64 = 64;

/// So many runs of a thread one after the other, and it takes none any more.
const ALONE_FOR: u64 = 64;

/// Pairs that one thread wrote, so that segments are long enough for runs.
const BEFORE: u64 = 20_000;

/// A key that was removed while one thread wrote.
const REMOVED: u64 = 7;

fn put(table: &ReefTable<Image>, thread: u32, key: u64, value: u64) {
    as_thread(thread, || table.put_word(key, value).unwrap());
}

fn run_of(table: &ReefTable<Image>, thread: u32) -> Run {
    as_thread(thread, || *table.runs.own(0).lock().unwrap())
}

/// Settings of one stream and one shard whose segments are long enough for runs.
fn settings() -> ReefSettings {
    ReefSettings {
        streams: 1,
        shards: 1,
        segment_bytes: 64 << 10,
        flush_bytes: 16 << 20,
        run_bytes: RUN * WORD,
        ..ReefSettings::tiny()
    }
}

/// Makes a table in which two threads have runs, one behind the other. Keys up to [`BEFORE`] have
/// the value 0, but for one that was removed when half of them were there; those of the runs are
/// higher.
fn with_runs() -> Session<Reef> {
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings()).unwrap();
    let table = session.table();
    (0..=BEFORE / 2).for_each(|key| put(table, ALONE, key, 0));
    as_thread(ALONE, || assert!(table.remove_word(REMOVED).unwrap()));
    (BEFORE / 2..=BEFORE).for_each(|key| put(table, ALONE, key, 0));
    assert!(!table.runs.are_taken(), "who writes alone takes no run");
    put(table, FIRST, BEFORE + 1, 0);
    put(table, SECOND, BEFORE + 2, 0);
    let [first, second] = [FIRST, SECOND].map(|thread| run_of(table, thread));
    assert!(first.at < second.at && second.at < first.end, "{first:?}, {second:?}");
    session
}

/// Puts a pair in the run of a thread.
fn put_in_run(table: &ReefTable<Image>, thread: u32, key: u64, value: u64) {
    let before = run_of(table, thread);
    put(table, thread, key, value);
    let after = run_of(table, thread);
    assert_eq!((after.at, after.left), (before.at.plus(3), before.left - 3), "it is in the run");
}

/// Opens what is on the medium after power loss that has left every store.
fn after_power(session: &Session<Reef>) -> Session<Reef> {
    let words = session.region().media().words();
    let bytes = WORD * words.len() as u64;
    Session::open_after_power(Image::of(&words, bytes, 2 * bytes), Form::WORDS).unwrap()
}

#[test]
fn what_threads_put_by_turns_is_there_after_a_kill_and_unused_room_is_garbage() {
    // Fails if room between two runs is taken for the end of a segment, or never comes back.
    let mut session = with_runs();
    let keys = BEFORE + 10..BEFORE + 3000;
    keys.clone().for_each(|key| put(session.table(), 2 + (key * key / 7) as u32 % 2, key, !key));
    let left =
        [FIRST, SECOND].map(|thread| run_of(session.table(), thread).left).iter().sum::<u64>();
    assert!(left > 0, "a run was left half full");
    let dead = session.table().stats().unwrap().dead_bytes;
    session.table().check().unwrap();
    session.kill_unsynced().unwrap();
    session.table().check().unwrap();
    assert_eq!(session.table().len().unwrap(), keys.end - 8);
    for key in keys {
        assert_eq!(session.table().get_word(key).unwrap(), Some(!key), "{key}");
    }
    assert_eq!(session.table().stats().unwrap().dead_bytes, dead.map(|dead| dead + WORD * left));
}

#[test]
fn a_newer_version_lies_behind_the_older_one_whoever_wrote_that() {
    // Fails if a pair is replaced in a run before it: the older version comes back.
    let mut session = with_runs();
    put_in_run(session.table(), SECOND, 70_000, 1);
    let before = run_of(session.table(), FIRST);
    put(session.table(), FIRST, 70_000, 2);
    assert!(run_of(session.table(), FIRST).at > before.at.plus(3), "it went to the stream's end");
    put_in_run(session.table(), SECOND, 70_001, 1);
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().get_word(70_000).unwrap(), Some(2));
}

#[test]
fn a_tombstone_lies_behind_what_it_removes_and_is_counted() {
    // Fails if a pair is removed in a run before it: it comes back. And if the tombstones of runs
    // are forgotten, or those of a segment that has ended meanwhile: nobody would collect them.
    let mut session = with_runs();
    let table = session.table();
    put_in_run(table, SECOND, 70_000, 1);
    as_thread(FIRST, || assert!(table.remove_word(70_000).unwrap()));
    for number in 0..3000 {
        as_thread(FIRST + number % 2, || {
            assert!(table.remove_word(10 + u64::from(number)).unwrap());
        });
    }
    let counted = |table: &ReefTable<Image>| -> u64 {
        let stream = table.streams[0].0.lock().unwrap();
        let open = stream.open.iter().map(|open| open.tombstones);
        stream.sealed.values().map(|sealed| sealed.tombstones).chain(open).sum()
    };
    // A tombstone of words has two.
    assert!(counted(table) < 2 * 3002, "runs know of some");
    table.sync().unwrap();
    assert_eq!(counted(table), 2 * 3002);
    session.kill_unsynced().unwrap();
    assert_eq!(counted(session.table()), 2 * 3002);
    assert_eq!(session.table().get_word(70_000).unwrap(), None);
}

#[test]
fn a_key_is_added_behind_its_tombstone_whoever_wrote_that() {
    // Fails if a removed key is added in a run before the tombstone: it is gone after a kill.
    let mut session = with_runs();
    as_thread(SECOND, || assert!(session.table().remove_word(5).unwrap()));
    put(session.table(), FIRST, 5, 3);
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().get_word(5).unwrap(), Some(3));
}

#[test]
fn a_key_is_added_behind_its_tombstone_though_a_newer_one_of_its_shard_lies_before() {
    // Fails if the newest tombstone of a shard counts and not the last one in the stream: the key
    // is added between the two, and gone after a kill.
    let mut session = with_runs();
    for (thread, key) in [(SECOND, 5), (FIRST, 6)] {
        as_thread(thread, || assert!(session.table().remove_word(key).unwrap()));
    }
    put(session.table(), FIRST, 5, 3);
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().get_word(5).unwrap(), Some(3));
}

#[test]
fn a_key_is_added_behind_its_tombstone_that_collecting_has_moved() {
    // Fails if only removals say where the newest tombstone lies.
    let mut session = with_runs();
    let table = session.table();
    let buried = |stream: &Stream| {
        let (sequence, segment) = stream.sealed.iter().find(|(_, it)| it.tombstones > 0).unwrap();
        Victim::new(0, (*sequence, *segment), false, 0)
    };
    let mut victim = buried(&table.streams[0].0.lock().unwrap());
    assert!(table.collect(&mut victim, u64::MAX).unwrap());
    put(table, FIRST, REMOVED, 3);
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().get_word(REMOVED).unwrap(), Some(3));
}

#[test]
fn nothing_is_stored_before_an_end_that_is_durable() {
    // Fails if a run outlives the cut of an epoch: power loss would leave a part of the next one.
    let session = with_runs();
    put_in_run(session.table(), SECOND, 70_000, 1);
    put_in_run(session.table(), FIRST, 70_001, 1);
    let dead = || session.table().stats().unwrap().dead_bytes.unwrap();
    let (before, left) =
        (dead(), [FIRST, SECOND].map(|thread| run_of(session.table(), thread).left));
    session.table().sync().unwrap();
    assert_eq!(dead(), before + WORD * left.iter().sum::<u64>(), "what is left is garbage");
    put(session.table(), FIRST, 70_002, 1);
    put(session.table(), SECOND, 70_003, 1);
    let found = after_power(&session);
    let values = [70_000, 70_001, 70_002, 70_003].map(|key| found.table().get_word(key).unwrap());
    assert_eq!(values, [Some(1), Some(1), None, None]);
}

#[test]
fn a_run_ends_with_its_segment() {
    // Fails if a thread goes on in a run of a segment behind which another one was begun: what is
    // moved meanwhile would be newer.
    let mut session = with_runs();
    put_in_run(session.table(), FIRST, 70_000, 1);
    let before = run_of(session.table(), FIRST);
    let sequence = || session.table().streams[0].0.lock().unwrap().last.sequence;
    let first = sequence();
    let mut key = 80_000;
    while sequence() == first {
        put(session.table(), SECOND, key, 1);
        key += 1;
    }
    put(session.table(), FIRST, 70_000, 2);
    let after = run_of(session.table(), FIRST);
    assert_eq!((after.at == before.at, after.seal == before.seal), (false, false), "{after:?}");
    session.kill_unsynced().unwrap();
    assert_eq!(session.table().get_word(70_000).unwrap(), Some(2));
}

#[test]
fn no_run_is_in_memory_that_is_not_prepared() {
    // Fails if a thread takes a run where another one prepares memory: what it stores there may be
    // overwritten by zeros. And if its stores wait for memory one by one.
    let session = with_runs();
    let table = session.table();
    for (thread, is_preparing) in [(SECOND + 1, true), (SECOND + 2, false)] {
        let mut stream = table.streams[0].0.lock().unwrap();
        stream.pending = 1 << 20;
        let open = stream.open.as_mut().unwrap();
        (open.renewed, open.is_preparing) = (open.fill + RUN / 8, is_preparing);
        drop(stream);
        put(table, thread, 70_000 + u64::from(thread), 1);
        assert_eq!(run_of(table, thread).left, 0, "{is_preparing}");
    }
}

#[test]
fn threads_that_remove_by_turns_have_runs() {
    // Fails if removals take no runs; or if every write looks for a run though all have ended.
    let session = with_runs();
    let table = session.table();
    table.sync().unwrap();
    assert!(!table.runs.are_taken());
    for thread in [FIRST, SECOND] {
        as_thread(thread, || assert!(table.remove_word(10 + u64::from(thread)).unwrap()));
    }
    assert!(table.runs.are_taken());
}

#[test]
fn immediate_writes_have_no_runs() {
    // Fails if a pair that is durable when it is written lies in a run: objects count there up to
    // the first that is not whole.
    let medium = Image::new(0, 8 << 20);
    let settings = ReefSettings { durability: 1, ..settings() };
    let session = Session::<Reef>::create(medium, Form::WORDS, &settings).unwrap();
    (0..BEFORE).for_each(|key| put(session.table(), key as u32 % 2, key, 0));
    assert!(!session.table().runs.are_taken());
}

#[test]
fn what_lies_in_runs_counts_as_written() {
    // Fails if epochs end as if it were not there: power loss would take more than it may.
    let session = with_runs();
    let written = || session.table().streams[0].0.lock().unwrap().written();
    let before = written();
    let keys = BEFORE + 10..BEFORE + 1000;
    keys.clone().for_each(|key| put(session.table(), FIRST + key as u32 % 2, key, 0));
    let pairs = WORD * 3 * (keys.end - keys.start);
    // Each of the two had a run that was not full, and may have one.
    let runs = 2 * WORD * RUN;
    let ends = pairs / 16;
    assert!((pairs - runs..pairs + runs + ends).contains(&(written() - before)));
}

#[test]
fn room_is_kept_back_for_the_longest_object_wherever_that_lies() {
    // Fails if one that is longer than all before lies in a run, and on a full medium nobody could
    // move it.
    let medium = Image::new(0, 8 << 20);
    let session = Session::<Reef>::create(medium, Form::Variable, &settings()).unwrap();
    let table = session.table();
    let put = |thread, key: u64, bytes| {
        as_thread(thread, || table.put(&key.to_le_bytes(), &vec![1; bytes]).unwrap());
    };
    (0..BEFORE).for_each(|key| put(key as u32 % 2, key, 8));
    for (thread, words) in [(0, RUN / 8 - 1), (1, RUN / 8)] {
        let mut key = BEFORE * (1 + u64::from(thread));
        while run_of(table, thread).left < words {
            put(thread, key, 8);
            key += 1;
        }
        let before = run_of(table, thread);
        // Two words of a head, and one of the key.
        put(thread, key, ((words - 3) * WORD) as usize);
        assert_ne!(run_of(table, thread).at, before.at.plus(words), "it is not in the run");
        assert_eq!(table.longest.load(Ordering::Relaxed), words);
    }
}

#[test]
fn who_writes_alone_again_takes_no_more_runs() {
    // Fails if a thread that wrote by turns once takes runs ever after: of each, some room is lost.
    let session = with_runs();
    let end = 80_000 + (ALONE_FOR + 1) * RUN;
    (80_000..end).for_each(|key| put(session.table(), FIRST, key, 1));
    let before = run_of(session.table(), FIRST);
    put(session.table(), FIRST, end, 1);
    let after = run_of(session.table(), FIRST);
    assert_eq!((before.at, before.left), (after.at, after.left));
}

#[test]
fn who_collects_waits_for_the_last_store_in_a_run() {
    // Fails if a segment is collected while a pair is being stored there: it would be lost.
    let session = with_runs();
    let table = session.table();
    (0..BEFORE / 4).for_each(|key| put(table, ALONE, key, 1));
    let storing = as_thread(FIRST, || table.runs.own(0).lock().unwrap());
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            sender.send(table.collect_stream(0, NOTHING, 1).unwrap()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        drop(storing);
        assert_eq!(receiver.recv().unwrap(), Collected::Step);
    });
}

#[test]
fn it_is_a_map_when_threads_write_by_turns() {
    // Fails if a process that follows a killed one takes an older version of a key for the newest,
    // wherever threads and collecting put them.
    let design = Design::of::<Reef>().with_settings(ReefSettings::WITH_RUNS);
    let effort = model::Effort {
        by_turns: true,
        seeds: 0..100,
        operations: 500,
        ..model::Effort::default()
    };
    for form in [Form::WORDS, Form::Variable] {
        model::judge(&design, form, &effort).unwrap();
    }
}

#[test]
fn every_answer_of_threads_that_have_runs_is_explained_by_an_order() {
    // Fails if a schedule of a few threads loses what one stores in its run while another one ends
    // it, or shows two pairs in one place.
    let (scheduled, plain) = (Design::of::<Reef>(), Design::of::<Reef>());
    let subject = race::Subject {
        scheduled: scheduled.with_settings(ReefSettings::WITH_RUNS),
        plain: plain.with_settings(ReefSettings::WITH_RUNS),
    };
    let effort = race::Effort { seeds: 0..20, ..race::Effort::default() };
    let report = race::judge(&subject, Form::WORDS, &effort).unwrap();
    assert_eq!(report.undecided, 0, "{report:?}");
}

#[test]
fn long_objects_go_to_the_end_of_the_stream() {
    // Fails if an object takes much of a run: half of one would be left over.
    let settings = ReefSettings { streams: 1, shards: 1, ..ReefSettings::default() };
    let medium = Image::new(0, 64 << 20);
    let session = Session::<Reef>::create(medium, Form::Variable, &settings).unwrap();
    let put = |key: u64, bytes| {
        let thread = key as u32 % 2;
        as_thread(thread, || session.table().put(&key.to_le_bytes(), &vec![1; bytes]).unwrap());
    };
    (0..10_000).for_each(|key| put(key, 600));
    assert!(!session.table().runs.are_taken());
    (0..10_000).for_each(|key| put(key, 400));
    assert!(session.table().runs.are_taken());
}

#[test]
fn damage_of_room_that_is_not_used_is_found_and_costs_nothing_but_itself() {
    // Fails if the head of such room is not judged, if its length is believed, or if a salvage
    // takes nothing that lies behind it.
    let session = with_runs();
    put_in_run(session.table(), FIRST, 70_000, 1);
    put(session.table(), ALONE, 70_001, 1);
    let Run { at, left, seal, .. } = run_of(session.table(), FIRST);
    let forged = |words| layout::unused_head(layout::bound(seal, at), words);
    let of_another_place = layout::unused_head(layout::bound(seal, at.plus(1)), left);
    let (words, boot) = (session.region().media().words(), session.opening().boot);
    let place = (at.byte() / WORD) as usize;
    assert_eq!(words[place], forged(left));
    let (flipped, longer) = (words[place] ^ 1 << 40, words[place] ^ 1 << 4);
    for damaged in [flipped, longer, of_another_place, forged(0), forged(1 << 28), 3] {
        let mut words = words.clone();
        words[place] = damaged;
        let bytes = WORD * words.len() as u64;
        let region = Region::new(Image::<Std>::of(&words, bytes, 2 * bytes));
        let refused = Reef::check(&region, boot, &mut |_, _| {}).unwrap_err();
        assert!(
            matches!(refused, Error::Corrupt { at: byte, .. } if byte == at.byte()),
            "{refused}"
        );
        let (mut pairs, mut reports) = (0, 0);
        Reef::salvage(&region, boot, &mut |_, _| pairs += 1, &mut |_| reports += 1).unwrap();
        assert_eq!((pairs, reports), (BEFORE + 4, 1), "{damaged:#x}");
        let opening = open::<Reef, _>(region, boot, &Inline);
        let refused = opening.map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::Corrupt { at: byte, .. } if byte == at.byte()),
            "{refused}"
        );
    }
}
