//! Blocks of the backup log: another thread may append to one as soon as its lane is free.

use everhash_index::Form;
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Lock, WORD};
use everhash_testkit::session::Session;

use crate::elimda::insert_ahead_logging::sites;
use crate::elimda::layout::BlockHead;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// The length of the medium. Unit: bytes.
const BYTES: u64 = 1 << 20;

#[test]
fn a_block_is_linked_durably_before_its_lane_is_free() {
    // Fails if the link waits for the fence of the append that opened the block: what another
    // thread appends there meanwhile, and promises, would lie behind no link after a crash.
    let is_durable = |change: Option<Change>| {
        let medium = Traced::new(Model::Adr, 0, BYTES);
        medium.set_mutant(change.map(|change| Mutant { site: sites::NEXT, change }));
        let settings = ElimDaSettings { collecting_logs: 0, ..ElimDaSettings::tiny() };
        let session = Session::<ElimDa, Traced>::create(medium, Form::WORDS, &settings).unwrap();
        let ElimDaTable::Words(table) = session.table() else { unreachable!("these are words") };
        let (pm, lane) = (table.pool.access(), &table.lanes[0]);
        let first = lane.lock().unwrap().blocks[0].at;
        let mut never_filled = Vec::new();
        while lane.lock().unwrap().blocks.len() == 1 {
            never_filled.push(table.reserve(&pm, 0).unwrap().unwrap());
        }
        let mut memory = Memory::of(Model::Adr, vec![0; (BYTES / WORD) as usize]);
        for event in session.region().media().take_log().events() {
            memory.apply(event);
        }
        let link = first.plus(BlockHead::NEXT as u64);
        memory.durable()[link.word() as usize] == pm.load(link).unwrap()
    };
    assert!(is_durable(None));
    assert!(!is_durable(Some(Change::DropFence)));
}
