//! Readers under loom: what they accept is whole, durable, and of the key that they look for, in
//! any order of a few steps and on weak memory too.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use everhash_index::{Inline, Opening, Table, create};
use everhash_pmem::{Addr, Image, Region, Std};
use everhash_testkit::primitives::{self, Loom, LoomMedium, without_fences};

use crate::common::hash::KeyedHash;
use crate::common::slot_codec::Words;
use crate::wophi::bucket::{Bucket, BucketCodec};
use crate::wophi::concurrency::Stripes;
use crate::wophi::failure_atomic_writes::{commit, commit_last_word, sites, write_pair};
use crate::wophi::layout::{self, Kind, LINE_WORDS, NEXT, TOKEN, Token};
use crate::wophi::main_buckets::{MainBuckets, View};
use crate::wophi::{Wophi, WophiSettings};

#[test]
fn no_reader_takes_the_level_of_one_view_with_the_mask_of_another() {
    // Fails if level and mask are two words: beside the end of a growth a reader then looks one
    // level too far, where a bucket of other keys may lie, and misses a key that is there. Tables
    // below 128 buckets hide that, because no bucket lies where it looks.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let settings = WophiSettings { initial_buckets: 128, stripes: 8, ..WophiSettings::tiny() };
    let table =
        create::<Wophi, _>(region.clone(), &Opening::default(), &settings, &Inline).unwrap();
    let mut keys = 0u64;
    while table.stats().unwrap().slots == 3 * 128 {
        assert!(table.words().unwrap().insert_word(keys, keys).unwrap());
        keys += 1;
    }
    let words = Arc::new(region.media().words());
    let opening = Opening::default();
    let hasher = KeyedHash::new(opening.hash, opening.hash_key);
    let too_far = |hash: u64| words.get((hash as usize & 511) * LINE_WORDS).copied();
    let mut tried = 0;
    for hash in (0..keys).map(|key| hasher.word(key)) {
        // Only where a main bucket lies is anything found that could be taken for the key's own.
        let at = Addr::new((hash & 511) * 64);
        let found = too_far(hash).and_then(|word| Token::decode(word, at, Kind::Main, 3));
        if found.is_some() {
            tried += 1;
            race_with_the_end_of_a_growth(&region, &words, hash);
        }
    }
    assert!(tried > 50, "{tried}: too few keys lead to a bucket");
}

fn race_with_the_end_of_a_growth(region: &Region<Image>, words: &Arc<Vec<u64>>, hash: u64) {
    let (region, words) = (region.clone(), Arc::clone(words));
    loom::model(move || {
        let main = Arc::new(MainBuckets::<Loom, Words>::new(128));
        for extent in 0..2 {
            let at = layout::extent_link(extent);
            main.set_extent(extent, layout::decode_link(words[at.word() as usize], at).unwrap());
        }
        main.set_view(View { level: 0, growing: true });
        let grown = Arc::clone(&main);
        let writer = loom::thread::spawn(move || {
            grown.set_view(View { level: 1, growing: false });
        });
        if let Some(bucket) = main.resting_home(&region.access(), hash) {
            assert_eq!(bucket.at, main.at(hash & 255), "the bucket of another key");
        }
        writer.join().unwrap();
    });
}

/// Where the only bucket lies.
const HERE: Addr = Addr::new(256);

const KEY: u64 = 1;
const OTHER: u64 = 2;
const HASH: u64 = 0;

/// A line whose first slot holds `KEY` with 0: what the tests store to, and the rest.
fn bucket() -> LoomMedium<Loom> {
    let token = Token::empty(0).with_slot(0, 1).encode(HERE, Kind::Main);
    let link = layout::encode_link(Addr::NULL, HERE.plus(NEXT as u64));
    let words = [token, link, KEY, 0, 0, 0, 0, 0];
    let words = (0..).map(|word| HERE.plus(word)).zip(words);
    let is_stored =
        |(at, _): &(Addr, u64)| [TOKEN as u64, 2, 3].contains(&(at.word() - HERE.word()));
    let (explored, fixed): (Vec<_>, Vec<_>) = words.partition(is_stored);
    LoomMedium::new(explored, fixed)
}

/// The stripe of a bucket, and the medium on which that lies.
struct Chain {
    region: Region<LoomMedium<Loom>>,
    stripes: Stripes<Loom>,
}

impl Chain {
    fn new() -> Self {
        Chain { region: Region::new(bucket()), stripes: Stripes::new(1) }
    }

    /// Looks for `KEY` once, as a get does first; returns what the reader accepted.
    fn read(&self) -> Option<Option<u64>> {
        let pm = self.region.access();
        let stripe = self.stripes.of(HASH);
        let stamp = stripe.try_stamp()?;
        let bucket = Bucket::<_, Words>::try_resting(&pm, HERE, layout::home_in_token(1))?;
        let found = match Words::find(&pm, &bucket, HASH, KEY, &mut Vec::new()).ok()? {
            Some(slot) => Some(bucket.pair(&pm, slot).ok()?),
            None => None,
        };
        if !stripe.accepts(stamp) {
            return None;
        }
        if let Some([key, value]) = found {
            assert!(key == KEY && value <= 1, "torn, or of another key: {key} {value}");
            let durable = self.region.media().durable();
            assert!(durable >= value, "accepted before it was durable");
        }
        Some(found.map(|pair| pair[1]))
    }

    /// Gives `KEY` the value 1.
    fn update(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::read(&pm, HERE, Kind::Main).unwrap();
        self.region.media().will_be_durable(1);
        let change = held.change().unwrap();
        commit_last_word::<Words, _>(&pm, &bucket, 0, [KEY, 1]).unwrap();
        change.end();
    }

    /// Removes `KEY`.
    fn remove(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::read(&pm, HERE, Kind::Main).unwrap();
        let change = held.change().unwrap();
        commit(&pm, &bucket, bucket.token.with_slot(0, 0), sites::REMOVE).unwrap();
        change.end();
    }

    /// Puts another key into the slot, if it is free.
    fn insert_other(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::read(&pm, HERE, Kind::Main).unwrap();
        if bucket.token.count() > 0 {
            return;
        }
        write_pair::<Words, _>(&pm, &bucket, 0, HASH, [OTHER, 7], true).unwrap();
        let change = held.change().unwrap();
        commit(&pm, &bucket, bucket.token.with_slot(0, 1), sites::INSERT).unwrap();
        change.end();
    }
}

/// Returns what a reader accepted beside a writer, and perhaps another one, in every schedule with
/// up to two preemptions.
fn read_beside(write: fn(&Chain), then: Option<fn(&Chain)>) -> BTreeSet<Option<Option<u64>>> {
    primitives::read_beside(2, Chain::new, Chain::read, write, then)
}

#[test]
fn p02_no_reader_accepts_a_value_that_is_not_durable() {
    // Fails if a reader does not look at the sequence, or does so without a fence; and if readers
    // accept nothing, or are never refused, for then nothing was tried.
    let accepted = read_beside(Chain::update, None);
    assert_eq!(accepted, BTreeSet::from([None, Some(Some(0)), Some(Some(1))]));
}

#[test]
fn no_reader_accepts_what_another_thread_stored_into_a_slot_that_was_freed() {
    // Fails if the slot of a removed key is stored to without a release fence: a reader that began
    // before the removal may then see the other key's value, and not that anything has changed.
    let accepted = read_beside(Chain::remove, Some(Chain::insert_other));
    assert_eq!(accepted, BTreeSet::from([None, Some(None), Some(Some(0))]));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the models above are too small to show what the fences are for.
    let update = || read_beside(Chain::update, None);
    let remove = || read_beside(Chain::remove, Some(Chain::insert_other));
    assert!(without_fences(|order| order == Ordering::Acquire, update).is_err());
    assert!(without_fences(|order| order == Ordering::Release, remove).is_err());
    assert!(without_fences(|order| order == Ordering::Acquire, remove).is_err());
}
