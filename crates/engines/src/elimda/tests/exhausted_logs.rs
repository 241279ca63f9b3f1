//! Collecting logs that were emptied as often as their generation counts: they are full for ever.

use everhash_index::{Form, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::session::Session;

use crate::elimda::layout::{self, CollectingLog, Control, Ended, Kind, LOGS_LINK};
use crate::elimda::{ElimDa, ElimDaSettings};

/// The highest generation. Source: the ruler of a collecting log.
const LAST: u64 = (1 << 28) - 1;

/// How many logs a tiny table has: two, and a spare one.
const LOGS: usize = 3;

/// Returns the logs of a pool: where each begins, and its first word.
fn logs(words: &[u64]) -> [(everhash_pmem::Addr, usize); LOGS] {
    let area = layout::open_link(words[LOGS_LINK.word() as usize], LOGS_LINK, Kind::Logs).unwrap();
    core::array::from_fn(|log| {
        let at = area.plus((log * CollectingLog::WORDS) as u64);
        (at, at.word() as usize)
    })
}

fn open(words: &[u64], model: Model) -> Session<ElimDa> {
    let bytes = words.len() as u64 * 8;
    let image = Image::of(words, bytes, 1 << 20).with_guarantees(model.guarantees());
    Session::<ElimDa>::open_after_power(image, Form::WORDS).unwrap()
}

/// A pool without pairs, whose logs are of these generations.
fn worn(generations: [u64; LOGS]) -> Vec<u64> {
    let medium = Image::new(0, 1 << 20).with_guarantees(Model::Eadr.guarantees());
    let settings = ElimDaSettings::tiny();
    let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let mut words = session.region().media().words();
    for ((at, word), generation) in logs(&words).into_iter().zip(generations) {
        words[word + CollectingLog::CONTROL] =
            Control { generation, ..Control::default() }.seal(at);
    }
    words
}

fn insert(session: &Session<ElimDa>, keys: core::ops::Range<u64>) {
    let words = session.table().words().unwrap();
    for key in keys {
        assert!(words.insert_word(key, !key).unwrap(), "{key}");
        assert!(!words.insert_word(key, 0).unwrap(), "{key}");
    }
}

/// Demands that a table has these keys and no others.
fn demand(session: &Session<ElimDa>, keys: core::ops::Range<u64>) {
    let (table, count) = (session.table(), keys.end - keys.start);
    assert_eq!((table.len().unwrap(), table.check().unwrap().items), (count, count));
    for key in keys {
        assert_eq!(table.words().unwrap().get_word(key).unwrap(), Some(!key), "{key}");
    }
}

#[test]
fn inserts_go_past_logs_that_cannot_be_emptied_any_more() {
    // Fails if such a log refuses the inserts of its keys for ever, if it is handed out again as an
    // empty one, if a pool without enough other logs is not opened, or if a pair is lost or doubled
    // that was in one.
    let generations =
        [[LAST; 3], [LAST - 1; 3], [LAST, LAST, 0], [0, LAST, LAST], [LAST, 0, 0], [0, 0, LAST]];
    for generations in generations {
        let mut session = open(&worn(generations), Model::Eadr);
        for key in 0..40 {
            insert(&session, key..key + 1);
            let words = session.region().media().words();
            for model in [Model::Eadr, Model::Adr] {
                demand(&open(&words, model), 0..key + 1);
            }
        }
        for round in 1..4 {
            session.reopen().unwrap();
            demand(&session, 0..40 * round);
            insert(&session, 40 * round..40 * (round + 1));
            session.kill().unwrap();
            demand(&session, 0..40 * (round + 1));
        }
        let words = session.table().words().unwrap();
        (0..160).for_each(|key| assert!(words.remove_word(key).unwrap(), "{key}"));
        demand(&session, 0..0);
        insert(&session, 0..40);
        session.kill().unwrap();
        demand(&session, 0..40);
    }
}

#[test]
fn what_a_crash_left_in_a_log_that_cannot_be_emptied_ends() {
    // Fails if recovery relies on emptying the log: a pair that has moved is there twice, and comes
    // back once the copy below is removed.
    let session = open(&worn([LAST; LOGS]), Model::Eadr);
    insert(&session, 0..40);
    let mut words = session.region().media().words();
    let mut full = 0;
    for (at, word) in logs(&words) {
        let control = Control::open(words[word + CollectingLog::CONTROL], at).unwrap();
        if control.generation == LAST && control.reserved == ElimDaSettings::tiny().unit_slots {
            words[word + CollectingLog::ENDED] = Ended { slots: 0, generation: LAST }.seal(at);
            full += 1;
        }
    }
    assert_eq!(full, LOGS);
    let session = open(&words, Model::Eadr);
    demand(&session, 0..40);
    let table = session.table().words().unwrap();
    (0..40).for_each(|key| assert!(table.remove_word(key).unwrap(), "{key}"));
    let words = session.region().media().words();
    for model in [Model::Eadr, Model::Adr] {
        demand(&open(&words, model), 0..0);
    }
}
