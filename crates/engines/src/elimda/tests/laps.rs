//! Segments in space that held one before: what is left there of its units never counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Form, Table, WordTable};
use everhash_pmem::crash::Model;
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Image, Media};
use everhash_testkit::session::Session;

use super::each_crash::after_each_crash;
use crate::common::slot_codec::Words;
use crate::elimda::lane::Holds;
use crate::elimda::layout::{MOST_LAP, UnitState};
use crate::elimda::state::ElimDa as Open;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

fn opened<M: Media>(session: &Session<ElimDa, M>) -> &Open<M, Words> {
    match session.table() {
        ElimDaTable::Words(table) => table,
        _ => unreachable!("the tests here have words"),
    }
}

/// What is seen of a segment.
#[derive(Default)]
struct Sight {
    at: u64,
    lap: u64,
    /// Units that hold what an earlier segment had there.
    old_units: usize,
}

fn segments<M: Media>(table: &Open<M, Words>) -> Vec<Sight> {
    let (pm, geometry) = (table.pool.access(), &table.geometry);
    let (mut all, mut place) = (Vec::new(), Some(0));
    while let Some(hash) = place {
        let segment = table.table.find(hash);
        let units = (0..geometry.segment_units).map(|unit| geometry.unit_at(segment.at(), unit));
        let is_old = |at| {
            let state = UnitState::open(pm.load(at).unwrap(), at);
            state.is_some_and(|state| state.lap < segment.lap())
        };
        let old_units = units.filter(|at| is_old(*at)).count();
        all.push(Sight { at: segment.at().byte(), lap: segment.lap(), old_units });
        place = segment.prefix().last().checked_add(1);
    }
    all
}

#[test]
fn units_of_an_earlier_lap_stay_dead() {
    // Fails if what a segment held comes back in the one that lies there now, at once or after a
    // crash, if a unit that is written over there does not count, or if a split writes the units
    // that are not in use: then there are no old ones.
    for access_units in [1, 2] {
        let settings = ElimDaSettings { access_units, ..ElimDaSettings::tiny() };
        let medium = Image::new(0, 1 << 20);
        let mut session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
        let (mut old_units, mut highest) = (0, 0);
        for key in 0..1500u64 {
            assert!(opened(&session).insert_word(key, !key).unwrap());
            // Updates and removals write the states of units.
            if key % 3 == 0 {
                assert!(opened(&session).remove_word(key / 2).unwrap());
            }
            if key % 50 == 0 {
                let seen = segments(opened(&session));
                old_units += seen.iter().map(|sight| sight.old_units).sum::<usize>();
                highest = highest.max(seen.iter().map(|sight| sight.lap).max().unwrap());
                let length = opened(&session).len();
                assert_eq!(session.table().check().unwrap().items, length);
            }
            match key {
                500 => session.kill().unwrap(),
                1000 => session.reopen().unwrap(),
                _ => (),
            }
        }
        assert!(old_units > 10 && highest > 2, "{old_units} old units, lap {highest}");
        session.outage().unwrap();
        let live = (0..1500).filter(|key| opened(&session).get_word(*key).unwrap() == Some(!key));
        assert_eq!(live.count() as u64, opened(&session).len());
    }
}

#[test]
fn laps_that_come_round_begin_anew_in_space_that_is_written_whole() {
    // Fails if units of the highest lap are left beside those of the first one.
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    let (mut last, mut again) = (BTreeSet::new(), 0);
    for key in 0..3000u64 {
        for spare in &mut opened(&session).segment_table.lock().unwrap().spares {
            if spare.holds == Holds::OldStates {
                spare.lap = MOST_LAP;
            }
        }
        assert!(opened(&session).insert_word(key, !key).unwrap());
        if key % 20 == 0 {
            let seen = segments(opened(&session));
            again += seen.iter().filter(|it| it.lap == 1 && last.contains(&it.at)).count();
            last.extend(seen.iter().filter(|it| it.lap == MOST_LAP).map(|it| it.at));
            assert_eq!(session.table().check().unwrap().items, key + 1);
        }
    }
    assert!(!last.is_empty() && again > 0, "{} of the highest lap, {again} again", last.len());
    session.kill().unwrap();
    assert_eq!(session.table().check().unwrap().items, 3000);
}

#[test]
fn a_crash_beside_old_units_leaves_what_was_acknowledged() {
    // Fails if an old unit counts that the head or a relocation does not yet, or no more, cover.
    for model in [Model::Adr, Model::File] {
        let medium = Arc::new(Traced::new(model, 0, 1 << 20));
        let tiny = ElimDaSettings::tiny();
        let session =
            Session::<ElimDa, Traced>::create(Arc::clone(&medium), Form::WORDS, &tiny).unwrap();
        (0..150).for_each(|key| assert!(opened(&session).insert_word(key, !key).unwrap()));
        session.table().sync().unwrap();
        let before = medium.visible();
        medium.take_log();
        let splits = || session.table().stats().unwrap().growth_steps;
        let (begun, mut key) = (splits(), 150);
        while splits() < begun + 3 {
            assert!(opened(&session).insert_word(key, !key).unwrap());
            key += 1;
        }
        assert!(segments(opened(&session)).iter().any(|sight| sight.old_units > 0));
        let log = medium.take_log();
        after_each_crash(model, Form::WORDS, before, &log, |after| {
            let table = opened(after);
            for key in 0..150 {
                assert_eq!(table.get_word(key).unwrap(), Some(!key), "{key}, {model}");
            }
            assert_eq!(after.table().check().unwrap().items, table.len(), "{model}");
        });
    }
}
