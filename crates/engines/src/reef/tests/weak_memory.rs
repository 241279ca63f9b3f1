//! A look-up in the directory under loom, beside a writer that doubles the shard, moves a pair or
//! replaces it: in any order of a few steps, and on weak memory too.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use everhash_pmem::{Addr, AtomicWord, Primitives};
use everhash_testkit::primitives::{ACQUIRE, Loom, Without, read_beside};

use crate::reef::directory::{Shard, Sight};
use crate::reef::objects::Look;

/// The hash of the key that is looked for, in bucket 0 of any shard here.
const HASH: u64 = 0b1000;

/// The same, in bucket 1 when the shard has doubled.
const MOVING: u64 = 0b1001;

/// Another key's, of bucket 0, with another tag.
const OTHER: u64 = 0b11_0000;

/// Where the key's object lies.
const OLD: Addr = Addr::new(800);

/// Where it lies when it was replaced.
const NEW: Addr = Addr::new(880);

/// A shard, and whether the place [`OLD`] holds something else by now.
struct Scene<P: Primitives> {
    shard: Shard<P>,
    hash: u64,
    reused: P::AtomicU64,
}

impl<P: Primitives> Scene<P> {
    /// One bucket with the key, which lies in another one when the shard has doubled.
    fn doubling() -> Self {
        Self::new(0, 1, MOVING)
    }

    /// Two buckets, of which the first is full of other keys, so that the key lies in the second.
    fn displaced() -> Self {
        Self::new(1, 8, HASH)
    }

    /// Makes a shard with the key, behind so many pairs of other keys.
    fn new(level: u32, others: u64, hash: u64) -> Self {
        let shard = Shard::new(level, (0, 1), 0);
        (0..others).for_each(|number| shard.insert(OTHER, Addr::new(8 * (number + 1))));
        shard.insert(hash, OLD);
        Scene { shard, hash, reused: AtomicWord::new(0) }
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
fn find_beside<P: Primitives + 'static>(
    scene: fn() -> Scene<P>,
    change: fn(&Scene<P>),
    find: fn(&Scene<P>) -> Option<Addr>,
) -> BTreeSet<Option<Addr>> {
    read_beside(2, scene, find, change, None)
}

/// Doubles the shard, from DRAM alone.
fn double<P: Primitives>(scene: &Scene<P>) {
    scene.shard.make_room(8, OTHER, |_| unreachable!("the tags are fresh")).unwrap();
}

/// Removes a pair of a full bucket: one of the next bucket moves there.
fn close_up<P: Primitives>(scene: &Scene<P>) {
    let first = scene.shard.locate_place(OTHER, Addr::new(8), 1).unwrap();
    scene.shard.remove(&first).unwrap();
}

/// Replaces the key, and gives the place of the old object back.
fn replace<P: Primitives>(scene: &Scene<P>) {
    let found = scene.shard.locate_place(scene.hash, OLD, 1).unwrap();
    scene.shard.replace(&found, NEW);
    P::fence(Ordering::Release);
    scene.reused.store(1, Ordering::Relaxed);
}

#[test]
fn a_look_up_beside_a_doubling_finds_the_pair() {
    // Fails if a reader takes a shard that is half doubled for one without the pair.
    let found = find_beside::<Loom>(Scene::doubling, double, Scene::find);
    assert_eq!(found, BTreeSet::from([Some(OLD)]));
}

#[test]
fn a_look_up_beside_a_move_finds_the_pair() {
    // Fails if a pair that moves nearer to its home is in neither place for a reader.
    let found = find_beside::<Loom>(Scene::displaced, close_up, Scene::find);
    assert_eq!(found, BTreeSet::from([Some(OLD)]));
}

#[test]
fn a_look_up_beside_a_replacement_finds_the_old_object_or_the_new_one() {
    // Fails if a reader reports what lies at the old place by now as damage.
    let found = find_beside::<Loom>(Scene::doubling, replace, Scene::find);
    assert_eq!(found, BTreeSet::from([Some(OLD), Some(NEW)]));
}

#[test]
fn a_look_up_that_does_not_look_again_misses_the_pair() {
    // Fails if the models above never reach the moments in which the pair is in neither place.
    let once = |scene: &Scene<Loom>| {
        let look = |place| Ok(if place == OLD { Look::Equal(1) } else { Look::Other });
        (scene.shard.search(scene.hash, look).unwrap() == Sight::Present).then_some(OLD)
    };
    let missed = BTreeSet::from([None, Some(OLD)]);
    assert_eq!(find_beside(Scene::doubling, double, once), missed);
    assert_eq!(find_beside(Scene::displaced, close_up, once), missed);
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the model of the replacement is too small to show what the reader's fence is for.
    let scene = Scene::<Without<ACQUIRE>>::doubling;
    let beside = AssertUnwindSafe(|| find_beside(scene, replace, Scene::find));
    assert!(catch_unwind(beside).is_err());
}
