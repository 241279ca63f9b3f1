//! Blocks of the backup log that a lane has no use for: upkeep gives them back.

use core::time::Duration;

use everhash_index::{Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, Image, Lock};
use everhash_testkit::session::Session;

use crate::common::slot_codec::Words;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

fn session(model: Model, settings: &ElimDaSettings) -> Session<ElimDa> {
    let medium = Image::new(0, 32 << 20).with_guarantees(model.guarantees());
    Session::create(medium, Form::WORDS, settings).unwrap()
}

fn of_words(session: &Session<ElimDa>) -> &Inner<Image, Words> {
    let ElimDaTable::Words(inner) = session.table() else { unreachable!("these are words") };
    inner
}

/// Blocks of the log that are in use, blocks that are free, and bytes in use of the medium.
fn state(session: &Session<ElimDa>) -> (u64, u64, u64) {
    let stats = session.table().stats().unwrap();
    let own = |name| stats.own.iter().find(|(own, _)| *own == name).unwrap().1;
    (own("log_blocks"), own("free_log_blocks"), stats.used_bytes)
}

/// Calls upkeep as long as it asks for that.
fn maintain(session: &Session<ElimDa>) {
    let mut now = Duration::ZERO;
    for _ in 0..1000 {
        let upkeep = session.table().maintain(now, 64).unwrap();
        match upkeep.deadline {
            Some(deadline) => {
                assert!(deadline > now, "it would be called without a pause");
                now = deadline;
            }
            None if !upkeep.more => return,
            None => {}
        }
    }
    panic!("upkeep never ends");
}

#[test]
fn upkeep_gives_back_the_blocks_of_a_table_that_was_emptied() {
    // Fails if a lane keeps the blocks that it needed once until the table is opened again, if what
    // is given back is still led to, or if a lane cannot grow again.
    const PAIRS: u64 = 60_000;
    for model in [Model::Adr, Model::Eadr, Model::File] {
        let settings =
            ElimDaSettings { collecting_logs: 64, block_lines: 16, ..ElimDaSettings::default() };
        let mut session = session(model, &settings);
        let lanes = settings.lanes;
        let block_bytes = of_words(&session).geometry.block(Addr::NULL).bytes();
        let fill = |session: &Session<ElimDa>| {
            for key in 0..PAIRS {
                assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
            }
            state(session)
        };
        let full = fill(&session);
        for key in 0..PAIRS {
            assert!(session.table().remove(&key.to_le_bytes()).unwrap());
        }
        let empty = state(&session);
        maintain(&session);
        let kept = state(&session);
        println!("{model}: full {full:?}, empty {empty:?}, after upkeep {kept:?}");
        assert!(full.0 + full.1 > 6 * lanes, "{model}: the log was never long");
        // The open one, and one in hand that is free or will be.
        assert!(kept.0 + kept.1 <= 3 * lanes, "{model}: {kept:?}");
        let given = empty.0 + empty.1 - kept.0 - kept.1;
        assert!(empty.2 - kept.2 >= given * block_bytes, "{model}: {empty:?}, {kept:?}");
        let again = fill(&session);
        assert!(again.0 + again.1 <= full.0 + full.1 + lanes, "{model}: {again:?}");
        assert_eq!(session.table().check().unwrap().items, PAIRS, "{model}");
        session.kill().unwrap();
        assert_eq!(session.table().len().unwrap(), PAIRS, "{model}");
    }
}

#[test]
fn upkeep_asks_to_be_called_again_for_any_lane_that_has_blocks_to_give() {
    // Fails if the last lane decides for all of them: what the others have stays in use.
    for lane in 0..2 {
        let session = session(Model::Adr, &ElimDaSettings::tiny());
        let table = of_words(&session);
        let pm = table.pool.access();
        drop((0..60).map(|_| table.reserve(&pm, lane).unwrap().unwrap()).collect::<Vec<_>>());
        let (before, _, _) = state(&session);
        let upkeep = session.table().maintain(Duration::ZERO, 8).unwrap();
        assert!(upkeep.deadline.is_some() && !upkeep.more, "lane {lane}: {upkeep:?}");
        maintain(&session);
        let (used, free, _) = state(&session);
        assert!(used + free + 4 < before, "lane {lane}: {before}, then {used} and {free}");
    }
}

#[test]
fn each_round_of_upkeep_looks_at_every_segment_and_takes_space_in_hand() {
    // Fails if a round begins where the last one ended, if it ends early, or if a table that grows
    // full has neither space for a rebuild nor a free block.
    let settings = ElimDaSettings { initial_segments: 8, ..ElimDaSettings::tiny() };
    let session = session(Model::Adr, &settings);
    let table = of_words(&session);
    for lane in &table.lanes {
        lane.lock().unwrap().free.clear();
    }
    table.segment_table.lock().unwrap().spares.clear();
    for round in 0..3 {
        let more = || session.table().maintain(Duration::ZERO, 1).unwrap().more;
        assert_eq!((0..20).take_while(|_| more()).count(), 7, "round {round}");
        assert!(table.lanes.iter().all(|lane| lane.lock().unwrap().free.len() == 1));
        assert_eq!(table.segment_table.lock().unwrap().spares.len(), 1);
    }
}
