//! What the words of the layout promise: no flipped bit passes, and no field lies on another.

use super::bucket_words::{SEQ, bytes_of};
use super::*;

const AT: Addr = Addr::new(256 * 12345);

/// Numbers that look random, always the same.
fn random(i: u64) -> u64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(i as u32)
}

#[test]
fn every_flipped_bit_of_a_structure_word_is_noticed() {
    // Fails if one flipped bit could make another bucket, place or version.
    for i in 0..20_000 {
        let at = Addr::new((random(i) >> 20) << 8);
        let tags = [random(i + 7), random(i + 8)];
        let valid = random(i + 9) as u32 & 0x3fff;
        let meta = Meta::first(0).next(valid, valid & random(i + 10) as u32);
        let word = meta.encode(tags, at);
        assert_eq!(Meta::decode(word, tags, at), Some(meta));
        assert!((0..64).all(|bit| Meta::decode(word ^ 1 << bit, tags, at).is_none()));
        for slot in 0..SLOTS {
            let mut other = tags;
            other[slot / 8] ^= 1 << (8 * (slot % 8) + i as usize % 8);
            let live = meta.live() >> slot & 1 == 1;
            assert_eq!(Meta::decode(word, other, at).is_none(), live, "slot {slot}");
        }
        let place = Place { start: Addr::new((random(i) >> 24 | 1) << 8), log: i as u32 % 25 };
        let word = place.encode(AT);
        assert_eq!(Place::decode(word, AT), Some(place));
        assert!((0..64).all(|bit| Place::decode(word ^ 1 << bit, AT).is_none()));
        let word = encode_version(i as u8, at);
        assert_eq!(decode_version(word, at), Some(i as u8));
        assert!((0..64).all(|bit| decode_version(word ^ 1 << bit, at).is_none()));
    }
}

#[test]
fn every_flipped_bit_of_a_pair_is_noticed_by_its_slot_check() {
    // Fails if the five bits miss a flip; bits that both words flip may cancel, one never does.
    for i in 0..20_000 {
        let (pair, slot) = ([random(i), random(i + 1)], i as usize % SLOTS);
        let check = check_of(pair, AT, slot);
        for bit in 0..64 {
            assert_ne!(check_of([pair[0] ^ 1 << bit, pair[1]], AT, slot), check);
            assert_ne!(check_of([pair[0], pair[1] ^ 1 << bit], AT, slot), check);
        }
    }
}

#[test]
fn the_multipliers_keep_their_promise() {
    // Fails if one is replaced by a number whose checks can miss a flipped bit.
    for mix in MIX {
        assert!(mix % 2 == 1);
        for shift in 0..=60 {
            let window = (mix >> shift) & 0xf;
            assert!(window != 0 && window != 0xf, "four equal bits at {shift} of {mix:#x}");
        }
    }
}

#[test]
fn two_flipped_bits_and_any_damaged_byte_change_twelve_bits_of_a_check() {
    // Fails if a multiplier lets such damage to META, to the tags or to a record word pass: the
    // highest bits of a product stay as they are only if what is added to it has none there.
    for mix in MIX {
        let flip = |bit: u32| (1u64 << bit).wrapping_mul(mix);
        let two = (0..64).flat_map(|a| (0..a).map(move |b| (flip(a), flip(b))));
        let two = two.flat_map(|(a, b)| [a.wrapping_add(b), a.wrapping_sub(b)]);
        let bytes = (0..8).flat_map(|byte| (1..256u64).map(move |by| by << (8 * byte)));
        for added in two.chain(bytes.map(|by| by.wrapping_mul(mix))) {
            let high = added >> 52;
            assert!(high != 0 && high != 0xfff, "{added:#x} of {mix:#x}");
        }
    }
}

#[test]
fn a_hole_is_not_an_empty_bucket() {
    // Fails if zeros pass as a bucket: a hole in the file would lose keys silently.
    for i in 0..100_000 {
        assert_eq!(Meta::decode(0, [0; 2], Addr::new(i * 256)), None);
        assert_eq!(Place::decode(0, Addr::new(i * 8)), None);
    }
}

#[test]
fn tags_and_checks_of_slots_lie_apart() {
    // Fails if two fields of a bucket's first line overlap.
    let mut words = [0; 3];
    for slot in 0..SLOTS {
        words = with_slot(words, slot, slot as u8 + 100, slot as u64 + 10);
    }
    for slot in 0..SLOTS {
        assert_eq!(slot_tag(words, slot), slot as u8 + 100);
        assert_eq!(slot_check(words, slot), slot as u64 + 10);
        let other = with_slot(words, slot, 7, 3);
        let same = (0..SLOTS).filter(|other_slot| *other_slot != slot);
        assert!(same.clone().all(|slot| slot_tag(other, slot) == slot as u8 + 100));
        assert!(same.clone().all(|slot| slot_check(other, slot) == slot as u64 + 10));
    }
    for mask in 0..256 {
        let bytes = (0..8).map(|bit| if mask >> bit & 1 == 1 { 0xff } else { 0 });
        let word = u64::from_le_bytes(bytes.collect::<Vec<u8>>().try_into().unwrap());
        assert_eq!(bytes_of(mask), word);
    }
}

#[test]
fn a_bucket_splits_into_two_neighbours() {
    // Fails if a resize had to move keys anywhere else than to 2i and 2i + 1.
    for i in 0..1000 {
        for log in 0..BUCKET_BITS {
            assert_eq!(home_of(random(i), log + 1) / 2, home_of(random(i), log));
        }
        assert!(shard_of(random(i), 1000) < 1000);
        assert_eq!(home_of(random(i), 0), 0);
    }
}

#[test]
fn the_sequence_number_wraps_past_zero() {
    // Fails if 2^12 writes to one bucket would make it look like a hole.
    let last = Meta(SEQ.set(0, SEQ.max()));
    assert!(last.next(1, 0).seq() == 1 && last.next(1, 0).has_wrapped());
    assert!(!last.next(1, 0).next(1, 0).has_wrapped());
}

#[test]
fn a_pair_goes_where_a_get_looks_for_it_first() {
    // Fails if a pair takes a further line while the line of META or its own has room, or if some
    // slot is near for no hash: then it would be used last by all.
    let all = (1 << SLOTS) - 1;
    let (mut near_for_some, mut lines) = (0, [0; 4]);
    for i in 0..3000 {
        let hash = random(i);
        let near = near_slots(hash);
        assert_eq!(near.count_ones(), 6);
        assert_eq!(near & 0b11, 0b11, "the slots beside META are near for all");
        let own = (near & !0b11).trailing_zeros() as usize;
        let word = Bucket::SLOTS + 2 * own;
        assert_eq!(word as u64 / LINE_WORDS as u64, line_of(hash), "the line that is fetched");
        assert_eq!((word + 7) / LINE_WORDS, word / LINE_WORDS, "four slots of one line");
        assert_eq!(choose_slot(all, hash), Some(0));
        assert_eq!(choose_slot(all & !0b11, hash), Some(own));
        let far = all & !near;
        assert_eq!(choose_slot(far, hash), Some(far.trailing_zeros() as usize));
        assert_eq!(choose_slot(0, hash), None);
        near_for_some |= near;
        lines[line_of(hash) as usize] += 1;
    }
    assert_eq!(near_for_some, all);
    assert!(lines[0] == 0 && lines[1..].iter().all(|count| *count > 900), "{lines:?}");
}
