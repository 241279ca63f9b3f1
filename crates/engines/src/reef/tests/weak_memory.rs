//! A look-up in the directory under loom, beside a writer that splits the leaf, moves a pair or
//! replaces it, or is the first to touch the leaf: in any order of a few steps, and on weak memory
//! too.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::Result;
use everhash_pmem::{Addr, AtomicWord, Lock, Primitives};
use everhash_testkit::primitives::{Loom, LoomWord, read_beside, without_fences};

use crate::reef::directory::{Arena, Members, Shard, Sight, Size};
use crate::reef::objects::Look;

/// The hash of the key that is looked for, in bucket 0 of the first leaf.
const HASH: u64 = 0b1000;

/// The same, in another leaf when the first one has been split.
const MOVING: u64 = 0b1001;

/// The same, in another leaf when the leaf has been split by the next bit.
const MOVING_NEXT: u64 = 0b1010;

/// Another key's, of bucket 0, with another tag.
const OTHER: u64 = 0b11_0000;

/// Where the key's object lies.
const OLD: Addr = Addr::new(800);

/// Where it lies when it was replaced.
const NEW: Addr = Addr::new(880);

/// A shard, and whether the place [`OLD`] holds something else by now.
struct Scene {
    shard: Shard<Loom>,
    hash: u64,
    reused: LoomWord,
    /// The checkpoint that the leaf may still be in.
    words: Vec<u64>,
}

impl Scene {
    /// A full leaf of one bucket with the key, which lies in another one when it has been split.
    fn splitting() -> Self {
        Self::new(1, 7, MOVING)
    }

    /// Two buckets, of which the first is full of other keys, so that the key lies in the second.
    fn displaced() -> Self {
        Self::new(2, 8, HASH)
    }

    /// As [`Scene::displaced`], behind another pair of bucket 0 of which its first slot speaks.
    fn displaced_twice() -> Self {
        Self::new(2, 9, HASH)
    }

    /// As [`Scene::splitting`], but two links lead to the leaf: others of the shard are deeper.
    fn splitting_below() -> Self {
        let scene = Self::empty(1, MOVING_NEXT);
        // The first four bits of these differ; all have the lowest one.
        (0..8).for_each(|number| scene.insert(number << 1 | 1, Addr::new(8)));
        assert_eq!(make_room(&scene.shard, 1, 1), 3);
        scene.filled(7)
    }

    /// As [`Scene::splitting`], but nobody has touched the leaf since the opening.
    fn saved() -> Self {
        let (before, mut words) = (Self::splitting(), Vec::new());
        before.shard.latch.lock().unwrap().items = 8;
        let shape = before.shard.save(&mut words).unwrap();
        let (arena, at) = (Arc::new(Arena::new(8)), Addr::NULL);
        let shard = Shard::load(&arena, (&words, at), shape, (1, 8), |_| true).unwrap();
        assert!(shard.is_saved(before.hash));
        Scene { shard, words, ..before }
    }

    /// Makes a shard of one leaf of so many buckets, with the key behind so many pairs of others.
    fn new(length: u64, others: u64, hash: u64) -> Self {
        Self::empty(length, hash).filled(others)
    }

    fn empty(length: u64, hash: u64) -> Self {
        let arena = Arc::new(Arena::new(8));
        let shard = Shard::new(&arena, Size { length, depth: 0 }).unwrap();
        Scene { shard, hash, reused: AtomicWord::new(0), words: Vec::new() }
    }

    fn filled(self, others: u64) -> Self {
        (0..others).for_each(|number| self.insert(OTHER, Addr::new(8 * (number + 1))));
        self.insert(self.hash, OLD);
        self
    }

    fn insert(&self, hash: u64, place: Addr) {
        let mut members = Members::default();
        let room = self.shard.make_room(&mut members, hash, |_| unreachable!("there is room"));
        self.shard.insert(room.unwrap(), place);
    }

    /// As [`Scene::find`], at home first, as look-ups do.
    fn find_at_home(&self) -> Option<Addr> {
        let Some(found) = self.shard.search_home(self.hash, None) else { return self.find() };
        let place = found.as_ref()?.place();
        let is_reused = place == OLD && self.reused.load(Ordering::Relaxed) == 1;
        let is_it = !is_reused && [OLD, NEW].contains(&place);
        if is_it && found?.is_unchanged() { Some(place) } else { self.find() }
    }

    /// As [`Scene::find_at_home`], where nobody may have touched the leaf.
    fn find_first(&self) -> Option<Addr> {
        if self.shard.search_home(self.hash, None).is_none() {
            self.shard.touch_to_read(self.hash, self.read()).unwrap();
        }
        self.find_at_home()
    }

    /// Returns what reads words of the checkpoint.
    fn read(&self) -> impl Fn(Addr, &mut [u64]) -> Result<()> {
        |at, part| {
            part.copy_from_slice(&self.words[at.word() as usize..][..part.len()]);
            Ok(())
        }
    }

    /// Looks for the key; returns where it was found.
    fn find(&self) -> Option<Addr> {
        let mut found = None;
        let mut look = |place| {
            // A space that was given back may hold anything: what is no object, or another key's.
            if place == OLD && self.reused.load(Ordering::Relaxed) == 1 {
                return Ok(Look::Unsound);
            }
            found = Some(place);
            Ok(if [OLD, NEW].contains(&place) { Look::Equal(1) } else { Look::Other })
        };
        let is_there = self.shard.find(self.hash, &mut look).expect("nothing is damaged");
        is_there.then_some(found).flatten()
    }
}

/// Looks for the key beside a change, in every schedule with up to two preemptions; returns where
/// it was found.
fn find_beside(
    scene: fn() -> Scene,
    change: fn(&Scene),
    find: fn(&Scene) -> Option<Addr>,
) -> BTreeSet<Option<Addr>> {
    read_beside(2, scene, find, change, None)
}

/// Splits the leaf, from DRAM alone.
fn split(scene: &Scene) {
    assert_eq!(make_room(&scene.shard, 3, OTHER), 4);
}

/// Makes room in a shard of so many leaves; returns how many it has then.
fn make_room(shard: &Shard<Loom>, leaves: u64, hash: u64) -> u64 {
    let mut members = Members { leaves, ..Members::default() };
    shard.make_room(&mut members, hash, |_| unreachable!("the tags are fresh")).unwrap();
    members.leaves
}

/// As [`split`], of a leaf that nobody may have touched; then looks for a pair that it added.
fn touch_and_split(scene: &Scene) {
    let (shard, added) = (&scene.shard, Addr::new(960));
    let mut members = shard.latch.lock().unwrap();
    shard.touch(&members, scene.hash, scene.read()).unwrap();
    let room = shard.make_room(&mut members, OTHER, |_| unreachable!("the tags are fresh"));
    shard.insert(room.unwrap(), added);
    drop(members);
    let mut look = |place| Ok(if place == added { Look::Equal(1) } else { Look::Other });
    assert!(shard.find(OTHER, &mut look).unwrap());
}

/// Removes a pair of a full bucket: one of the next bucket moves there.
fn close_up(scene: &Scene) {
    let first = scene.shard.locate_place(OTHER, Addr::new(8), 1).unwrap();
    scene.shard.remove(&first).unwrap();
}

/// Replaces the key, and gives the place of the old object back.
fn replace(scene: &Scene) {
    let found = scene.shard.locate_place(scene.hash, OLD, 1).unwrap();
    scene.shard.replace(&found, NEW);
    <Loom>::fence(Ordering::Release);
    scene.reused.store(1, Ordering::Relaxed);
}

#[test]
fn a_look_up_beside_a_split_finds_the_pair() {
    // Fails if a reader takes a leaf that is half split for one without the pair, or goes on in the
    // array of links before.
    for scene in [Scene::splitting, Scene::splitting_below] {
        let found = find_beside(scene, split, Scene::find);
        assert_eq!(found, BTreeSet::from([Some(OLD)]));
    }
    let found = find_beside(Scene::splitting, split, Scene::find_at_home);
    assert_eq!(found, BTreeSet::from([Some(OLD)]));
}

#[test]
fn a_look_up_beside_a_move_finds_the_pair() {
    // Fails if a pair that moves nearer to its home is in neither place for a reader, or if its
    // home does not say any more that another one lies behind.
    for scene in [Scene::displaced, Scene::displaced_twice] {
        for find in [Scene::find, Scene::find_at_home] {
            let found = find_beside(scene, close_up, find);
            assert_eq!(found, BTreeSet::from([Some(OLD)]));
        }
    }
}

#[test]
fn a_look_up_beside_a_replacement_finds_the_old_object_or_the_new_one() {
    // Fails if a reader reports what lies at the old place by now as damage.
    for find in [Scene::find, Scene::find_at_home] {
        let found = find_beside(Scene::splitting, replace, find);
        assert_eq!(found, BTreeSet::from([Some(OLD), Some(NEW)]));
    }
}

#[test]
fn a_look_up_beside_a_first_touch_finds_the_pair() {
    // Fails if a leaf is linked before it is whole, if a reader loads it without the latch, so that
    // what a writer did with it is lost, or if one that found no leaf takes that of an array of
    // links before for one without the pair.
    let found = find_beside(Scene::saved, touch_and_split, Scene::find_first);
    assert_eq!(found, BTreeSet::from([Some(OLD)]));
}

#[test]
fn a_look_up_that_does_not_look_again_misses_the_pair() {
    // Fails if the models above never reach the moments in which the pair is in neither place.
    let once = |scene: &Scene| {
        let look = |place| Ok(if place == OLD { Look::Equal(1) } else { Look::Other });
        (scene.shard.search(scene.hash, look).unwrap() == Sight::Present).then_some(OLD)
    };
    let missed = BTreeSet::from([None, Some(OLD)]);
    assert_eq!(find_beside(Scene::splitting, split, once), missed);
    assert_eq!(find_beside(Scene::splitting_below, split, once), missed);
    assert_eq!(find_beside(Scene::displaced, close_up, once), missed);
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the model of the replacement is too small to show what the reader's fence is for.
    for find in [Scene::find, Scene::find_at_home] {
        let beside = || find_beside(Scene::splitting, replace, find);
        assert!(without_fences(|order| order == Ordering::Acquire, beside).is_err());
    }
}
