//! Checks of the words: what damage they notice, and that keys spread.

use super::place::{PLACE_CHECK, PLACE_LOG};
use super::*;

/// Every damage of one or two bits, and of one byte.
fn damages() -> impl Iterator<Item = u64> {
    let two = (0..64).flat_map(|a| (0..=a).map(move |b| 1u64 << a | 1 << b));
    let bytes = (0..8).flat_map(|byte| (1..256u64).map(move |by| by << (8 * byte)));
    two.chain(bytes)
}

#[test]
fn small_damage_to_a_structure_word_is_always_noticed() {
    // Fails if two flipped bits, or one damaged byte, turn a word into another sound one.
    let at = Addr::new(64 * 1234);
    let state = NON_WRITABLE | READABLE | SECOND | print_of(0x1234_5678_9abc_def0);
    let states = Head::EMPTY.with(0, state).with(2, state ^ SECOND);
    let head = states.encode(at);
    let pair = [head, states.encode(Addr::new(at.byte() + LINE))];
    assert_eq!(Head::both_with_fault(pair, at), ([states; 2], 0));
    let link = seal_link(Addr::new(64 * 99), at);
    let place = Place::new(Addr::new(128 * 77), 9);
    let listed = Listed::Live(place).encode(place_at(3));
    for damage in damages() {
        assert_eq!(Head::decode(head ^ damage, at), None, "{damage:#x}");
        for damaged in [[head ^ damage, pair[1]], [pair[0], pair[1] ^ damage]] {
            assert_ne!(Head::both_with_fault(damaged, at).1, 0, "{damage:#x}");
        }
        assert_eq!(open_link(link ^ damage, at), None, "{damage:#x}");
        assert_eq!(Listed::decode(listed ^ damage, place_at(3)), None, "{damage:#x}");
    }
    assert_eq!(Listed::decode(listed, place_at(3)), Some(Listed::Live(place)));
    assert_eq!(Listed::decode(listed, place_at(4)), None);
    assert_eq!(open_link(link, at), Some(Addr::new(64 * 99)));
}

#[test]
fn a_page_has_one_ancestor_page_in_every_layer_above() {
    // Fails if the bucket of a lower layer does not begin with the bits of the upper one.
    for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 63] {
        for second in [false, true] {
            let position = position(hash, second);
            for log in 1..MOST_LOG {
                assert_eq!(bucket_of(position, log) >> 1, bucket_of(position, log - 1));
                let first = first_position(bucket_of(position, log), log);
                assert_eq!(bucket_of(first, log), bucket_of(position, log));
            }
        }
    }
}

#[test]
fn room_in_a_bucket_is_an_open_slot_or_else_a_shadow() {
    // Fails if a valid slot passes for room, or if a shadow is taken while a slot is open.
    let print = print_of(0x0123_4567_89ab_cdef);
    let states = [0, READABLE | print, READABLE | NON_WRITABLE | print, READABLE | NON_WRITABLE];
    for number in 0..4usize.pow(6) {
        let state = |line: usize, slot: usize| states[number >> (2 * (3 * line + slot)) & 3];
        let head = |line| (0..SLOTS).fold(Head::EMPTY, |head, s| head.with(s, state(line, s)));
        let heads = [head(0), head(1)];
        for slots in 1..=SLOTS {
            let all: Vec<_> = (0..2).flat_map(|line| (0..slots).map(move |s| (line, s))).collect();
            let first = |wanted: fn(u16) -> bool, is_open| {
                let found = all.iter().find(|(line, slot)| wanted(state(*line, *slot)));
                found.map(|(line, slot)| (*line, *slot, is_open))
            };
            let expected = first(|state| state == 0, true).or(first(is_shadow, false));
            assert_eq!(room(heads, slots as u64), expected, "{number}");
        }
    }
}

#[test]
fn the_slots_of_a_bucket_that_match_are_those_of_its_lines() {
    // Fails if a slot stands at another bit, or if the check of a head passes for one; and if what
    // is not readable matches, or is counted as valid.
    let prints = [0x0120, 0x0000, 0xfff0];
    let states = [0, READABLE, READABLE | NON_WRITABLE, NON_WRITABLE, READABLE | DELETED];
    let all: Vec<u16> = prints.iter().flat_map(|print| states.map(|state| state | print)).collect();
    for number in 0..20_000u64 {
        let pick =
            |slot: u32| all[(number.wrapping_mul(MIX[0]) >> (8 * slot)) as usize % all.len()];
        let head =
            |line: u32| (0..3).fold(Head::EMPTY, |head, s| head.with(s, pick(3 * line + s as u32)));
        let heads = [head(0), head(1)];
        for print in prints {
            let expected = (0..2).fold(0, |bits, line: usize| {
                heads[line].matching(print).fold(bits, |bits, slot| bits | 1 << (4 * line + slot))
            });
            assert_eq!(matching(heads, print), expected, "{number}");
        }
        for slots in 1..=SLOTS as u64 {
            let free = heads[0].free(slots) + heads[1].free(slots);
            assert_eq!(free_in_both(heads, Slots::first(slots)), free, "{number}");
        }
        let state = |slot: usize| state_in(heads, slot);
        assert!((0..3).all(|slot| state(slot) == heads[0].state(slot)));
        assert!((0..3).all(|slot| state(4 + slot) == heads[1].state(slot)));
    }
}

#[test]
fn a_place_leads_from_a_position_to_its_bucket() {
    // Fails if a layer of one bucket, or of the most, is led out of.
    let start = Addr::new(128 * 77);
    for log in 0..=MOST_LOG {
        let place = Place::new(start, log);
        assert_eq!((place.start(), place.log()), (start, log));
        for position in [0, 1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
            let home = place.bucket(bucket_of(position, log));
            assert_eq!(place.home(position), home);
            assert_eq!(place.home_byte(position) / BUCKET_BYTES, home.byte() / BUCKET_BYTES);
        }
    }
    let odd = PLACE_LOG.set(77, 9);
    let at = place_at(3);
    let odd = PLACE_CHECK.set(odd, mix(odd, at.word(), Kind::Place) >> 48);
    assert_eq!(Listed::decode(odd, at), None, "a bucket of it would not lie in one pair of lines");
}
