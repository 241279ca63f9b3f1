//! What holds of every word of the layout.

use everhash_index::Form;
use everhash_pmem::Guarantees;
use everhash_pmem::crash::Model;

use super::*;
use crate::elimda::ElimDaSettings;

#[test]
fn one_flipped_bit_never_matches_its_check() {
    // Fails if a bit of a structure word could change an answer.
    let at = Addr::new(64 * 77);
    for content in [0, 1, 0x1234_5678_9abc, MOST_CONTENT] {
        let word = seal(content, at, Kind::Unit);
        assert_eq!(open(word, at, Kind::Unit), Some(content));
        assert_eq!(open(word, at.plus(8), Kind::Unit), None);
        assert_eq!(open(word, at, Kind::Line), None);
        assert!((0..64).all(|bit| open(word ^ 1 << bit, at, Kind::Unit).is_none()));
    }
}

#[test]
fn units_count_in_their_own_lap_alone() {
    // Fails if a unit of another lap counts, or if one of a later lap is not named as damage.
    let at = Addr::new(64 * 77);
    for lap in [1, 7, MOST_LAP] {
        let state = UnitState { live: 5, bucket: 3, lap };
        let word = state.seal(at);
        assert_eq!(UnitState::of_lap(word, at, lap), Some(Some(state)));
        assert_eq!(UnitState::of_lap(word, at, lap + 1), Some(None));
        assert_eq!(UnitState::of_lap(word, at, lap - 1), None);
        assert!((0..64).all(|bit| UnitState::of_lap(word ^ 1 << bit, at, lap).is_none()));
        assert_eq!(open_lap(seal(lap, at, Kind::Lap), at), Some(lap));
    }
    assert_eq!(UnitState::of_lap(0, at, 1), Some(None));
    assert_eq!(open_lap(seal(0, at, Kind::Lap), at), None);
}

#[test]
fn prefixes_halve_and_meet() {
    // Fails if the halves of a segment overlap, or leave a gap.
    let whole = Prefix { depth: 0, bits: 0 };
    assert_eq!((whole.start(), whole.last()), (0, u64::MAX));
    let [low, high] = [false, true].map(|upper| whole.half(upper).half(upper));
    assert_eq!((low.start(), high.last()), (0, u64::MAX));
    assert!(low.covers(5) && !low.covers(1 << 62) && high.covers(u64::MAX));
    assert_eq!(whole.half(false).last() + 1, whole.half(true).start());
    assert_eq!(Prefix::of_packed(high.packed()), high);
}

#[test]
fn every_slot_of_the_segment_table_has_one_place() {
    // Fails if two slots share a place, or if one lies behind its extent.
    let mut slot = 0;
    for extent in 0..8 {
        for index in 0..extent_slots(4, extent) {
            assert_eq!(extent_of(4, slot), (extent, index));
            slot += 1;
        }
    }
}

#[test]
fn the_slots_of_a_block_follow_one_another_line_by_line() {
    // Fails if two order numbers share a slot, if one has none, or if the last line of an access
    // unit is written twice.
    let shapes = [Form::WORDS, Form::DOUBLE_WORDS].map(|form| [(form, 256), (form, 4096)]);
    for (form, access_unit_bytes) in shapes.into_iter().flatten() {
        let guarantees = Guarantees { access_unit_bytes, ..Model::Adr.guarantees() };
        let settings = ElimDaSettings { block_lines: 160, ..ElimDaSettings::default() };
        let geometry = settings.on_medium(guarantees).geometry(form).unwrap();
        let last_line = access_unit_bytes / 64 - 1;
        let (number, count) = (7, geometry.block_slots());
        let places: Vec<_> =
            (number * count..(number + 1) * count).map(|order| geometry.log_slot(order)).collect();
        for (index, place) in places.iter().enumerate() {
            assert_eq!(geometry.order(number, *place), number * count + index as u64);
            assert!((1..geometry.block_lines).contains(&place.line) && place.slot < 3);
            assert!(place.line % (last_line + 1) != last_line || place.slot == 0, "{place:?}");
        }
        let sorted =
            places.windows(2).all(|two| (two[0].line, two[0].slot) < (two[1].line, two[1].slot));
        assert!(
            sorted
                && geometry.order(number, LogSlot { line: geometry.block_lines, slot: 0 })
                    == (number + 1) * count
        );
    }
}

#[test]
fn fingerprint_segment_and_bucket_share_no_bit_of_a_hash() {
    // Fails if a bit that leads to the segment or to the bucket is in the fingerprint, too: inside
    // a bucket it would be the same for all, and one key in so many more would look like another.
    let mut used = [0u64; 3];
    for bit in 0..64 {
        for hash in [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x5a5a_5a5a_5a5a_5a5a_u64] {
            let other = hash ^ 1 << bit;
            let segment =
                (0..=MOST_DEPTH).any(|depth| leading(hash, depth) != leading(other, depth));
            let bucket = (hash ^ other) & (MOST_BUCKETS - 1) != 0;
            for (part, differs) in
                [segment, fingerprint(hash) != fingerprint(other), bucket].into_iter().enumerate()
            {
                used[part] |= u64::from(differs) << bit;
            }
        }
    }
    assert_eq!(used.map(u64::count_ones), [40, 16, 8]);
    assert_eq!(used[0] ^ used[1] ^ used[2], u64::MAX);
}

#[test]
fn a_prefix_has_no_more_bits_than_its_depth() {
    // Fails if the head of a segment names more bits of a hash than lead to segments, or bits
    // behind its depth.
    let at = Addr::new(64 * 77);
    let opens = |depth, bits| Prefix::open(Prefix { depth, bits }.seal(at), at).is_some();
    assert!(opens(0, 0) && opens(3, 7) && opens(MOST_DEPTH, (1 << MOST_DEPTH) - 1));
    assert!(!opens(MOST_DEPTH + 1, 0) && !opens(3, 8) && !opens(0, 1));
}

#[test]
fn no_lap_is_zero_or_beyond_the_last_one() {
    // Fails if units of a lap count that no segment has, or a segment whose lap no unit can name.
    let at = Addr::new(64 * 77);
    let opens = |lap| open_lap(seal(lap, at, Kind::Lap), at).is_some();
    assert!(opens(1) && opens(MOST_LAP) && !opens(0) && !opens(MOST_LAP + 1));
    assert_eq!(UnitState::open(UnitState { live: 1, bucket: 0, lap: 0 }.seal(at), at), None);
}

#[test]
fn no_slot_of_a_collecting_log_is_written_before_it_is_handed_out() {
    // Fails if a control word counts that no append leaves.
    let at = Addr::new(64 * 77);
    let control = |reserved, written| Control { reserved, written, sealed: true, generation: 5 };
    let opened = |it: Control| Control::open(it.seal(at), at);
    assert_eq!(opened(control(3, 7)), Some(control(3, 7)));
    assert_eq!(opened(control(3, 8)), None);
    assert_eq!(opened(control(0, 1)), None);
}

#[test]
fn order_numbers_of_every_block_fit_a_watermark() {
    // Fails if a block has number zero, which lines have that were never used, or one whose order
    // numbers no watermark can hold.
    for block_lines in [2, 128, 1 << 16] {
        let settings = ElimDaSettings { block_lines, ..ElimDaSettings::default() };
        let geometry = settings.on_medium(Model::Adr.guarantees()).geometry(Form::WORDS).unwrap();
        assert!(!geometry.is_number(0) && geometry.is_number(1));
        let last = (1..48).map(|bit| 1 << bit).filter(|it| geometry.is_number(*it)).max().unwrap();
        assert!((last + 1) * geometry.block_slots() <= MOST_CONTENT, "{block_lines}: {last}");
        assert!(!geometry.is_number(MOST_CONTENT / geometry.block_slots()), "{block_lines}");
        assert!(!geometry.is_number(MOST_NUMBER));
    }
}

#[test]
fn an_eighth_of_the_collecting_logs_are_spare_one_at_least_and_64_at_most() {
    // Fails if the number of logs on the medium changes: a pool has as many as when it was made.
    for (logs, all) in [(1, 2), (2, 3), (16, 18), (512, 576), (8192, 8256), (MOST_LOGS, 65_600)] {
        let settings = ElimDaSettings { collecting_logs: logs, ..ElimDaSettings::default() };
        let geometry = settings.on_medium(Model::Eadr.guarantees()).geometry(Form::WORDS).unwrap();
        assert_eq!(geometry.all_logs(), all);
    }
}

#[test]
fn no_fingerprint_says_that_there_is_nothing() {
    // Fails if a live slot looks like an empty one.
    let zero = fingerprint(!(0xffff << 8));
    assert!(zero != 0 && fingerprint(0) != 0 && fingerprint(0x1234 << 8) == 0x1234);
}
