//! Pools that somebody forged who knows the format: no panic, no hang, no memory without bound.

use everhash_index::{Design, Error, Form};
use everhash_pmem::crash::Model;
use everhash_pmem::{Addr, AllocationMeter, Image, Std};
use everhash_testkit::hostile::{Effort, judge};
use everhash_testkit::session::Session;

use crate::common::record;
use crate::common::settings::checksum;
use crate::elimda::layout::{
    self, Kind, LINE_WORDS, LogLine, LogSlot, MOST_CONTENT, ROOT, Root, UnitState,
};
use crate::elimda::{ElimDa, ElimDaSettings};

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
