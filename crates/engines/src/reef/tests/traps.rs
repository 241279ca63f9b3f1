//! What a log of segments can get wrong, each by its name.

use core::sync::atomic::Ordering;

use everhash_index::{Change, Cursor, Engine, Form, Inline, Table, WordTable};
use everhash_pmem::{Boot, Image, Lock, Pool, Region, Span, Std, WORD};
use everhash_testkit::session::Session;

use super::settings::Immediate;
use crate::reef::collection::NOTHING;
use crate::reef::layout::{self, Ended, SIZE_STREAM, SegmentHead, Tail};
use crate::reef::stream::{Stream, Victim};
use crate::reef::{Reef, ReefSettings};

/// Overwrites other keys until segments were collected so often.
fn churn<E: everhash_index::Engine>(session: &Session<E>, rounds: u64) {
    let table = session.table().words().unwrap();
    for round in 0..rounds {
        for key in 1000..1040 {
            table.put_word(key, round).unwrap();
        }
    }
}

fn a_removed_key_stays_removed<E: everhash_index::Engine>() {
    let mut session = Session::<E>::tiny(Form::WORDS, 1 << 20).unwrap();
    // Pairs that stay: their segments are old, and hold old versions of others.
    (2000..2100).for_each(|key| {
        let table = session.table().words().unwrap();
        table.put_word(key, 1).unwrap();
        table.put_word(key % 20, key).unwrap();
    });
    for round in 0..12 {
        let key = round % 20;
        let table = session.table().words().unwrap();
        for value in 0..5 {
            table.put_word(key, value).unwrap();
        }
        assert!(table.remove_word(key).unwrap());
        churn(&session, 8);
        match round % 3 {
            0 => session.kill().unwrap(),
            1 => session.reopen().unwrap(),
            _ => {}
        }
        churn(&session, 3);
        let table = session.table().words().unwrap();
        for key in 0..=round {
            assert_eq!(table.get_word(key).unwrap(), None, "key {key} in round {round}");
        }
        assert!((2000..2100).all(|key| table.get_word(key).unwrap() == Some(1)));
    }
}

#[test]
fn an_older_version_never_comes_back_when_the_one_between_was_collected() {
    // Fails if a tombstone is dropped while a segment exists that holds a version of its key.
    a_removed_key_stays_removed::<Reef>();
    a_removed_key_stays_removed::<Immediate>();
}

#[test]
fn what_was_cleared_never_comes_back() {
    // Fails if the head that says so is lost with its segment, or is not there after a kill.
    let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    for round in 0..6u64 {
        for key in 0..200 {
            session.table().put_word(key, round).unwrap();
        }
        session.table().clear().unwrap();
        match round % 3 {
            0 => session.kill_unsynced().unwrap(),
            1 => session.reopen().unwrap(),
            _ => {}
        }
        assert_eq!(session.table().len().unwrap(), 0, "round {round}");
        churn(&session, 20);
        session.kill().unwrap();
        assert_eq!(session.table().len().unwrap(), 40, "round {round}");
    }
}

#[test]
fn a_segment_that_was_chosen_before_a_clear_is_not_collected_after_it() {
    // Fails if collecting takes what lies there now for damage, or brings back what lay there.
    let session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
    let table = session.table();
    let fill = |value| {
        for key in 0..400 {
            table.put_word(key, value).unwrap();
        }
    };
    fill(0);
    fill(1);
    let chosen = table.streams.iter().filter_map(|stream| {
        let stream = stream.0.lock().unwrap();
        table.victim(&stream, NOTHING)
    });
    let mut victims: Vec<_> = chosen.collect();
    assert!(!victims.is_empty());
    table.clear().unwrap();
    (0..3).for_each(|_| table.commit_epoch().unwrap());
    fill(2);
    victims.iter_mut().for_each(|victim| assert!(table.collect(victim, u64::MAX).unwrap()));
    assert!((0..400).all(|key| table.get_word(key).unwrap() == Some(2)));
}

#[test]
fn a_hot_key_does_not_outrun_collection() {
    // Fails if the garbage of one key is collected more slowly than it is made.
    let session = Session::<Reef>::tiny(Form::WORDS, 64 << 10).unwrap();
    for value in 0..20_000 {
        session.table().put_word(7, value).unwrap();
    }
    assert_eq!(session.table().get_word(7).unwrap(), Some(19_999));
}

#[test]
fn tombstones_of_keys_that_come_and_go_do_not_pile_up() {
    // Fails if tombstones circulate because one old segment stays as it is.
    let session = Session::<Reef>::tiny(Form::WORDS, 64 << 10).unwrap();
    let table = session.table();
    (0..40).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    for key in 1000..20_000 {
        assert!(table.insert_word(key, key).unwrap() && table.remove_word(key).unwrap());
    }
    assert_eq!(table.len().unwrap(), 40);
    let (mut cursor, mut visited) = (Some(Cursor::default()), 0);
    while let Some(next) = cursor {
        cursor = table.scan(next, &mut |_, _| visited += 1).unwrap();
    }
    assert_eq!(visited, 40);
}

#[test]
fn the_next_owner_of_a_place_completes_no_head_that_power_loss_has_torn() {
    // Fails if two heads have a word in common: of the one all words but that may be durable, and
    // that word of the other one.
    let head = |generation, stream, sequence| {
        let mut plain = [0; SegmentHead::TAIL];
        plain[SegmentHead::SEQUENCE] = sequence;
        plain[SegmentHead::SIZE] = SIZE_STREAM.set(1, stream);
        plain[SegmentHead::FLOOR] = 1;
        plain[SegmentHead::GENERATION] = generation;
        let stored = layout::stored_head(plain);
        let mut read = [0; SegmentHead::WORDS];
        read[..SegmentHead::TAIL].copy_from_slice(&stored);
        assert!(layout::may_begin(stored[0]));
        assert_eq!(layout::plain_head(&read)[1..], plain[1..]);
        stored
    };
    let first = head(3, 0, 9);
    for other in [head(4, 0, 9), head(3, 1, 9), head(3, 0, 10), head(4, 1, 9), head(9, 0, 3)] {
        assert!(first.iter().zip(&other).all(|(one, two)| one != two), "{first:x?} {other:x?}");
    }
}

#[test]
fn what_closures_change_is_collected_and_waits_for_no_longer_epoch() {
    // Fails if other writes alone end epochs and collect: power loss would take back more than it
    // may, and the table would grow without end.
    const CHANGES: u64 = 20_000;
    let session = Session::<Reef>::tiny(Form::WORDS, 4 << 20).unwrap();
    let table = session.table();
    for number in 0..CHANGES {
        let mut change = |_: Option<&[u8]>| Change::Put(number.to_le_bytes().to_vec());
        table.modify(&(number % 20).to_le_bytes(), &mut change).unwrap();
    }
    let epochs = table.epochs.lock().unwrap().number;
    assert!(epochs > CHANGES * 24 / table.settings.flush_bytes / 2, "{epochs} epochs");
    let used = table.used.load(Ordering::Relaxed);
    assert!(used < 40 << 10, "{used} bytes");
}

#[test]
fn a_clear_takes_no_segment_out_of_the_count_that_was_collected_before() {
    // Fails if one that waits for an epoch is emptied twice: the commit record would not match what
    // is there, and its room would be given to two.
    for is_killed in [false, true] {
        let mut session = Session::<Reef>::tiny(Form::WORDS, 1 << 20).unwrap();
        let table = session.table();
        (0..100).for_each(|key| table.put_word(key, key).map(drop).unwrap());
        table.sync().unwrap();
        let victim = table.victim(&table.streams[0].0.lock().unwrap(), NOTHING);
        let oldest = |stream: &Stream| {
            let (sequence, segment) = stream.sealed.first_key_value().unwrap();
            Victim::new(0, (*sequence, *segment), true, 1)
        };
        let mut victim = victim.unwrap_or_else(|| oldest(&table.streams[0].0.lock().unwrap()));
        assert!(table.collect(&mut victim, u64::MAX).unwrap());
        assert!(table.streams[0].0.lock().unwrap().sealed[&victim.sequence].is_empty);
        table.clear().unwrap();
        let emptied = table.streams[0].0.lock().unwrap().emptied.clone();
        let is_it = |(sequence, _): &&(u64, Span)| *sequence == victim.sequence;
        assert_eq!(emptied.iter().filter(is_it).count(), 1);
        assert!(table.insert_word(1000, 1).unwrap());
        table.sync().unwrap();
        if is_killed { session.kill_unsynced() } else { session.reopen() }.unwrap();
        assert_eq!(session.table().len().unwrap(), 1);
    }
}

#[test]
fn p05_a_process_that_is_killed_when_it_has_just_opened_a_closed_pool_loses_nothing() {
    // Fails if the tails in the heads of segments are believed before a process has moved them:
    // closing makes the commit record durable, and power loss may keep older tails.
    let settings = ReefSettings { streams: 1, ..ReefSettings::tiny() };
    let mut session =
        Session::<Reef>::create(Image::new(0, 1 << 20), Form::WORDS, &settings).unwrap();
    (0..5).for_each(|key| assert!(session.table().insert_word(key, !key).unwrap()));
    let open = session.table().streams[0].0.lock().unwrap().open.unwrap();
    session.close().unwrap();
    let mut words = session.region().media().words();
    let begun = Tail { words: SegmentHead::WORDS as u64, ended: Ended::Not };
    words[open.span.start.word() as usize + SegmentHead::TAIL] = begun.word(open.seal);
    let medium = Image::<Std>::of(&words, WORD * words.len() as u64, 1 << 20);
    let region = Region::new(medium);
    let Boot([machine, started]) = session.opening().boot;
    let boot = Boot([machine, started + 1]);
    Pool::open(region.clone(), boot).unwrap().begin_writes().unwrap();
    let checked = Reef::check(&region, boot, &mut |_, _| {}).unwrap();
    assert_eq!(checked.items, 5);
    let table = everhash_index::open::<Reef, _>(region, boot, &Inline).unwrap();
    assert!((0..5).all(|key| table.get_word(key).unwrap() == Some(!key)));
}
