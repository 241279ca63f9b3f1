//! Blocks of the backup log that a lane has no use for: upkeep gives them back.

use core::time::Duration;

use everhash_index::{Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, Image};
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
            Some(deadline) => now = deadline,
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
