//! Readers under loom: what they accept is whole, durable, and of the key that they look for, in
//! any order of a few steps and on weak memory too.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use everhash_index::{Inline, Opening, Table, create};
use everhash_pmem::media::{Hints, Holes, Simulation};
use everhash_pmem::{
    Addr, AtomicWord, Block, Domain, Error, Guarantees, Image, Media, Primitives, Region, Result,
    Site, Span, Std,
};
use everhash_testkit::primitives::{Loom, LoomMutex, LoomWord};

use crate::common::hash::KeyedHash;
use crate::wophi::bucket::Bucket;
use crate::wophi::concurrency::Stripes;
use crate::wophi::failure_atomic_writes::{commit, commit_last_word, sites, write_pair};
use crate::wophi::form::{Form, Words};
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
        let found = too_far(hash).and_then(|word| Token::open(word, at, Kind::Main, 3));
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
            let at = layout::main_link(extent);
            main.set_extent(extent, layout::open_link(words[at.word() as usize], at).unwrap());
        }
        main.set_view(View { level: 0, growing: true });
        let grown = Arc::clone(&main);
        let writer = loom::thread::spawn(move || {
            grown.set_view(View { level: 1, growing: false });
        });
        if let Some(bucket) = main.settled_home(&region.access(), hash) {
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

/// A medium of one bucket, with those of its words for loom that the tests below store to.
struct OneBucket<P> {
    token: LoomWord,
    slot: [LoomWord; 2],
    /// What the next fence makes durable, and what is durable.
    next: AtomicU64,
    durable: LoomWord,
    primitives: PhantomData<fn() -> P>,
}

impl<P: Primitives> OneBucket<P> {
    /// Makes a bucket whose first slot holds `KEY` with 0.
    fn new() -> Self {
        let token = Token::empty(0).with_slot(0, 1);
        OneBucket {
            token: LoomWord::new(token.seal(HERE, Kind::Main)),
            slot: [KEY, 0].map(LoomWord::new),
            next: AtomicU64::new(0),
            durable: LoomWord::new(0),
            primitives: PhantomData,
        }
    }
}

/// The line of [`OneBucket`].
struct Line<'a, P>(&'a OneBucket<P>);

impl<P> Clone for Line<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Line<'_, P> {}

impl<P: Primitives> Line<'_, P> {
    fn word(&self, index: usize) -> Option<&LoomWord> {
        match index {
            TOKEN => Some(&self.0.token),
            2 | 3 => Some(&self.0.slot[index - 2]),
            _ => None,
        }
    }

    fn load_as(&self, index: usize, order: Ordering) -> u64 {
        match self.word(index) {
            Some(word) => word.load(order),
            None if index == NEXT => layout::seal_link(Addr::NULL, HERE.plus(NEXT as u64)),
            None => 0,
        }
    }

    fn store_as(&self, index: usize, value: u64, order: Ordering) {
        self.word(index).expect("only these words are stored to").store(value, order);
    }
}

impl<P: Primitives, const N: usize> Block<N> for Line<'_, P> {
    fn start(&self) -> Addr {
        HERE
    }

    fn load(&self, index: usize) -> u64 {
        self.load_as(index, Ordering::Acquire)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.load_as(index, Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.store_as(index, value, Relaxed);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.store_as(index, value, Ordering::Release);
    }

    fn compare_exchange(
        &self,
        _index: usize,
        _current: u64,
        _new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        unreachable!("WOPHI commits by plain stores")
    }
}

impl<P: Primitives> Media for OneBucket<P> {
    type Sync = P;
    type Context = ();
    type Block<'a, const N: usize> = Line<'a, P>;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        HERE.byte() + 64
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 }
    }

    fn block<'a, const N: usize>(&'a self, _cx: &'a (), start: Addr) -> Result<Line<'a, P>> {
        assert!(start == HERE && N == LINE_WORDS);
        Ok(Line(self))
    }

    fn read_words(&self, _cx: &(), _at: Addr, _out: &mut [u64]) -> Result<()> {
        unreachable!("buckets are read through blocks")
    }

    fn write_words(&self, _cx: &(), _at: Addr, _words: &[u64]) -> Result<()> {
        unreachable!("buckets are written through blocks")
    }

    fn write_words_nt(&self, _cx: &(), _at: Addr, _words: &[u64], _site: Site) -> Result<()> {
        unreachable!("buckets are written through blocks")
    }

    fn flush(&self, _cx: &(), _span: Span, _site: Site) {}

    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        self.durable.store(self.next.load(Relaxed), Relaxed);
        Ok(())
    }

    fn sync(&self, cx: &(), site: Site) -> Result<()> {
        self.fence(cx, site)
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Err(Error::Full { needed: 0 })
    }
}

impl<P: Primitives> Hints for OneBucket<P> {}

impl<P: Primitives> Holes for OneBucket<P> {}

impl<P: Primitives> Simulation<()> for OneBucket<P> {}

/// The stripe of a bucket, and the medium on which that lies.
struct Chain<P: Primitives> {
    region: Region<OneBucket<P>>,
    stripes: Stripes<P>,
}

impl<P: Primitives> Chain<P> {
    fn new() -> Self {
        Chain { region: Region::new(OneBucket::new()), stripes: Stripes::new(1) }
    }

    /// Looks for `KEY` once, as a get does first; returns what the reader accepted.
    fn read(&self) -> Option<Option<u64>> {
        let pm = self.region.access();
        let stripe = self.stripes.of(HASH);
        let stamp = stripe.glimpse()?;
        let bucket = Bucket::<_, Words>::glance(&pm, HERE, Kind::Main)?;
        let found = match Words::find(&pm, &bucket, HASH, KEY, &mut Vec::new()).ok()? {
            Some(slot) => Some(Words::load(&pm, &bucket, slot).ok()?),
            None => None,
        };
        if !stripe.accepts(stamp) {
            return None;
        }
        if let Some([key, value]) = found {
            assert!(key == KEY && value <= 1, "torn, or of another key: {key} {value}");
            Loom::fence(Ordering::Acquire);
            let durable = self.region.media().durable.load(Relaxed);
            assert!(durable >= value, "accepted before it was durable");
        }
        Some(found.map(|pair| pair[1]))
    }

    /// Gives `KEY` the value 1.
    fn update(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::meet(&pm, HERE, Kind::Main).unwrap();
        self.region.media().next.store(1, Relaxed);
        let change = held.change().unwrap();
        commit_last_word::<Words, _>(&pm, &bucket, 0, &[KEY, 1]).unwrap();
        change.end();
    }

    /// Removes `KEY`.
    fn remove(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::meet(&pm, HERE, Kind::Main).unwrap();
        let change = held.change().unwrap();
        commit(&pm, &bucket, bucket.token.with_slot(0, 0), sites::REMOVE).unwrap();
        change.end();
    }

    /// Puts another key into the slot, if it is free.
    fn insert_other(&self) {
        let pm = self.region.access();
        let held = self.stripes.of(HASH).hold(&pm).unwrap();
        let bucket = Bucket::<_, Words>::meet(&pm, HERE, Kind::Main).unwrap();
        if bucket.token.count() > 0 {
            return;
        }
        write_pair::<Words, _>(&pm, &bucket, 0, HASH, &[OTHER, 7], true).unwrap();
        let change = held.change().unwrap();
        commit(&pm, &bucket, bucket.token.with_slot(0, 1), sites::INSERT).unwrap();
        change.end();
    }
}

/// Returns what a reader accepted beside a writer, and perhaps another one, in every schedule with
/// up to two preemptions.
fn read_beside<P: Primitives>(
    write: fn(&Chain<P>),
    then: Option<fn(&Chain<P>)>,
) -> BTreeSet<Option<Option<u64>>> {
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&accepted);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let chain = Arc::new(Chain::<P>::new());
        let (reader, all) = (Arc::clone(&chain), Arc::clone(&all));
        let reader = loom::thread::spawn(move || {
            let found = reader.read();
            all.lock().unwrap().insert(found);
        });
        let writer = then.map(|then| {
            let chain = Arc::clone(&chain);
            loom::thread::spawn(move || then(&chain))
        });
        write(&chain);
        writer.into_iter().for_each(|writer| writer.join().unwrap());
        reader.join().unwrap();
    });
    accepted.lock().unwrap().clone()
}

#[test]
fn p02_no_reader_accepts_a_value_that_is_not_durable() {
    // Fails if a reader does not look at the sequence, or does so without a fence; and if readers
    // accept nothing, or are never refused, for then nothing was tried.
    let accepted = read_beside::<Loom>(Chain::update, None);
    assert_eq!(accepted, BTreeSet::from([None, Some(Some(0)), Some(Some(1))]));
}

#[test]
fn no_reader_accepts_what_another_thread_stored_into_a_slot_that_was_freed() {
    // Fails if the slot of a removed key is stored to without a release fence: a reader that began
    // before the removal may then see the other key's value, and not that anything has changed.
    let accepted = read_beside::<Loom>(Chain::remove, Some(Chain::insert_other));
    assert_eq!(accepted, BTreeSet::from([None, Some(None), Some(Some(0))]));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the models above are too small to show what the fences are for.
    fn is_caught<P: Primitives>(write: fn(&Chain<P>), then: Option<fn(&Chain<P>)>) -> bool {
        catch_unwind(AssertUnwindSafe(|| read_beside::<P>(write, then))).is_err()
    }
    assert!(is_caught::<Without<ACQUIRE>>(Chain::update, None));
    assert!(is_caught::<Without<RELEASE>>(Chain::remove, Some(Chain::insert_other)));
    assert!(is_caught::<Without<ACQUIRE>>(Chain::remove, Some(Chain::insert_other)));
}

const RELEASE: u8 = 1;
const ACQUIRE: u8 = 2;

/// Loom without fences of one kind: the mutants that must be caught.
struct Without<const KIND: u8>;

impl<const KIND: u8> Primitives for Without<KIND> {
    type AtomicU64 = LoomWord;
    type Mutex<T: Send> = LoomMutex<T>;

    fn fence(order: Ordering) {
        let kind = if order == Ordering::Release { RELEASE } else { ACQUIRE };
        if kind != KIND {
            Loom::fence(order);
        }
    }

    fn pause(attempt: u32) {
        Loom::pause(attempt);
    }

    fn thread() -> u32 {
        Loom::thread()
    }
}
