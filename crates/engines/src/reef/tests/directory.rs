//! The directory by itself: whatever is added, moved and removed, each pair is found, and once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everhash_index::{Error, Result};
use everhash_pmem::{Addr, AtOnce, Lock, Std};
use everhash_testkit::random::Random;

use super::counted::{Counted, loads, stores};
use crate::reef::directory::{Arena, Fitting, Link, Part, Shard, Sight, Size};
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

/// Makes a shard in an arena of its own.
fn shard<P: everhash_pmem::Primitives>(level: u32) -> Shard<P> {
    let size = Size::new(level, (0, 1), 0);
    Shard::new(&Arc::new(Arena::new(size.words())), size).unwrap()
}

/// Adds a pair, and lets the key of each place have the hash that `hash_of` says.
fn add<P: everhash_pmem::Primitives>(
    shard: &Shard<P>,
    (hash, place): (u64, u64),
    hash_of: impl Fn(u64) -> u64,
) -> Result<()> {
    let mut members = shard.latch.lock()?;
    let room = shard.make_room(&mut members, hash, |found| {
        found.iter_mut().for_each(|(hash, at)| *hash = hash_of(at.byte() / 8));
        Ok(())
    })?;
    shard.insert(room, at(place));
    members.items += 1;
    Ok(())
}

/// Visits all homes of a shard.
fn visit_all(shard: &Shard<Std>, mut visit: impl FnMut(u64)) {
    let mut next = Some(0);
    while let Some(home) = next {
        next = shard
            .at_home(home, |at| {
                visit(at.byte() / 8);
                Ok(())
            })
            .unwrap();
    }
}

/// Makes a shard from the words of a checkpoint, and loads all its leaves.
fn load(
    arena: &Arc<Arena<Std>>,
    words: &[u64],
    shape: u64,
    bounds: (u64, u64),
    wanted: impl Fn(Addr) -> bool,
) -> Option<Shard<Std>> {
    let shard = Shard::load(arena, (words, Addr::NULL), shape, bounds, wanted)?;
    touch_all(&shard, words).expect("they were verified");
    Some(shard)
}

/// Loads the leaf of a hash from words at the beginning of a medium.
fn touch<P: everhash_pmem::Primitives>(shard: &Shard<P>, words: &[u64], hash: u64) -> Result<()> {
    shard.touch(&*shard.latch.lock()?, hash, |at, part| {
        part.copy_from_slice(&words[at.word() as usize..][..part.len()]);
        Ok(())
    })
}

fn touch_all<P: everhash_pmem::Primitives>(shard: &Shard<P>, words: &[u64]) -> Result<()> {
    shard.parts()?.iter().try_for_each(|part| touch(shard, words, part.index))
}

impl Known {
    fn new(level: u32) -> Self {
        Known { shard: shard(level), pairs: BTreeMap::new(), read: 0 }
    }

    fn insert(&mut self, hash: u64, place: u64) {
        let (pairs, read) = (&self.pairs, core::cell::Cell::new(0));
        let hash_of = |place| {
            read.set(read.get() + 1);
            pairs[&place]
        };
        add(&self.shard, (hash, place), hash_of).unwrap();
        self.read += read.get();
        self.pairs.insert(place, hash);
    }

    fn remove(&mut self, place: u64) {
        let hash = self.pairs.remove(&place).unwrap();
        let found = self.shard.locate_place(hash, at(place), 1).unwrap();
        self.shard.remove(&found).unwrap();
        self.shard.latch.lock().unwrap().items -= 1;
    }

    /// Lets the word of a pair lead to another place.
    fn replace(&mut self, place: u64, next: u64) {
        let hash = self.pairs.remove(&place).unwrap();
        let found = self.shard.locate_place(hash, at(place), 1).unwrap();
        self.shard.replace(&found, at(next));
        self.pairs.insert(next, hash);
    }

    fn holds(&self) {
        for (place, hash) in &self.pairs {
            assert!(self.shard.locate_place(*hash, at(*place), 1).is_some(), "{place}");
        }
        let mut seen = BTreeMap::new();
        visit_all(&self.shard, |place| *seen.entry(place).or_insert(0) += 1);
        assert!(seen.values().all(|count| *count == 1) && seen.len() == self.pairs.len());
        assert!(seen.keys().eq(self.pairs.keys()));
        let mut words = Vec::new();
        self.shard.save(&mut words).unwrap();
        let members = self.shard.latch.lock().unwrap();
        assert_eq!(members.items, self.pairs.len() as u64);
        assert_eq!(words.len() as u64, self.shard.saved_words(&members));
    }
}

#[test]
fn all_pairs_for_which_room_was_made_together_find_it() {
    // Fails if a slot is counted for two pairs, if pairs of one leaf are looked at in another order
    // than that in which they are added, or if others that are removed in between take the room.
    for round in 0..300u64 {
        let mut known = Known::new((round % 4) as u32);
        let mut random = Random::new(round);
        // Bits 20 to 51 choose the home: of every third round, one home.
        let homes = if round % 3 == 0 { 0 } else { u64::MAX };
        let hash = |place| spread(place) & (homes | !(0xffff_ffff << 20));
        let before = random.below(40);
        (1..=before).for_each(|place| known.insert(hash(place), place));
        let fresh: Vec<_> = (before + 1..=before + random.below(60)).collect();
        let hashes: Vec<_> = fresh.iter().map(|place| hash(*place)).collect();
        let mut members = known.shard.latch.lock().unwrap();
        let none = |_: &mut [(u64, Addr)]| panic!("tags have bits enough");
        known.shard.make_rooms(&mut members, &hashes, none).unwrap();
        let leaves = members.leaves;
        drop(members);
        for place in fresh {
            if random.below(3) == 0 && known.pairs.len() > 1 {
                let place = *known.pairs.keys().next().unwrap();
                known.remove(place);
            }
            known.insert(hash(place), place);
        }
        known.holds();
        assert_eq!(known.shard.latch.lock().unwrap().leaves, leaves);
    }
}

#[test]
fn a_leaf_whose_pairs_all_go_to_one_half_keeps_them() {
    // Fails if a split loses pairs of a leaf of which one half is as full as the whole was.
    for round in 0..200u64 {
        let (mut known, mut place) = (Known::new(4), 0);
        while known.shard.latch.lock().unwrap().leaves == 1 {
            place += 1;
            // The lowest bit chooses the half.
            known.insert(spread(1000 * round + place) & !1, place);
        }
        known.holds();
    }
}

#[test]
fn a_leaf_keeps_pairs_that_find_no_slot_in_the_order_in_which_they_are_moved() {
    // Fails if a split loses those that it finds no slot for when it moves one bucket after the
    // other: pairs of the last bucket that lie in the first one go home first, and take the room of
    // those that are there as far from home as a pair may be.
    let mut known = Known::new(4);
    let length = Size::new(4, (0, 1), 0).length;
    // The lowest bit chooses the half, bits 20 to 51 the home.
    let hash = |home: u64, place: u64| (((home << 32) / length + 1) << 20) | place << 1;
    let (reach, last) = (6, length - 1);
    let far = length - reach;
    (1..=8 * reach).for_each(|place| known.insert(hash(far, place), place));
    (49..=56).for_each(|place| known.insert(hash(last, place), place));
    assert_eq!(known.shard.latch.lock().unwrap().leaves, 1);
    // One that the full leaf has no room for, and that goes to the other half.
    known.insert(hash(far, 57) | 1, 57);
    assert_eq!(known.shard.latch.lock().unwrap().leaves, 2);
    known.holds();
}

#[test]
fn every_pair_is_found_while_leaves_are_split_and_emptied() {
    // Fails if a split, a tag that ran out of fresh bits, or a pair that is pulled into a hole lets
    // the directory lose a pair or keep two of it.
    for level in [0, 1, 2, 4] {
        let (mut known, mut random) = (Known::new(level), Random::new(level.into()));
        let mut next = 0;
        for round in 0..4000u64 {
            next += 1;
            known.insert(spread(next), next);
            let nth = random.below(known.pairs.len() as u64);
            let place = *known.pairs.keys().nth(nth as usize).unwrap();
            match random.below(4) {
                0 => known.remove(place),
                1 => {
                    next += 1;
                    known.replace(place, next);
                }
                _ => {}
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
fn tags_are_refreshed_once_in_nine_splits() {
    // Fails if a tag decides by bits that it does not hold, or if each split reads keys.
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
fn p14_more_keys_of_one_hash_than_a_leaf_can_hold_are_an_error() {
    // Fails if leaves are split without end because their keys were chosen to collide.
    let mut known = Known::new(2);
    (1..).take_while(|place| add(&known.shard, (spread(7), *place), |_| spread(7)).is_ok()).count();
    let leaves = known.shard.latch.lock().unwrap().leaves;
    for place in 1000..2000 {
        let refused = add(&known.shard, (spread(7), place), |_| spread(7)).unwrap_err();
        assert!(matches!(refused, everhash_index::Error::Limit { .. }), "{refused}");
    }
    assert_eq!(known.shard.latch.lock().unwrap().leaves, leaves);
    let items = known.shard.latch.lock().unwrap().items;
    assert!((20..100).contains(&items), "{items}");
    known.pairs = (1..=items).map(|place| (place, spread(7))).collect();
    known.holds();
    // Others still find room.
    (2000..3000).for_each(|place| known.insert(spread(place), place));
    known.holds();
}

#[test]
fn a_reader_without_a_latch_finds_what_is_there_and_nothing_else() {
    // Fails if the ways to search a shard differ, or if a home seldom knows the answer.
    let (mut known, mut at_home) = (Known::new(0), 0);
    (0..500).for_each(|number| known.insert(spread(number), number + 1));
    for number in 0..1000 {
        let look =
            |place: Addr| Ok(if place == at(number + 1) { Look::Equal(1) } else { Look::Other });
        let sight = known.shard.search(spread(number), look).unwrap();
        assert_eq!(sight == Sight::Present, number < 500);
        for at_once in [None, AtOnce::detect()] {
            let found = known.shard.search_home(spread(number), at_once);
            at_home += u64::from(found.is_some());
            let is_there = |found: Fitting<'_, Std>| found.place() == at(number + 1);
            let found = found.map(|found| found.is_some_and(is_there));
            assert!(found.is_none_or(|is_there| is_there == (number < 500)), "{number}");
        }
    }
    assert!(at_home > 1800, "{at_home} of 2000");
}

#[test]
fn a_free_slot_is_of_no_key() {
    // Fails if the word of a free slot passes for a pair whose tag is zero: of a million absent
    // keys one was reported as damage.
    let shard = shard::<Std>(2);
    let look = |at: Addr| -> Result<Look> { panic!("{at:?} is read, and leads nowhere") };
    for home in 0..4 {
        // Its tag is zero.
        let hash = home << 50;
        assert_eq!(shard.candidate(shard.prefetch(hash), hash), None);
        assert_eq!(shard.search(hash, look).unwrap(), Sight::Absent);
        assert!(shard.locate(hash, look).unwrap().is_none());
        assert!(shard.locate(hash + 4, look).unwrap().is_none());
    }
}

#[test]
fn what_a_checkpoint_leaves_out_hides_no_other_pair() {
    // Fails if a pair lies behind a bucket that is not full any more: a search ends there.
    for (level, count) in [(0, 5), (1, 12), (4, 100), (8, 1500)] {
        let mut known = Known::new(level);
        (0..count).for_each(|number| known.insert(spread(number), number + 1));
        let (mut words, length) = (Vec::new(), Size::new(level, (0, 1), 0).length);
        let shape = known.shard.save(&mut words).unwrap();
        for part in 1..5 {
            let wanted = |place: Addr| place.byte() / 8 % 5 >= part;
            let most = known.shard.buckets(&known.shard.latch.lock().unwrap());
            let arena = Arc::new(Arena::new(1));
            let shard = load(&arena, &words, shape, (length, most), wanted).unwrap();
            let pairs: BTreeMap<_, _> =
                known.pairs.clone().into_iter().filter(|(place, _)| wanted(at(*place))).collect();
            Known { shard, pairs, read: 0 }.holds();
            assert!(load(&arena, &words, shape, (length, most - 1), |_| true).is_none());
        }
        words.pop();
        let arena = Arc::new(Arena::<Std>::new(1));
        assert!(load(&arena, &words, shape, (length, u64::MAX), |_| true).is_none());
    }
}

#[test]
fn a_loaded_shard_goes_on_as_the_one_that_was_saved() {
    // Fails if a leaf is loaded with other bits of the hash than it was saved with.
    for level in [0, 2, 4] {
        let mut known = Known::new(level);
        (1..3000).for_each(|place| known.insert(spread(place), place));
        let (mut words, length) = (Vec::new(), Size::new(level, (0, 1), 0).length);
        let shape = known.shard.save(&mut words).unwrap();
        let arena = Arc::new(Arena::new(1));
        known.shard = load(&arena, &words, shape, (length, u64::MAX), |_| true).unwrap();
        known.holds();
        (3000..20_000).for_each(|place| known.insert(spread(place), place));
        known.holds();
    }
}

/// Returns a shard none of whose leaves is loaded, its arena, and the words that it was saved as.
fn saved(known: &Known, level: u32) -> (Shard<Std>, Arc<Arena<Std>>, Vec<u64>) {
    let (mut words, length) = (Vec::new(), Size::new(level, (0, 1), 0).length);
    let shape = known.shard.save(&mut words).unwrap();
    let arena = Arc::new(Arena::new(1));
    let (here, most) = ((&words[..], Addr::NULL), u64::MAX);
    let shard = Shard::load(&arena, here, shape, (length, most), |_| true).unwrap();
    (shard, arena, words)
}

#[test]
fn a_leaf_is_loaded_when_it_is_first_touched_and_no_other_one_is() {
    // Fails if an opening loads a leaf that nobody asked for, if a touch loads another one or one
    // twice, or if a look-up without a latch sees anything in a leaf that is not loaded.
    let mut known = Known::new(4);
    (1..3000).for_each(|place| known.insert(spread(place), place));
    let (shard, arena, words) = saved(&known, 4);
    let links = arena.dram_bytes().unwrap();
    let leaves = shard.latch.lock().unwrap().leaves;
    assert!(leaves > 8);
    let mut touched = 0;
    for hash in known.pairs.values() {
        if shard.is_saved(*hash) {
            assert!(shard.home(*hash).is_none() && shard.search_home(*hash, None).is_none());
            assert_eq!(shard.candidate(shard.prefetch(*hash), *hash), None);
            touched += 1;
        }
        touch(&shard, &words, *hash).unwrap();
        assert!(!shard.is_saved(*hash) && shard.home(*hash).is_some());
        assert_eq!(arena.dram_bytes().unwrap() - links, touched * 16 * 64);
    }
    assert_eq!(touched, leaves);
    known.shard = shard;
    known.holds();
}

#[test]
fn a_leaf_that_is_not_loaded_stays_where_it_is_while_others_are_split() {
    // Fails if links that double forget a leaf that is not loaded, or if one that is loaded behind
    // that does not get all its links.
    let mut known = Known::new(4);
    (1..3000).for_each(|place| known.insert(spread(place), place));
    let (shard, _arena, words) = saved(&known, 4);
    let before = shard.latch.lock().unwrap().leaves;
    touch(&shard, &words, 5).unwrap();
    known.shard = shard;
    // All of one leaf, which has 16 bits of the hash at least when they are there.
    for place in (3000..).filter(|place| spread(*place) % 64 == 5).take(3000) {
        let hash = spread(place);
        touch(&known.shard, &words, hash).unwrap();
        known.insert(hash, place);
    }
    let after = known.shard.latch.lock().unwrap().leaves;
    let is_saved = |part: &Part| known.shard.is_saved(part.index);
    let left = known.shard.parts().unwrap().iter().filter(|part| is_saved(part)).count() as u64;
    assert!(after >= before + 10 && left > before / 2, "{before} leaves, {after}, {left} saved");
    touch_all(&known.shard, &words).unwrap();
    known.holds();
}

#[test]
fn a_link_names_a_leaf_of_a_checkpoint_or_says_that_it_cannot() {
    // Fails if a leaf far behind the beginning of its shard is looked for elsewhere, or if the bits
    // of the hash that lead to it make another place of it.
    let farthest = u32::MAX as usize;
    for word in [0, 1, 1 << 20, farthest] {
        let link = Link::to_saved(word).unwrap().with(31, 30);
        assert!(link.is_saved());
        assert_eq!((link.word(), link.depth(), link.base()), (word, 31, 30));
    }
    assert!(Link::to_saved(farthest + 1).is_none());
    assert!(!Link::new(62, farthest).with(31, 30).is_saved());
}

#[test]
fn p07_a_shard_with_a_word_that_no_leaf_has_is_refused_when_it_is_opened() {
    // Fails if that is seen at the first touch only: the log has what a checkpoint that is ignored
    // would have said, and a key is then out of reach for nothing.
    let mut known = Known::new(4);
    (1..3000).for_each(|place| known.insert(spread(place), place));
    let (mut words, length) = (Vec::new(), Size::new(4, (0, 1), 0).length);
    let shape = known.shard.save(&mut words).unwrap();
    let loads = |words: &[u64]| {
        let arena = Arc::new(Arena::<Std>::new(1));
        let shard = Shard::load(&arena, (words, Addr::NULL), shape, (length, u64::MAX), |_| true);
        shard.is_some()
    };
    assert!(loads(&words));
    let first_pair = words[2];
    for word in [0, first_pair | 7 << 42, first_pair | 1 << 41] {
        words[2] = word;
        assert!(!loads(&words), "{word:#x}");
    }
}

#[test]
fn what_a_clear_removes_is_not_loaded_later() {
    // Fails if a cleared shard finds its pairs again in the checkpoint, or takes no others.
    let mut known = Known::new(4);
    (1..3000).for_each(|place| known.insert(spread(place), place));
    let (shard, _arena, words) = saved(&known, 4);
    touch(&shard, &words, spread(1)).unwrap();
    shard.clear(&mut shard.latch.lock().unwrap()).unwrap();
    touch_all(&shard, &words).unwrap();
    known = Known { shard, pairs: BTreeMap::new(), read: 0 };
    known.holds();
    (1..3000).for_each(|place| known.insert(spread(place), place));
    known.holds();
}

#[test]
fn a_leaf_that_was_changed_since_the_opening_is_damage() {
    // Fails if words that were sound when they were verified are believed later: another leaf's, a
    // count beyond a bucket, or a word that no leaf has.
    let mut known = Known::new(4);
    (1..3000).for_each(|place| known.insert(spread(place), place));
    let (shard, _arena, words) = saved(&known, 4);
    // Of 16 buckets: two words, and then the pairs.
    let hash = words[0] & 0xffff_ffff;
    let far = 7 << 42;
    for (word, change) in
        [(0, 1), (0, 1 << 32), (0, 1 << 38), (0, 0xf << 44), (2, far), (2, 1 << 41)]
    {
        let mut changed = words.clone();
        changed[word] |= change;
        changed[word] ^= if changed[word] == words[word] { change } else { 0 };
        let error = touch(&shard, &changed, hash).unwrap_err();
        assert!(matches!(error, Error::Corrupt { at: 0, .. }), "word {word}: {error}");
        assert!(shard.is_saved(hash));
    }
    touch_all(&shard, &words).unwrap();
    known.shard = shard;
    known.holds();
}

#[test]
fn p07_a_forged_shard_takes_no_more_memory_than_its_buckets() {
    // Fails if the shape of a shard is believed: leaves of one bucket, and links to 128 times as
    // many as there are.
    const LEAVES: u64 = 128;
    let shape = 14 | 1 << 8 | LEAVES << 16;
    let words: Vec<u64> = (0..LEAVES).map(|index| index | 7 << 32 | 7 << 38).collect();
    let load = |length, most| {
        let arena = Arc::new(Arena::<Std>::new(1));
        let before = arena.dram_bytes().unwrap();
        let shard = load(&arena, &words, shape, (length, most), |_| true);
        (shard.is_some(), arena.dram_bytes().unwrap() - before)
    };
    assert_eq!(load(16, u64::MAX), (false, 0), "leaves of this shard have another length");
    assert_eq!(load(1, LEAVES), (false, 0), "there are too many links");
    assert!(load(1, 16 * LEAVES).0, "nothing else is wrong with it");
}

#[test]
fn a_shard_that_grows_while_it_is_saved_is_saved_whole() {
    // Fails if a leaf that is split meanwhile is saved twice, in part or not at all: the shard
    // could not be loaded, or had lost a pair that was there from the beginning.
    for between in [1, 20, 300] {
        let mut known = Known::new(2);
        (1..3000).for_each(|place| known.insert(spread(place), place));
        let (before, parts) = (known.pairs.clone(), known.shard.parts().unwrap());
        let (mut words, mut shape, mut next) = (Vec::new(), 0, 3000);
        for part in parts {
            shape = known.shard.save_part(part, shape, &mut words).unwrap();
            (next..next + between).for_each(|place| known.insert(spread(place), place));
            next += between;
        }
        let arena = Arc::new(Arena::new(1));
        let length = Size::new(2, (0, 1), 0).length;
        let was_there = |place: Addr| before.contains_key(&(place.byte() / 8));
        let shard = load(&arena, &words, shape, (length, u64::MAX), was_there).unwrap();
        Known { shard, pairs: before, read: 0 }.holds();
    }
}

#[test]
fn no_insert_moves_more_than_a_leaf() {
    // Fails if growth holds up a writer for longer the more pairs there are: but for the links,
    // which are copied when they double, a hundredth of the words.
    let shard = shard::<Counted>(4);
    let (mut long, mut links) = (0, 0);
    for place in 1..200_000 {
        let before = stores();
        add(&shard, (spread(place), place), spread).unwrap();
        let stored = stores() - before;
        let leaves = shard.latch.lock().unwrap().leaves;
        // The halves, the links to them, and what latches and the pair itself take.
        if stored > 2 * 16 * 8 + 64 {
            long += 1;
            links = stored.max(links);
            assert!(stored < 2 * 16 * 8 + 16 * leaves + 64, "{place}: {stored} words");
        }
    }
    println!("{long} of 200,000 copied the links; at most {links} words were stored");
    assert!(long < 20);
}

/// Returns how many of a thousand look-ups of absent keys look at more than one bucket.
fn looked_further(shard: &Shard<Counted>) -> usize {
    let further = (1_000_000..1_100_000).filter(|absent| {
        let before = loads();
        let sight = shard.search(spread(*absent), |_| Ok(Look::Other)).unwrap();
        assert_eq!(sight, Sight::Absent);
        // Of a bucket eight words are compared; twice four are looked at for other reasons.
        loads() - before > 16
    });
    further.count() / 100
}

#[test]
fn what_is_absent_is_looked_for_in_one_bucket() {
    // Fails if a full bucket sends every look-up on, or if it still does so for pairs that have
    // been removed or have come home: one of five buckets is full.
    let shard = shard::<Counted>(4);
    let (mut random, mut places) = (Random::new(5), Vec::new());
    let mut further = Vec::new();
    for place in 1..20_000 {
        add(&shard, (spread(place), place), spread).unwrap();
        places.push(place);
        if place % 1000 == 0 {
            further.push(looked_further(&shard));
        }
    }
    for place in 20_000..100_000 {
        add(&shard, (spread(place), place), spread).unwrap();
        let last = places.len() - 1;
        places.swap(random.below(last as u64) as usize, last);
        let gone = core::mem::replace(&mut places[last], place);
        let found = shard.locate_place(spread(gone), at(gone), 1).unwrap();
        shard.remove(&found).unwrap();
    }
    let churned = looked_further(&shard);
    println!("of a thousand absent ones looked further: {further:?}; later {churned}");
    assert!(further.iter().all(|count| *count < 60) && churned < 60);
}

#[test]
fn a_scan_beside_splits_visits_every_pair_that_stays_once() {
    // Fails if a split sends a pair to a home that a scan has passed, or one that it has visited to
    // a home that is still to come.
    for (level, each) in [(0, 20), (4, 20), (0, 1), (4, 1), (4, 300)] {
        let mut known = Known::new(level);
        let stays = 1..400;
        stays.clone().for_each(|place| known.insert(spread(place), place));
        let (mut seen, mut next, mut place) = (vec![0; 400], Some(0), 400);
        while let Some(home) = next {
            next = known
                .shard
                .at_home(home, |at| {
                    if let Some(seen) = seen.get_mut((at.byte() / 8) as usize) {
                        *seen += 1;
                    }
                    Ok(())
                })
                .unwrap();
            for _ in 0..if place < 20_000 { each } else { 0 } {
                known.insert(spread(place), place);
                if place >= 800 {
                    known.remove(place - 400);
                }
                place += 1;
            }
        }
        assert!(
            place > 400 + each && stays.into_iter().all(|place| seen[place as usize] == 1),
            "{seen:?}"
        );
    }
}

#[test]
fn readers_beside_splits_and_removals_miss_no_pair() {
    // Fails if a processor's own orders show a reader a leaf that is half split.
    const STAY: u64 = 200;
    for level in [0, 4] {
        let shard = shard::<Std>(level);
        (1..=STAY).for_each(|place| add(&shard, (spread(place), place), spread).unwrap());
        let (done, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for place in STAY + 1..100_000 {
                    add(&shard, (spread(place), place), spread).unwrap();
                    if place > 2 * STAY && place % 8 != 0 {
                        let _members = shard.latch.lock().unwrap();
                        let old = place - STAY;
                        if let Some(found) = shard.locate_place(spread(old), at(old), 1) {
                            shard.remove(&found).unwrap();
                        }
                    }
                }
                // Ends: a round of the reader is short.
                while rounds.load(Ordering::Relaxed) < 10 {
                    std::thread::yield_now();
                }
                done.store(1, Ordering::Relaxed);
            });
            while done.load(Ordering::Relaxed) == 0 {
                for place in 1..=STAY {
                    let mut look =
                        |it| Ok(if it == at(place) { Look::Equal(1) } else { Look::Other });
                    assert!(shard.find(spread(place), &mut look).unwrap(), "{place}");
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

#[test]
fn pairs_take_fourteen_bytes_of_memory_and_look_ups_one_object() {
    // Fails if leaves are split half empty, or all at the same time; or if tags do not spare
    // objects, as they do not once their bits are used up.
    const SHARDS: u64 = 64;
    let sizes = (0..SHARDS).map(|number| Size::new(4, (number, SHARDS), 0));
    let arena = Arc::new(Arena::<Std>::new(1));
    let shards: Vec<_> = sizes.map(|size| Shard::new(&arena, size).unwrap()).collect();
    let shard = |hash: u64| &shards[(hash >> 52) as usize % SHARDS as usize];
    let (mut next, mut samples, mut most) = (40_000, Vec::new(), 0.0);
    for place in 1..640_000 {
        add(shard(spread(place)), (spread(place), place), spread).unwrap();
        if place == next {
            let bytes = arena.dram_bytes().unwrap() as f64 / place as f64;
            samples.push(bytes);
            most = f64::max(most, bytes);
            next += next / 50;
        }
    }
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let mut looks = [0; 2];
    for place in 1..1_280_000 {
        let mut look = |it| {
            looks[usize::from(place >= 640_000)] += 1;
            Ok(if it == at(place) { Look::Equal(1) } else { Look::Other })
        };
        assert_eq!(shard(spread(place)).find(spread(place), &mut look).unwrap(), place < 640_000);
    }
    let looks = looks.map(|count| f64::from(count) / 640_000.0);
    println!("{mean:.2} bytes a pair, at most {most:.2}; objects: {looks:?}");
    assert!(mean < 14.0 && most < 18.0 && looks[0] < 1.01 && looks[1] < 0.001);
}
