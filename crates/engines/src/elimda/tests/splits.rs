//! What a crash inside a split leaves, made by hand: the upper half beside the old segment.

use everhash_index::{Form, Table};
use everhash_pmem::{Addr, LINE, Media};
use everhash_testkit::session::Session;

use crate::elimda::layout::{self, Kind, Prefix};
use crate::elimda::{ElimDa, ElimDaSettings};

#[test]
fn an_upper_half_whose_old_segment_counts_is_taken_out_of_the_table() {
    // Fails if the slot goes on naming space that is free, and soon holds something else.
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    for key in 0..200u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
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
    session.kill().unwrap();
    assert_eq!(region.access().load(slot).unwrap(), 0);
    assert_eq!(session.table().check().unwrap().items, 200);
}
