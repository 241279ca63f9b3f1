//! What a crash inside a split leaves, made by hand: the upper half beside the old segment.

use everhash_index::{Form, Table};
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_pmem::{Addr, LINE, Media};
use everhash_testkit::session::Session;

use crate::elimda::layout::{self, Kind, Prefix};
use crate::elimda::recovery::sites;
use crate::elimda::{ElimDa, ElimDaSettings};

/// Returns a pool of 200 pairs with such an upper half, and where the slot lies that names it.
fn interrupted_split() -> (Session<ElimDa>, Addr) {
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    for key in 0..200u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    session.reopen().unwrap();
    let initial = ElimDaSettings::tiny().initial_segments;
    let region = session.region().clone();
    let pm = region.access();
    let extent = |extent| {
        layout::open_link(
            pm.load(layout::extent_link(extent)).unwrap(),
            layout::extent_link(extent),
            Kind::Extent,
        )
    };
    let old = extent(0).unwrap();
    let segment = layout::open_link(pm.load(old).unwrap(), old, Kind::Slot).unwrap();
    let prefix = Prefix::open(pm.load(segment).unwrap(), segment).unwrap();
    let last = (0..layout::EXTENTS).rev().find(|place| extent(*place).is_some()).unwrap();
    let slots = layout::extent_slots(initial, last);
    let slot = (0..slots).map(|index| extent(last).unwrap().plus(index));
    let slot = slot.rev().find(|slot| pm.load(*slot).unwrap() == 0).unwrap();
    // Free space that nothing has been written to.
    let end = region.media().bytes().next_multiple_of(LINE);
    region.media().grow(end + 4096).unwrap();
    let upper = Addr::new(end);
    pm.store(upper, prefix.half(true).seal(upper)).unwrap();
    pm.store(slot, layout::seal(upper.byte(), slot, Kind::Slot)).unwrap();
    (session, slot)
}

#[test]
fn an_upper_half_whose_old_segment_counts_is_taken_out_of_the_table() {
    // Fails if the slot goes on naming space that is free, and soon holds something else.
    let (mut session, slot) = interrupted_split();
    session.kill().unwrap();
    assert_eq!(session.region().access().load(slot).unwrap(), 0);
    assert_eq!(session.table().check().unwrap().items, 200);
}

#[test]
fn the_slot_of_such_a_half_is_free_durably_before_the_table_is_open() {
    // Fails if the slot is cleared and not made durable: its space may hold something else when the
    // power fails, and the slot names it again. Without the flush it does.
    let (session, slot) = interrupted_split();
    let words = session.region().media().words();
    let durable = |change: Option<Change>| {
        let medium = Traced::new(Model::Adr, 0, 1 << 20);
        medium.restart(&words);
        medium.set_mutant(change.map(|change| Mutant { site: sites::DROPPED, change }));
        let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        assert_eq!(session.region().access().load(slot).unwrap(), 0);
        let mut memory = Memory::of(Model::Adr, words.clone());
        for event in session.region().media().take_log().events() {
            memory.apply(event);
        }
        memory.durable()[slot.word() as usize]
    };
    assert_eq!(durable(None), 0);
    assert_ne!(durable(Some(Change::DropFlush)), 0);
}
