//! Collecting logs that a full medium leaves behind, and logs in used space: what their words are
//! good for shows there.

use core::ops::ControlFlow;

use everhash_index::{BareTable, Error, Form, Inline, Opening, Table, WordTable};
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Image, Region, Site, Std};
use everhash_testkit::session::Session;

use crate::elimda::layout::{CollectingLog, Kind, LOGS_LINK, open_link};
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable, collecting_log, recovery, shadow_log};

const KEYS: u64 = 400;

/// The length of the medium; a few segments fit. Unit: bytes.
const BYTES: u64 = 24 << 10;

/// Fills a medium with durable caches until nothing goes in, with one site changed. Returns how
/// many pairs were taken, and what the medium holds. A log is in flight then, and the one that
/// took its place is full, too.
fn fill(change: Option<Change>) -> (u64, Vec<u64>) {
    fill_with(&ElimDaSettings::tiny(), change)
}

/// As [`fill`], of a table with these settings.
fn fill_with(settings: &ElimDaSettings, change: Option<Change>) -> (u64, Vec<u64>) {
    let medium = Traced::new(Model::Eadr, 0, BYTES);
    medium.set_mutant(mutant(shadow_log::sites::SEALED, change));
    let session = Session::<ElimDa, Traced>::create(medium, Form::WORDS, settings).unwrap();
    let insert =
        |key: &u64| matches!(session.table().insert(&key.to_le_bytes(), &[1; 8]), Ok(true));
    let added = (0..KEYS).filter(insert).count() as u64;
    (added, session.region().media().visible())
}

fn mutant(site: Site, change: Option<Change>) -> Option<Mutant> {
    change.map(|change| Mutant { site, change })
}

#[test]
fn two_logs_of_a_collector_are_told_apart_after_a_crash() {
    // Fails if the log that was being flushed is not marked: recovery cannot say which is older.
    let reopened = |change| {
        let (added, words) = fill(change);
        assert!((20..KEYS).contains(&added), "{added}: the medium is not full, or was so at once");
        let medium = Traced::new(Model::Eadr, 0, 1 << 20);
        medium.restart(&words);
        let found = Session::<ElimDa, Traced>::open(medium, Form::WORDS)
            .and_then(|session| Ok((session.table().len()?, session.table().check()?.items)));
        (added, found)
    };
    let (added, found) = reopened(None);
    assert_eq!(found.unwrap(), (added, added));
    let (_, found) = reopened(Some(Change::DropCommit));
    assert!(found.is_err(), "nothing needs the mark: {found:?}");
}

#[test]
fn what_ends_in_a_log_on_a_full_medium_with_volatile_caches_stays_ended() {
    // Fails if a removal from a log that could not be moved is visible and not durable.
    let (added, words) = fill(None);
    let durable = |change| {
        let medium = Traced::new(Model::Adr, 0, BYTES);
        medium.restart(&words);
        medium.set_mutant(mutant(collecting_log::sites::ENDED, change));
        let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        let remove = |key: &u64| session.table().remove(&key.to_le_bytes()).unwrap();
        assert_eq!((0..KEYS).filter(remove).count() as u64, added);
        let mut memory = Memory::of(Model::Adr, words.clone());
        for event in session.region().media().take_log().events() {
            memory.apply(event);
        }
        let medium = Traced::new(Model::Adr, 0, 1 << 20);
        medium.restart(memory.durable());
        Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap().table().len().unwrap()
    };
    assert_eq!(durable(None), 0);
    assert_ne!(durable(Some(Change::DropFlush)), 0);
}

#[test]
fn collecting_logs_in_used_space_are_empty_before_a_link_leads_there() {
    // Fails if a crash while the logs are made leaves a link to what the space held before.
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    for key in 0..KEYS {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    let region = session.region().clone();
    session.close().unwrap();
    let mut words = region.media().words();
    let open = |words: &[u64], change| {
        let medium = Traced::new(Model::Eadr, 0, 1 << 20);
        medium.restart(words);
        medium.set_mutant(mutant(recovery::sites::LOGS_LINK, change));
        Session::<ElimDa, Traced>::open(medium, Form::WORDS)
    };
    let made = open(&words, None).unwrap();
    let link = made.region().access().load(LOGS_LINK).unwrap();
    let area = open_link(link, LOGS_LINK, Kind::Logs).unwrap().word() as usize;
    // Two logs and a spare one.
    words[area..][..3 * CollectingLog::WORDS].fill(!0);
    let damaged = |change| {
        let log = open(&words, change).unwrap().region().media().take_log();
        let mut explorer = Explorer::new(Memory::of(Model::Eadr, words.clone()), log.events());
        let (mut seen, mut damaged) = (Seen::default(), false);
        while explorer.next_point().is_some() {
            let limits = Limits::default();
            let flow = explorer.states(&limits, &mut seen, 0, &mut |state| {
                let found = open(state.words(), None).and_then(|after| after.table().len());
                damaged |= found.ok() != Some(KEYS);
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
        }
        assert!(explorer.count().states > 5, "{:?}", explorer.count());
        damaged
    };
    assert!(!damaged(None));
    assert!(damaged(Some(Change::SwapCommit)));
}

/// Inserts keys of a collector until nothing goes in; returns them.
fn fill_collector(session: &Session<ElimDa, Traced>, collector: u64) -> Vec<u64> {
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let own = |key: &u64| table.geometry.collector_of(table.hasher.word(*key)) == collector;
    let inserted = |key: &u64| match table.insert_word(*key, !*key) {
        Err(Error::Full { .. }) => false,
        added => added.unwrap(),
    };
    (0..10 * KEYS).filter(own).take_while(inserted).collect()
}

#[test]
fn an_insert_is_refused_only_if_its_collecting_log_has_no_room() {
    // Fails if an insert is refused because the full log cannot move, though the log that took its
    // place has room.
    let medium = Traced::new(Model::Eadr, 0, BYTES);
    let settings = ElimDaSettings::tiny();
    let session = Session::<ElimDa, Traced>::create(medium, Form::WORDS, &settings).unwrap();
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let (pm, collectors) = (table.pool.access(), table.collectors.as_ref().unwrap());
    fill_collector(&session, 0);
    let logs = collectors.logs(0);
    assert!(logs.in_flight.is_some(), "the medium is full in another way");
    let log = table.collecting_log(&pm, collectors.at(logs.current));
    assert_eq!(log.look().unwrap().control.reserved, log.slots);
}

#[test]
fn collectors_that_have_no_log_get_the_empty_ones_first() {
    // Fails if a collector that can go on with the log that was being flushed takes an empty one,
    // and none is left for a collector without any: the pool could never be opened again.
    for is_closed in [true, false] {
        let medium = Traced::new(Model::Eadr, 0, BYTES);
        let settings = ElimDaSettings { collecting_logs: 4, ..ElimDaSettings::tiny() };
        let mut session =
            Session::<ElimDa, Traced>::create(medium, Form::WORDS, &settings).unwrap();
        // The first one gets the spare log; the second one finds none, and flushes its only log.
        let keys: Vec<u64> = [0, 1].iter().flat_map(|it| fill_collector(&session, *it)).collect();
        let count = keys.len() as u64;
        {
            let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
            let collectors = table.collectors.as_ref().unwrap();
            let in_flight = [0, 1].map(|collector| collectors.logs(collector).in_flight.is_some());
            assert_eq!(in_flight, [true, false], "the medium is full in another way");
        }
        if is_closed {
            session.close().unwrap();
        } else {
            session.kill().unwrap();
        }
        let region = session.region().clone();
        drop(session);
        let boot = Opening::default().boot;
        let table = everhash_index::open::<ElimDa, _>(region, boot, &Inline).unwrap();
        assert_eq!((table.len().unwrap(), table.check().unwrap().items), (count, count));
        let words = table.words().unwrap();
        keys.iter().for_each(|key| assert_eq!(words.get_word(*key).unwrap(), Some(!*key)));
        // Room again, and each of them goes on.
        keys.iter().for_each(|key| assert!(words.remove_word(*key).unwrap()));
        (0..40).for_each(|key| assert!(words.insert_word(key, key).unwrap(), "{key}"));
        assert_eq!((table.len().unwrap(), table.check().unwrap().items), (40, 40));
    }
}

#[test]
fn an_open_that_is_killed_leaves_no_pool_that_looks_closed() {
    // Fails if an open of a closed pool writes before its header says "open": the next one takes
    // what is visible for durable, ends an item of a collecting log whose copy is not, and a power
    // failure takes the copy.
    let (count, words) = fill(None);
    let medium = Traced::new(Model::Eadr, 0, BYTES);
    medium.restart(&words);
    let mut session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
    let region = session.region().clone();
    session.close().unwrap();
    let words = region.media().visible();
    for model in [Model::Eadr, Model::Adr, Model::File] {
        let open = |words: &[u64]| {
            let medium: Traced = Traced::new(model, 0, 1 << 20);
            medium.restart(words);
            let region = Region::new(medium);
            let boot = Opening::default().boot;
            let opened = everhash_index::open::<ElimDa, _>(region.clone(), boot, &Inline);
            (opened.and_then(|table| table.len()), region.media().take_log())
        };
        let (opened, first) = open(&words);
        assert_eq!(opened.unwrap(), count);
        let mut memory = Memory::of(model, words.clone());
        let (mut kills, mut written) = (0, Vec::new());
        for event in first.events() {
            memory.apply(event);
            if memory.visible() == written {
                continue;
            }
            written = memory.visible().to_vec();
            let (reopened, second) = open(&written);
            assert_eq!(reopened.unwrap(), count, "{model}: killed at {kills}");
            let mut after = memory.clone();
            second.events().iter().for_each(|event| _ = after.apply(event));
            let (found, _) = open(after.durable());
            assert_eq!(found.unwrap(), count, "{model}: killed at {kills}, and power was lost");
            kills += 1;
        }
        println!("{model}: {kills} kills");
        assert!(kills > 4, "{model}: {kills}");
    }
}

#[test]
fn an_insert_that_finds_no_room_keeps_no_record() {
    // Fails if the record stays in use that was written before the log was found to be full: each
    // further try would take another one, until nothing is left.
    let medium = Image::<Std>::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let settings = ElimDaSettings { page_bytes: 64 << 10, ..ElimDaSettings::tiny() };
    let session = Session::<ElimDa>::create(medium, Form::Variable, &settings).unwrap();
    let ElimDaTable::Bytes(table) = session.table() else { panic!("byte strings") };
    let is_full = |key: &u64, blind: bool| {
        let key = key.to_le_bytes();
        let outcome = match blind {
            true => BareTable::insert_blind(table, &key, &[1; 8]).map(|()| true),
            false => Table::insert(table, &key, &[1; 8]),
        };
        matches!(outcome, Err(Error::Full { .. }))
    };
    // A page of records, and then no room for anything else.
    assert!(!is_full(&0, false));
    session.region().media().refusals().takes.plan(0, u64::MAX);
    // Until the logs of both collectors are full, and nothing of them can be moved.
    let fulls = (1..KEYS).filter(|key| is_full(key, false)).count();
    assert!(fulls > 0);
    let key = (KEYS..2 * KEYS).find(|key| is_full(key, false)).unwrap();
    let used = table.heap.usage().unwrap().record_bytes;
    for blind in [false, true] {
        (0..50).for_each(|_| assert!(is_full(&key, blind)));
        assert_eq!(table.heap.usage().unwrap().record_bytes, used, "blind: {blind}");
    }
}

#[test]
fn logs_of_a_table_without_relocation_are_left_by_way_of_the_backup_log() {
    // Fails if the items of logs, of the one in flight, too, are dropped or stay where they are:
    // such a table has no units to which they could go at once.
    let settings = ElimDaSettings { bucket_units: 0, ..ElimDaSettings::tiny() };
    let (added, words) = fill_with(&settings, None);
    let medium = Traced::new(Model::Adr, 0, 1 << 20);
    medium.restart(&words);
    let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
    assert_eq!(session.region().access().load(LOGS_LINK).unwrap(), 0);
    assert_eq!(session.table().len().unwrap(), added);
    assert_eq!(session.table().check().unwrap().items, added);
    let is_there = |key: &u64| session.table().get(&key.to_le_bytes(), &mut Vec::new()).unwrap();
    assert_eq!((0..KEYS).filter(is_there).count() as u64, added);
}

#[test]
fn what_had_ended_in_a_log_on_a_full_medium_stays_ended_when_the_others_move() {
    // Fails if the end of what has moved is written in place of earlier ends: a pair that was
    // removed from the log is there again.
    let (added, words) = fill(None);
    let mut stuck = 0;
    for log in 0..3 {
        let medium = Traced::new(Model::Eadr, 0, BYTES);
        medium.restart(&words);
        let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        let (pm, collectors) = (table.pool.access(), table.collectors.as_ref().unwrap());
        let items = table.collecting_log(&pm, collectors.at(log)).read().unwrap();
        let Some(slot) = items.slots().next() else { continue };
        assert!(table.remove_word(items.item(slot)[0]).unwrap());
        let medium = Traced::new(Model::Adr, 0, BYTES);
        medium.restart(&session.region().media().visible());
        let mut session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        stuck += u32::from(session.region().access().load(LOGS_LINK).unwrap() != 0);
        for _ in 0..2 {
            assert_eq!(session.table().len().unwrap(), added - 1, "log {log}");
            session.kill().unwrap();
        }
    }
    assert!(stuck > 0, "there was room for all");
}

#[test]
fn a_table_for_whose_collecting_logs_there_is_no_room_does_without() {
    // Fails if it cannot be made or opened.
    let medium = Image::<Std>::new(0, 64 << 10).with_guarantees(Model::Eadr.guarantees());
    let settings = ElimDaSettings { collecting_logs: 1024, ..ElimDaSettings::tiny() };
    let mut session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    for round in 0..2 {
        for key in 20 * round..20 * round + 20u64 {
            assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
        }
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        assert!(table.collectors.is_none());
        session.reopen().unwrap();
        assert_eq!(session.table().len().unwrap(), 20 * round + 20);
    }
}
