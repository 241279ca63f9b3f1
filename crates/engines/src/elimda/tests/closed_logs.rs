//! Collecting logs with items of a bucket in which a write failed: these can never move. The logs
//! of other keys go on, and where a collector has no log left its inserts go past it.

use core::ops::ControlFlow;

use everhash_index::{Error, Form, Opening, Table, WordTable};
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Pool, Shutdown};
use everhash_testkit::session::Session;

use crate::common::slot_codec::Words;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// Two collectors with logs of three slots and one spare log, two segments for each.
fn create() -> Session<ElimDa, Traced> {
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let medium = Traced::new(Model::Eadr, 0, 1 << 20);
    Session::<ElimDa, Traced>::create(medium, Form::WORDS, &settings).unwrap()
}

fn of_words(session: &Session<ElimDa, Traced>) -> &Inner<Traced, Words> {
    let ElimDaTable::Words(inner) = session.table() else { panic!("8/8 has words") };
    inner
}

/// Keys of a segment and a bucket there. The first two segments belong to the first collector.
fn keys(
    table: &Inner<Traced, Words>,
    segment: u64,
    bucket: u64,
) -> impl Iterator<Item = u64> + use<> {
    let (hasher, geometry) = (table.hasher, table.geometry);
    (0..).filter(move |key| {
        let hash = hasher.word(*key);
        hash >> 62 == segment && geometry.bucket_of(hash) == bucket
    })
}

/// Leaves the bucket of a key as a write does that fails.
fn fail(table: &Inner<Traced, Words>, key: u64) {
    let (pm, at) = (table.pool.access(), table.locate(table.hasher.word(key)));
    drop(at.segment.lock(at.index).hold(&pm).unwrap().change().unwrap());
}

/// Inserts keys, each of which must be taken.
fn insert(table: &Inner<Traced, Words>, keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let keys: Vec<u64> = keys.into_iter().collect();
    keys.iter().for_each(|key| assert!(table.insert_word(*key, !key).unwrap(), "{key}"));
    keys
}

/// Fills the first log of the first collector, whose one pair of segment 0 cannot move, and then
/// the second log. Returns all keys, and those of healthy buckets.
fn stuck(table: &Inner<Traced, Words>) -> (Vec<u64>, Vec<u64>) {
    let mut failed = insert(table, keys(table, 0, 0).take(1));
    let mut healthy = insert(table, keys(table, 1, 0).take(2));
    fail(table, failed[0]);
    failed.extend(insert(table, keys(table, 0, 1).take(1)));
    assert!(table.collectors.as_ref().unwrap().logs(0).in_flight.is_some());
    healthy.extend(insert(table, keys(table, 1, 0).skip(2).take(2)));
    ([failed.clone(), healthy.clone()].concat(), healthy)
}

#[test]
fn inserts_go_on_beside_a_log_that_a_failed_write_keeps_from_moving() {
    // Fails if one bucket in which a write failed ends the inserts of other keys whose pairs go to
    // the same log.
    let session = create();
    let table = of_words(&session);
    let (all, _) = stuck(table);
    // The second log holds nothing that cannot move: it is emptied where it is, again and again.
    let more = insert(table, keys(table, 1, 0).skip(4).take(50));
    let collectors = table.collectors.as_ref().unwrap();
    assert!(!collectors.logs(0).closed && collectors.logs(0).in_flight.is_some());
    for key in &more {
        assert_eq!(table.get_word(*key).unwrap(), Some(!key));
        assert!(!table.insert_word(*key, 0).unwrap());
    }
    assert!(matches!(table.insert_word(all[0], 0), Err(Error::Poisoned)));
    let count = (all.len() + more.len()) as u64;
    assert_eq!((table.len(), table.check().unwrap().items), (count, count));
}

#[test]
fn inserts_go_past_a_collector_whose_logs_are_full_for_ever() {
    // Fails if they are refused, if a key is taken twice, if the first of two blind inserts does
    // not stay the first, if such a pool counts as closed cleanly, or if the next open misses
    // anything.
    let mut session = create();
    let table = of_words(&session);
    let (mut all, healthy) = stuck(table);
    // Of the other collector the only log is in the way: there is no spare one.
    all.extend(insert(table, keys(table, 2, 0).take(1)));
    let beside = insert(table, keys(table, 3, 0).take(2));
    for segment in [0, 2] {
        let key = keys(table, segment, u64::from(segment == 0)).next().unwrap();
        fail(table, key);
    }
    let of = |segment| keys(table, segment, 1);
    let [near, other] = [of(1), of(3)].map(|keys| keys.take(120).collect::<Vec<_>>());
    let far = |skip: usize| [&near[skip..][..40], &other[skip..][..40]].concat();
    let more = insert(table, far(0));
    let logs = |collector| table.collectors.as_ref().unwrap().logs(collector);
    assert!(logs(0).closed && logs(1).closed && logs(1).in_flight.is_none());
    for key in more.iter().chain(&healthy).chain(&beside) {
        assert_eq!(table.get_word(*key).unwrap(), Some(!key), "{key}");
        assert!(!table.insert_word(*key, 0).unwrap() && table.put_word(*key, !key).unwrap());
    }
    let put = far(40);
    put.iter().for_each(|key| assert!(!table.put_word(*key, !key).unwrap(), "{key}"));
    for key in &healthy {
        table.insert_blind(*key, 0).unwrap();
        assert_eq!(table.get_word(*key).unwrap(), Some(!key), "{key}");
        assert!(table.remove_word(*key).unwrap() && table.remove_word(*key).unwrap());
    }
    let count = (all.len() - healthy.len() + beside.len() + more.len() + put.len()) as u64;
    assert_eq!((table.len(), table.check().unwrap().items), (count, count));
    let (region, words) = (session.region().clone(), session.region().media().visible());
    let closed = session.close();
    assert!(matches!(closed, Err(Error::Poisoned)), "{closed:?}");
    assert_ne!(Pool::status(&region, Opening::default().boot).unwrap().previous, Shutdown::Clean);
    for model in [Model::Eadr, Model::Adr] {
        let medium = Traced::new(model, 0, 1 << 20);
        medium.restart(&words);
        let mut session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        let table = of_words(&session);
        assert_eq!((table.len(), table.check().unwrap().items), (count, count), "{model}");
        let there = all.iter().filter(|key| !healthy.contains(key)).chain(&more).chain(&put);
        there.for_each(|key| assert_eq!(table.get_word(*key).unwrap(), Some(!key), "{key}"));
        // All of it moves now.
        insert(table, far(80));
        session.close().unwrap();
    }
}

#[test]
fn a_crash_while_a_log_moves_beside_a_stuck_one_loses_nothing() {
    // Fails if recovery takes both logs for ones that were in flight, or counts a pair twice that
    // was on its way.
    let session = create();
    let table = of_words(&session);
    let (all, _) = stuck(table);
    let memory = session.region().media().visible();
    session.region().media().take_log();
    insert(table, keys(table, 1, 1).take(1));
    let log = session.region().media().take_log();
    let mut explorer = Explorer::new(Memory::of(Model::Eadr, memory), log.events());
    let (mut seen, count) = (Seen::default(), all.len() as u64);
    while explorer.next_point().is_some() {
        let flow = explorer.states(&Limits::default(), &mut seen, 0, &mut |state| {
            let medium = Traced::new(Model::Eadr, 0, 1 << 20);
            medium.restart(state.words());
            let found = Session::<ElimDa, Traced>::open(medium, Form::WORDS)
                .and_then(|session| Ok((session.table().len()?, session.table().check()?.items)));
            assert!(matches!(found, Ok((len, items)) if len == items && len - count < 2));
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
    assert!(explorer.count().states > 10, "{:?}", explorer.count());
}
