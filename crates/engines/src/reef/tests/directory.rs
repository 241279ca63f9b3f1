//! The directory by itself: whatever is added, moved and removed, each pair is found, and once.

use std::collections::BTreeMap;

use everhash_index::Result;
use everhash_pmem::{Addr, Lock, Std};

use crate::reef::directory::{Shard, Sight};
use crate::reef::objects::Look;

/// A shard of which every pair is known.
struct Known {
    shard: Shard<Std>,
    /// Hash of each place.
    pairs: BTreeMap<u64, u64>,
    /// How often a key was read for a fresh tag.
    read: u64,
}

fn at(place: u64) -> Addr {
    Addr::new(8 * place)
}

/// Spreads a number over all bits of a hash.
fn spread(number: u64) -> u64 {
    let spread = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread ^ spread >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl Known {
    fn new(level: u32) -> Self {
        Known { shard: Shard::new(level, (0, 1), 0), pairs: BTreeMap::new(), read: 0 }
    }

    fn insert(&mut self, hash: u64, place: u64) {
        let items = self.pairs.len() as u64 + 1;
        let (pairs, read) = (&self.pairs, &mut self.read);
        let rehash = |found: &mut [(u64, Addr)]| {
            *read += found.len() as u64;
            found.iter_mut().for_each(|(hash, at)| *hash = pairs[&(at.byte() / 8)]);
            Ok(())
        };
        self.shard.make_room(items, hash, rehash).unwrap();
        self.shard.insert(hash, at(place));
        self.pairs.insert(place, hash);
    }

    fn remove(&mut self, place: u64) {
        let hash = self.pairs.remove(&place).unwrap();
        let found = self.shard.locate_place(hash, at(place), 1).unwrap();
        self.shard.remove(&found).unwrap();
    }

    fn holds(&self) {
        for (place, hash) in &self.pairs {
            assert!(self.shard.locate_place(*hash, at(*place), 1).is_some(), "{place}");
        }
        let mut seen = BTreeMap::new();
        let visit = |at: Addr| {
            *seen.entry(at.byte() / 8).or_insert(0) += 1;
            Ok(())
        };
        self.shard.at_home(0..self.shard.buckets(), visit).unwrap();
        assert!(seen.values().all(|count| *count == 1) && seen.len() == self.pairs.len());
        assert!(seen.keys().eq(self.pairs.keys()));
    }
}

#[test]
fn every_pair_is_found_while_a_shard_doubles_and_shrinks() {
    // Fails if a doubling, a tag that ran out of fresh bits, or a pair that is pulled into a hole
    // lets the directory lose a pair or keep two of it.
    for level in [0, 1, 2] {
        let mut known = Known::new(level);
        for round in 0..3000u64 {
            known.insert(spread(round), round + 1);
            if round % 3 == 2 {
                let nth = spread(round) % known.pairs.len() as u64;
                let place = *known.pairs.keys().nth(nth as usize).unwrap();
                known.remove(place);
            }
            if round % 100 == 0 || round < 40 {
                known.holds();
            }
        }
        let all: Vec<u64> = known.pairs.keys().copied().collect();
        for (number, place) in all.into_iter().enumerate() {
            known.remove(place);
            if number % 100 == 0 {
                known.holds();
            }
        }
        known.holds();
    }
}

#[test]
fn tags_are_refreshed_once_in_nine_doublings() {
    // Fails if a tag decides by bits that it does not hold, or if each doubling reads keys.
    let mut known = Known::new(0);
    (0..40_000).for_each(|number| known.insert(spread(number), number + 1));
    known.holds();
    assert!((1000..10_000).contains(&known.read), "{} keys were read", known.read);
}

#[test]
fn p14_keys_of_one_hash_are_told_apart_by_reading_them() {
    // Fails if equal bits of a hash are taken for an equal key.
    let mut known = Known::new(2);
    (1..=20).for_each(|place| known.insert(spread(7), place));
    known.holds();
    known.remove(11);
    known.holds();
    assert!(known.shard.locate_place(spread(7), at(11), 1).is_none());
}

#[test]
fn p14_more_keys_of_one_hash_than_a_shard_can_hold_are_an_error() {
    // Fails if a shard doubles without end because its keys were chosen to collide.
    let mut known = Known::new(2);
    let mut place = 0;
    let refused = loop {
        place += 1;
        let rehash = |found: &mut [(u64, Addr)]| {
            found.iter_mut().for_each(|(hash, _)| *hash = spread(7));
            Ok(())
        };
        match known.shard.make_room(place, spread(7), rehash) {
            Ok(()) => known.shard.insert(spread(7), at(place)),
            Err(error) => break error,
        }
        assert!(place < 1000);
    };
    assert!(matches!(refused, everhash_index::Error::Full { .. }), "{refused}");
    known.pairs = (1..place).map(|place| (place, spread(7))).collect();
    known.holds();
}

#[test]
fn a_reader_without_a_latch_finds_what_is_there_and_nothing_else() {
    // Fails if the two ways to search a shard differ.
    let mut known = Known::new(0);
    (0..500).for_each(|number| known.insert(spread(number), number + 1));
    for number in 0..1000 {
        let look =
            |place: Addr| Ok(if place == at(number + 1) { Look::Equal(1) } else { Look::Other });
        let sight = known.shard.search(spread(number), look).unwrap();
        assert_eq!(sight == crate::reef::directory::Sight::Present, number < 500);
    }
    assert!(known.shard.latch.lock().is_ok());
}

#[test]
fn a_free_slot_is_of_no_key() {
    // Fails if the word of a free slot passes for a pair whose tag is zero: of a million absent
    // keys one was reported as damage.
    let shard = Shard::<Std>::new(2, (0, 1), 0);
    let look = |at: Addr| -> Result<Look> { panic!("{at:?} is read, and leads nowhere") };
    for home in 0..4 {
        assert_eq!(shard.candidate(home), None);
        assert_eq!(shard.search(home, look).unwrap(), Sight::Absent);
        assert!(shard.locate(home, look).unwrap().is_none());
        assert!(shard.locate(home + 4, look).unwrap().is_none());
    }
}

#[test]
fn what_a_checkpoint_leaves_out_hides_no_other_pair() {
    // Fails if a pair lies behind a bucket that is not full any more: a search ends there.
    for (level, count) in [(0, 5), (1, 12), (4, 100), (8, 1500)] {
        let mut known = Known::new(level);
        (0..count).for_each(|number| known.insert(spread(number), number + 1));
        let mut words = Vec::new();
        let shape = known.shard.save(&mut words);
        for part in 1..5 {
            let wanted = |place: Addr| place.byte() / 8 % 5 >= part;
            let most = known.shard.buckets();
            let shard = Shard::load(&words, shape, (0, 1), most, wanted).unwrap();
            let pairs: BTreeMap<_, _> =
                known.pairs.clone().into_iter().filter(|(place, _)| wanted(at(*place))).collect();
            assert_eq!(shard.latch.lock().unwrap().items, pairs.len() as u64);
            Known { shard, pairs, read: 0 }.holds();
        }
        assert!(
            Shard::<Std>::load(&words, shape, (0, 1), known.shard.buckets() - 1, |_| true)
                .is_none()
        );
        words.pop();
        assert!(Shard::<Std>::load(&words, shape, (0, 1), u64::MAX, |_| true).is_none());
    }
}
