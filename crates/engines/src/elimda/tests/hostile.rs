//! Pools that somebody forged who knows the format: no panic, no hang, no memory without bound.

use everhash_index::{Design, Engine, Error, Form, Table};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, AllocationMeter, Boot, Counted, Image, Region, Std};
use everhash_testkit::hostile::{Effort, judge};
use everhash_testkit::session::Session;

use crate::common::record;
use crate::common::settings::checksum;
use crate::elimda::layout::{
    self, Geometry, Kind, LINE_WORDS, LineState, LogLine, LogSlot, MOST_CONTENT, ROOT, Root,
    UnitState,
};
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable, check};

const KINDS: [Kind; 14] = [
    Kind::Slot,
    Kind::Extent,
    Kind::First,
    Kind::Next,
    Kind::Number,
    Kind::Line,
    Kind::Place,
    Kind::Lap,
    Kind::Watermark,
    Kind::Unit,
    Kind::Logs,
    Kind::Control,
    Kind::Ended,
    Kind::Items,
];

/// Stores a value with the checks that the engine would have stored with it.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * 8), ROOT.word() as usize);
    if (root..root + Root::CHECKSUM).contains(&index) {
        words[index] = value;
        words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
        return;
    }
    match kind % 17 {
        choice @ 0..14 => {
            words[index] = layout::seal(value & MOST_CONTENT, at, KINDS[choice as usize]);
        }
        14 => {
            let (live, bucket) = (value as u16, value >> 16 & 3);
            let state = UnitState { live, bucket, lap: 1 + (value >> 24 & 1) };
            words[index] = state.seal(at);
        }
        // A record word behind its hash.
        15 => {
            let tag = u64::from(record::tag_of(words[index - 1], value));
            words[index] = value & (u64::MAX >> 12) | tag << 52;
        }
        // The key of an item of a log line.
        _ => {
            words[index] = value;
            let line = index - index % LINE_WORDS as usize;
            let slot = (index % LINE_WORDS as usize).saturating_sub(LogLine::ITEMS) / 2;
            let item_at = line + LogLine::ITEMS + 2 * slot;
            let item = [words[item_at], words[item_at + 1], 0, 0];
            let check = layout::key_check(&item, 1, Addr::new(item_at as u64 * 8));
            let checks = &mut words[line + LogLine::CHECKS];
            *checks = LogSlot { line: 0, slot: slot as u64 }.with_check(*checks, check);
        }
    }
}

#[test]
fn p07_a_forged_pool_costs_no_panic_no_hang_and_no_memory() {
    // Fails if a number from the medium is used before it is bounded, checks or none.
    for form in super::FORMS {
        for model in [Model::Adr, Model::Eadr] {
            let effort = Effort { forge: Some(forge), images: 800, model, ..Effort::default() };
            let report = judge(&Design::of::<ElimDa>(), form, &effort).unwrap();
            println!("{form}, {model}: {report}");
            assert!(report.images > 1000 && report.opened > 100, "{form}: {report}");
        }
    }
}

#[test]
fn p07_slots_without_segments_cost_no_memory() {
    // Fails if room in DRAM is made for each slot of the segment table before it is known that
    // there are about so many segments: each takes kilobytes there, and eight zero bytes here.
    const SLOTS: u64 = 1 << 15;
    const BYTES: u64 = 1 << 20;
    let settings = ElimDaSettings {
        buckets: 256,
        segment_units: 256,
        bucket_units: 4,
        ..ElimDaSettings::tiny()
    };
    let medium = Image::<Std>::new(0, BYTES);
    let mut session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
    let region = session.region().clone();
    session.close().unwrap();
    let mut words = region.media().words();
    assert!(words.len() as u64 * 8 < BYTES / 2);
    words.resize((BYTES / 8) as usize, 0);
    let slot = layout::open_link(
        words[layout::extent_link(0).word() as usize],
        layout::extent_link(0),
        Kind::Extent,
    );
    let slot = slot.unwrap();
    let segment = layout::open_link(words[slot.word() as usize], slot, Kind::Slot).unwrap();
    // The only segment is named by the first of many slots, in the second half of the pool.
    let extent = Addr::new(BYTES / 2);
    let link = layout::extent_link(0);
    words[link.word() as usize] = layout::seal(extent.byte(), link, Kind::Extent);
    words[extent.word() as usize] = layout::seal(segment.byte(), extent, Kind::Slot);
    let root = ROOT.word() as usize;
    words[root + Root::INITIAL_SEGMENTS] = SLOTS;
    words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
    let medium = Image::<Std>::of(&words, BYTES, BYTES);
    let (opened, peak_bytes) =
        AllocationMeter::measure(|| Session::<ElimDa>::open(medium, Form::WORDS).map(drop));
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    assert!(peak_bytes < 8 << 20, "{peak_bytes}");
}

/// A closed pool of byte strings with one pair, whose value has `value` bytes.
fn one_record(value: usize) -> Vec<u64> {
    let medium = Image::<Std>::new(0, 16 << 20);
    let settings = ElimDaSettings::tiny();
    let mut session = Session::<ElimDa>::create(medium, Form::Variable, &settings).unwrap();
    assert!(session.table().insert(b"key", &vec![1; value]).unwrap());
    let region = session.region().clone();
    session.close().unwrap();
    region.media().words()
}

#[test]
fn p07_a_link_to_an_extent_longer_than_any_medium_ends_no_salvage() {
    // Fails if the length of an extent is made before it is known that there is room for so many
    // slots: it has more bytes than 64 bits count.
    let mut words = one_record(1);
    let root = ROOT.word() as usize;
    words[root + Root::INITIAL_SEGMENTS] = 1 << 24;
    words[root + Root::CHECKSUM] = checksum(ROOT, &words[root..root + Root::CHECKSUM]);
    for extent in [38, 39] {
        let link = layout::extent_link(extent);
        words[link.word() as usize] = layout::seal(1 << 13, link, Kind::Extent);
    }
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    let mut reports = 0;
    check::salvage(&region, &mut |_, _| {}, &mut |_| reports += 1).unwrap();
    // The extents, the first one, and the hashes without a segment.
    assert!(reports >= 4, "{reports}");
}

#[test]
fn p07_a_record_to_which_everything_leads_is_not_read_for_each_item() {
    // Fails if the budget is asked behind the read: a salvage passes over the refusal, and reads
    // one long record as often as a forged pool has items.
    let mut words = one_record(1 << 20);
    let root = ROOT.word() as usize;
    let root: [u64; Root::WORDS] = words[root..root + Root::WORDS].try_into().unwrap();
    let geometry = Geometry::of_root(&root, Form::Variable).unwrap();
    let lanes = (0..geometry.lanes).map(layout::first_link);
    let blocks = lanes.map(|at| layout::open_link(words[at.word() as usize], at, Kind::First));
    let of = |block: Addr, line| LogSlot { line, slot: 0 }.line_at(block);
    let state = |at: Addr| LineState::open(words[at.word() as usize], at).unwrap();
    let is_live = |block: &Addr| state(of(*block, 1)).live == 1;
    let block = blocks.flatten().find(is_live).unwrap();
    let number = state(of(block, 1)).number;
    let place = |line, slot| LogSlot { line, slot };
    let first = place(1, 0).item_at(block, geometry.item_words).word() as usize;
    let item = [words[first], words[first + 1], 0, 0];
    let mut copies = 0;
    for line in 1..geometry.block_lines {
        let at = of(block, line);
        let slots = geometry.slots_of_line(line);
        words[at.word() as usize] = LineState { number, live: (1 << slots) - 1 }.seal(at);
        for slot in 0..slots {
            let item_at = place(line, slot).item_at(block, geometry.item_words);
            words[item_at.word() as usize..][..2].copy_from_slice(&item[..2]);
            let checks = &mut words[at.word() as usize + LogLine::CHECKS];
            *checks = place(line, slot).with_check(*checks, layout::key_check(&item, 1, item_at));
            copies += 1;
        }
    }
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Counted::new(Image::<Std>::of(&words, bytes, bytes)));
    let (mut found, mut reports) = (0, 0);
    check::salvage(&region, &mut |_, _| found += 1, &mut |_| reports += 1).unwrap();
    assert_eq!((found, reports), (1, copies - 1));
    let loaded = region.media().traffic().words_loaded * 8;
    println!("{copies} copies; {loaded} bytes read of {bytes}");
    assert!(loaded < 4 * bytes && copies << 20 > 4 * bytes, "{loaded} of {bytes}, {copies} copies");
}

#[test]
fn p07_a_line_of_the_log_has_no_more_items_than_slots() {
    // Fails if a live bit is accepted beyond the one slot of the last line of an access unit: its
    // order number belongs to the next line, or lies behind the block.
    for block_lines in [4, 8] {
        let settings = ElimDaSettings { block_lines, ..ElimDaSettings::tiny() };
        let medium = Image::<Std>::new(0, 1 << 20);
        let session = Session::<ElimDa>::create(medium, Form::WORDS, &settings).unwrap();
        let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
        let geometry = table.geometry;
        let lane_of = |key: &u64| geometry.lane_of(geometry.bucket_of(table.hasher.word(*key)));
        let key = (0..100).find(|key| lane_of(key) == 0).unwrap();
        let mut words = session.region().media().words();
        let link = layout::first_link(0);
        let block = layout::open_link(words[link.word() as usize], link, Kind::First).unwrap();
        let number = layout::open(words[block.word() as usize], block, Kind::Number).unwrap();
        let place = LogSlot { line: 3, slot: 1 };
        assert_eq!(geometry.slots_of_line(place.line), 1);
        let (line, item_at) = (place.line_at(block), place.item_at(block, geometry.item_words));
        words[item_at.word() as usize..][..2].copy_from_slice(&[key, 1]);
        let check = layout::key_check(&[key, 1, 0, 0], 1, item_at);
        words[line.word() as usize + LogLine::CHECKS] = place.with_check(0, check);
        words[line.word() as usize] = LineState { number, live: 1 << place.slot }.seal(line);
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
        let checked = <ElimDa as Engine>::check(&region, Boot::default(), &mut |_, _| {});
        let image = Image::<Std>::of(&words, bytes, 1 << 20);
        let opened = Session::<ElimDa>::open_after_power(image, Form::WORDS).map(drop);
        for error in [checked.map(drop).err(), opened.err()] {
            let is_named = matches!(error, Some(Error::Corrupt { at, .. }) if at == line.byte());
            assert!(is_named, "{block_lines} lines: {error:?}");
        }
    }
}
