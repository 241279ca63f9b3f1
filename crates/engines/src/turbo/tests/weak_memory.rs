//! The read protocol under loom: no reader is shown what is torn, not yet durable, or of another
//! shard, in any order of a few steps and on weak memory either.

use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::sync::LazyLock;

use everhash_pmem::{Addr, AtomicWord, Primitives, Region, before_reuse};
use everhash_testkit::primitives::{self, Loom, LoomMedium, LoomWord, without_fences};

use crate::common::slot_codec::{HashedKey, Words};
use crate::turbo::bucket::{Bucket, Fences, Pair, sites};
use crate::turbo::concurrency::Shard;
use crate::turbo::layout::{self, Bucket as Ruler, LINE_WORDS, Meta, Place};
use crate::turbo::search_path::{Hints, Reach, try_fast_get};

/// Where the only bucket of the shard lies, and where it may move to.
const HERE: Place = Place { start: Addr::new(256), log: 0 };
const THERE: Place = Place { start: Addr::new(512), log: 0 };

const KEY: u64 = 1;
/// What a reader returns that does not find `KEY`.
const ABSENT: u64 = 9;
/// The hash of both keys: the other one matches every tag that `KEY` matches.
const HASH: u64 = 7;
/// Those of a pair beside META, where a line keeps the order of its stores: none.
const FENCES: Fences = Fences { is_ordered: true, after_record: false };
const REACH: Reach = Reach { scope: 1, bucket_slots: 4 };

/// A bucket whose first slot holds `KEY` with 0. Tags and checks are there already that the writes
/// below would store: with fewer steps loom is through sooner.
fn bucket(at: Addr) -> impl Iterator<Item = (Addr, u64)> {
    let pairs = [[KEY, 0], [KEY, 1]];
    let mut words = [0; 3];
    for (slot, pair) in pairs.into_iter().enumerate() {
        let check = layout::check_of(pair, at, slot);
        words = layout::with_slot(words, slot, layout::tag_of(HASH), check);
    }
    let mut bucket = [0; LINE_WORDS];
    bucket[Ruler::META] = Meta::first(0b1).encode([words[0], words[1]], at);
    bucket[Ruler::TAGS..][..3].copy_from_slice(&words);
    bucket[Ruler::SLOTS..][..2].copy_from_slice(&pairs[0]);
    (0..).map(move |word| at.plus(word)).zip(bucket)
}

/// Returns a pair of another key that passes the check of the first slot, whose value also does
/// beside `KEY`: a reader shall not be saved by the check.
static OTHER: LazyLock<Pair> = LazyLock::new(|| {
    let passes = |key, value| {
        let check = |pair: Pair| layout::check_of(pair, HERE.start, 0);
        check([key, value]) == check([KEY, 0])
    };
    let other = (KEY + 1..100_000).find(|key| passes(*key, 0));
    let other = other.expect("one key in 32 passes with 0");
    let value = (2..100_000).find(|value| passes(KEY, *value) && passes(other, *value));
    [other, value.expect("one value in 1024 passes with both")]
});

/// A shard of one bucket, and the medium on which it lies.
struct Table<P: Primitives> {
    region: Region<LoomMedium<P>>,
    shard: Shard<P>,
}

impl<P: Primitives> Table<P> {
    fn new() -> Self {
        let words = [HERE, THERE].into_iter().flat_map(|place| bucket(place.start));
        Table { region: Region::new(LoomMedium::new(words, [])), shard: Shard::new(HERE) }
    }

    /// Looks for the key once, and returns its value if the reader accepts what it saw.
    fn read(&self) -> Option<u64> {
        let wanted = HashedKey::<Words> { hash: HASH, key: KEY };
        let hints = Hints { is_fetched: true, at_once: None };
        let used = || (1 << REACH.bucket_slots) - 1;
        let found = try_fast_get(&self.region.access(), &self.shard, used, wanted, hints)?;
        let Some([key, value]) = found else { return Some(ABSENT) };
        assert!(key == KEY && value <= 1, "torn, or of another shard: {value}");
        let durable = self.region.media().durable();
        assert!(durable >= value, "accepted before it was durable");
        Some(value)
    }

    /// Gives the key the value 1 in the second slot, and the first slot to another key.
    fn update_and_insert(&self) {
        let pm = self.region.access();
        let held = self.shard.hold(&pm).unwrap();
        let bucket = Bucket::of(&pm, HERE, 0).unwrap();
        for (slot, pair) in [(1, [KEY, 1]), (0, *OTHER)] {
            self.region.media().will_be_durable(1);
            let view = bucket.view_of(bucket.meta_word()).unwrap();
            let tag = layout::tag_of(HASH);
            let filled = bucket.fill(&pm, &view, slot, tag, pair, FENCES).unwrap();
            let meta = if slot == 1 { view.updated(0, 1) } else { view.inserted(0) };
            bucket.commit(&pm, &filled, meta, held.pending(0, meta), sites::UPDATE).unwrap();
        }
    }

    /// Removes the key, gives its slot to another value and then to the first one again, as 4095
    /// writes do after which META is what it was.
    fn come_round(&self) {
        let pm = self.region.access();
        let held = self.shard.hold(&pm).unwrap();
        let bucket = Bucket::of(&pm, HERE, 0).unwrap();
        let view = bucket.view_of(bucket.meta_word()).unwrap();
        let removed = view.removed(0);
        bucket.commit(&pm, &view, removed, held.pending(0, removed), sites::REMOVE).unwrap();
        for pair in [[KEY, OTHER[1]], [KEY, 0]] {
            bucket.fill(&pm, &view, 0, layout::tag_of(HASH), pair, FENCES).unwrap();
        }
        assert!(view.meta.has_wrapped());
        let pending = held.pending(0, view.meta);
        bucket.commit(&pm, &view, view.meta, pending, sites::INSERT).unwrap();
    }

    /// Moves the shard; another one stores a pair where it lay before.
    fn move_and_reuse(&self) {
        let pm = self.region.access();
        let held = self.shard.hold(&pm).unwrap();
        held.moved(THERE);
        before_reuse::<P>();
        pm.store(HERE.start.plus(Ruler::SLOTS as u64 + 1), OTHER[1]).unwrap();
    }
}

/// Returns what a reader accepted beside `write`, in every schedule with up to three preemptions.
fn read_beside<P: Primitives>(write: fn(&Table<P>)) -> BTreeSet<Option<u64>> {
    primitives::read_beside(3, Table::<P>::new, Table::read, write, None)
}

#[test]
fn p02_no_reader_accepts_a_torn_or_undurable_pair() {
    // Fails if a fence of `fill` or `try_fast_get` is taken away, or the pending bucket that
    // `commit` names; and if readers accept nothing, or are never refused, for then nothing was
    // tried.
    let accepted = read_beside::<Loom>(Table::update_and_insert);
    assert_eq!(accepted, BTreeSet::from([None, Some(0), Some(1)]));
}

#[test]
fn no_reader_accepts_what_another_shard_stored_where_this_one_lay() {
    // Fails if a reader does not look whether the shard has moved, or does so without a fence.
    let accepted = read_beside::<Loom>(Table::move_and_reuse);
    assert_eq!(accepted, BTreeSet::from([None, Some(0)]));
}

#[test]
fn no_reader_accepts_what_was_written_while_a_sequence_number_came_round() {
    // Fails if META alone tells whether a bucket was written: after 4095 writes it is the same.
    let accepted = read_beside::<Loom>(Table::come_round);
    assert_eq!(accepted, BTreeSet::from([None, Some(0), Some(ABSENT)]));
}

#[test]
fn a_missing_fence_or_pending_bucket_is_caught() {
    // Fails if the models above are too small to show what the fences and the word are for.
    fn is_caught<P: Primitives>(left_out: fn(Ordering) -> bool, write: fn(&Table<P>)) -> bool {
        without_fences(left_out, || read_beside::<P>(write)).is_err()
    }
    for write in [Table::update_and_insert, Table::move_and_reuse] {
        assert!(is_caught::<Loom>(|order| order == Ordering::Release, write));
        assert!(is_caught::<Loom>(|order| order == Ordering::Acquire, write));
    }
    for write in [Table::update_and_insert, Table::come_round] {
        assert!(is_caught::<Loom<Forgetful>>(|_| false, write));
    }
}

/// A word that forgets to store 1, which is how the first bucket is called pending, and to count.
struct Forgetful(LoomWord);

impl AtomicWord for Forgetful {
    fn new(value: u64) -> Self {
        Forgetful(LoomWord::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        if value != 1 {
            self.0.store(value, order);
        }
    }

    fn fetch_add(&self, _value: u64, _order: Ordering) -> u64 {
        self.0.load(Relaxed)
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(value, order)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> core::result::Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
