//! Shadow reading under loom: whatever becomes of the shadow, a reader accepts the newest durable
//! value of its key, in any order of a few steps and on weak memory too.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use everhash_index::{Inline, Opening, Table, create};
use everhash_pmem::media::{Hints, Holes, Simulation};
use everhash_pmem::{
    Addr, AtomicWord, Block, Domain, Error, Guarantees, Image, Media, Pool, Primitives, Region,
    Result, Site, Span, Std,
};
use everhash_testkit::primitives::{Loom, LoomMutex, LoomWord};

use crate::common::edit::Edit;
use crate::common::slot_codec::Words;
use crate::tiered::layout::{self, Head, Line as Ruler};
use crate::tiered::{Tiered, TieredSettings, check, recovery, state};

/// A medium with the words of an image, of which loom explores those that change in a test.
struct FewWords<P> {
    image: Vec<AtomicU64>,
    changing: Vec<(u64, LoomWord)>,
    /// What the next fence makes durable, and what is durable.
    next: AtomicU64,
    durable: LoomWord,
    primitives: PhantomData<fn() -> P>,
}

impl<P: Primitives> FewWords<P> {
    fn new(scene: &Scene) -> Self {
        FewWords {
            image: scene.words.iter().copied().map(AtomicU64::new).collect(),
            changing: scene
                .changing
                .iter()
                .map(|word| (*word, LoomWord::new(scene.words[*word as usize])))
                .collect(),
            next: AtomicU64::new(0),
            durable: LoomWord::new(0),
            primitives: PhantomData,
        }
    }

    fn load(&self, word: u64, order: Ordering) -> u64 {
        match self.changing.iter().find(|(index, _)| *index == word) {
            Some((_, explored)) => explored.load(order),
            None => self.image[word as usize].load(Relaxed),
        }
    }

    fn store(&self, word: u64, value: u64, order: Ordering) {
        match self.changing.iter().find(|(index, _)| *index == word) {
            Some((_, explored)) => explored.store(value, order),
            None => self.image[word as usize].store(value, Relaxed),
        }
    }
}

/// A window of [`FewWords`].
struct Window<'a, P>(&'a FewWords<P>, Addr);

impl<P> Clone for Window<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Window<'_, P> {}

impl<P: Primitives, const N: usize> Block<N> for Window<'_, P> {
    fn start(&self) -> Addr {
        self.1
    }

    fn load(&self, index: usize) -> u64 {
        self.0.load(self.1.word() + index as u64, Ordering::Acquire)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.0.load(self.1.word() + index as u64, Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.0.store(self.1.word() + index as u64, value, Relaxed);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.0.store(self.1.word() + index as u64, value, Ordering::Release);
    }

    fn compare_exchange(
        &self,
        _index: usize,
        _current: u64,
        _new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        unreachable!("Tiered Hashing commits by plain stores")
    }
}

impl<P: Primitives> Media for FewWords<P> {
    type Sync = P;
    type Context = ();
    type Block<'a, const N: usize> = Window<'a, P>;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        self.image.len() as u64 * 8
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 }
    }

    fn block<'a, const N: usize>(&'a self, _cx: &'a (), start: Addr) -> Result<Window<'a, P>> {
        match start.word() + N as u64 <= self.image.len() as u64 {
            true => Ok(Window(self, start)),
            false => Err(Error::OutOfBounds { at: start, bytes: N as u64 * 8 }),
        }
    }

    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        for (index, word) in (at.word()..).zip(out) {
            *word = self.load(index, Relaxed);
        }
        Ok(())
    }

    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        (at.word()..).zip(words).for_each(|(index, word)| self.store(index, *word, Relaxed));
        Ok(())
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], _site: Site) -> Result<()> {
        self.write_words(cx, at, words)
    }

    fn flush(&self, _cx: &(), _span: Span, _site: Site) {}

    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        self.durable.store(self.next.load(Relaxed), Relaxed);
        Ok(())
    }

    fn sync(&self, _cx: &(), _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Err(Error::Full { needed: 0 })
    }
}

impl<P: Primitives> Hints for FewWords<P> {}

impl<P: Primitives> Holes for FewWords<P> {}

impl<P: Primitives> Simulation<()> for FewWords<P> {}

/// A pool in which a key has a shadow in the top layer and a pair below, and another key that would
/// be written over that shadow.
struct Scene {
    words: Vec<u64>,
    changing: Vec<u64>,
    key: u64,
    other: u64,
}

/// What every key has as its first value.
const OLD: u64 = 0;

/// What an update gives it.
const NEW: u64 = 1;

/// What the other key has: no other key's value.
const STRANGE: u64 = 77;

fn settings() -> TieredSettings {
    TieredSettings { top_pages: 1, page_bytes: 128, grow_percent: 100, ..TieredSettings::tiny() }
}

/// Opens a copy of an image.
fn table_of(words: &[u64]) -> (Region<Image>, impl Table + use<>) {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes));
    let table = everhash_index::open::<Tiered, _>(region.clone(), Opening::default().boot, &Inline);
    (region, table.unwrap())
}

/// Returns the words that some writes change, and those that they leave.
fn changed(words: &[u64], writes: &[(u64, u64)]) -> (BTreeSet<u64>, Vec<u64>) {
    let (region, table) = table_of(words);
    let opened = region.media().words();
    for (key, value) in writes {
        table.words().unwrap().put_word(*key, *value).unwrap();
    }
    let after = region.media().words();
    let differ = (0..after.len() as u64).filter(|at| opened[*at as usize] != after[*at as usize]);
    (differ.collect(), after)
}

/// Returns whether the head of the top line of a pool says that its slot is a shadow.
fn top_shadow(words: &[u64], at: Addr) -> bool {
    let word = words[at.word() as usize + Ruler::HEAD];
    Head::decode(word, at).is_some_and(|head| layout::is_shadow(head.state(0)))
}

impl Scene {
    fn find() -> Scene {
        let region = Region::new(Image::<Std>::new(0, 16 << 10));
        let table =
            create::<Tiered, _>(region.clone(), &Opening::default(), &settings(), &Inline).unwrap();
        let top = {
            let mut word = [0];
            region.access().read_words(layout::place_at(0), &mut word).unwrap();
            match layout::Listed::decode(word[0], layout::place_at(0)) {
                Some(layout::Listed::Live(place)) => place.start,
                other => panic!("no top layer: {other:?}"),
            }
        };
        let mut inserted = 0;
        while !top_shadow(&region.media().words(), top) {
            table.words().unwrap().insert_word(inserted, OLD).unwrap();
            inserted += 1;
        }
        drop(table);
        let words = region.media().words();
        let key = words[top.word() as usize + Ruler::SLOTS];
        // The first key that is written over the shadow.
        let is_over = |other: &u64| {
            let (_, after) = changed(&words, &[(*other, STRANGE)]);
            after[top.word() as usize + Ruler::SLOTS] == *other
        };
        let other = (1000..2000).find(is_over).expect("one of a thousand keys goes there");
        let mut changing = BTreeSet::new();
        for writes in [&[(key, NEW)][..], &[(other, STRANGE)], &[(other, STRANGE), (key, NEW)]] {
            changing.extend(changed(&words, writes).0);
        }
        let lines = layout::ROOT.word() + layout::Root::WORDS as u64;
        let changing = changing.into_iter().filter(|word| *word > lines).collect();
        Scene { words, changing, key, other }
    }
}

type Opened<P> = state::Tiered<FewWords<P>, Words>;

fn open<P: Primitives>(scene: &Scene) -> Opened<P> {
    let region = Region::new(FewWords::new(scene));
    let pool = Pool::open(region, Opening::default().boot).unwrap();
    recovery::open(pool, &Inline, check::check).unwrap()
}

/// Reads the key once; returns what the reader accepted.
fn read<P: Primitives>(table: &Opened<P>, key: u64) -> Option<u64> {
    let found = table.get(key, &mut Vec::new()).unwrap().map(|pair| pair[1]);
    if found == Some(NEW) {
        Loom::fence(Ordering::Acquire);
        let durable = table.pool.region().media().durable.load(Relaxed);
        assert!(durable == NEW, "accepted before it was durable");
    }
    found
}

fn update<P: Primitives>(table: &Opened<P>, scene: &Scene) {
    table.pool.region().media().next.store(NEW, Relaxed);
    assert!(table.write(scene.key, Edit::Update(NEW)).unwrap());
}

fn overwrite<P: Primitives>(table: &Opened<P>, scene: &Scene) {
    assert!(table.write(scene.other, Edit::Insert(STRANGE)).unwrap());
}

type Write<P> = fn(&Opened<P>, &Scene);

/// Returns what a reader accepted beside some writes, in every schedule with up to two preemptions.
fn read_beside<P: Primitives>(
    scene: &Arc<Scene>,
    writes: &'static [Write<P>],
) -> BTreeSet<Option<u64>> {
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    let (all, scene) = (Arc::clone(&accepted), Arc::clone(scene));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(move || {
        let table = Arc::new(open::<P>(&scene));
        let (reader, all, key) = (Arc::clone(&table), Arc::clone(&all), scene.key);
        let reader = loom::thread::spawn(move || {
            let found = read(&reader, key);
            all.lock().unwrap().insert(found);
        });
        writes.iter().for_each(|write| write(&table, &scene));
        reader.join().unwrap();
    });
    accepted.lock().unwrap().clone()
}

#[test]
fn p02_a_shadow_that_is_updated_is_read_when_it_is_durable() {
    // Fails if a reader does not look at the sequence of the group, or if it accepts nothing new.
    let scene = Arc::new(Scene::find());
    let accepted = read_beside::<Loom>(&scene, &[update]);
    assert_eq!(accepted, BTreeSet::from([Some(OLD), Some(NEW)]));
}

#[test]
fn p02_a_shadow_that_is_overwritten_is_read_whole_or_further_down() {
    // Fails if a reader takes another key's value for that of its key, or misses its key because
    // the shadow went away while it looked; and if a value is read before it is durable.
    let scene = Arc::new(Scene::find());
    assert_eq!(read_beside::<Loom>(&scene, &[overwrite]), BTreeSet::from([Some(OLD)]));
    let accepted = read_beside::<Loom>(&scene, &[overwrite, update]);
    assert_eq!(accepted, BTreeSet::from([Some(OLD), Some(NEW)]));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the models above are too small to show what the fences are for.
    let scene = Arc::new(Scene::find());
    let is_caught = catch_unwind(AssertUnwindSafe(|| {
        read_beside::<WithoutAcquire>(&scene, &[update]);
        read_beside::<WithoutAcquire>(&scene, &[overwrite]);
    }));
    assert!(is_caught.is_err());
}

/// Loom without acquire fences: a mutant that must be caught.
struct WithoutAcquire;

impl Primitives for WithoutAcquire {
    type AtomicU64 = LoomWord;
    type Mutex<T: Send> = LoomMutex<T>;

    fn fence(order: Ordering) {
        if order == Ordering::Release {
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
