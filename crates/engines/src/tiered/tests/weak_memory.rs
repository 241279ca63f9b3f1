//! Shadow reading under loom: whatever becomes of the shadow, a reader accepts the newest durable
//! value of its key, in any order of a few steps and on weak memory too.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use everhash_index::{Inline, Opening, Table, create};
use everhash_pmem::{Addr, Image, Pool, Region, Std};
use everhash_testkit::primitives::{self, Loom, LoomMedium, without_fences};

use crate::common::edit::Edit;
use crate::common::slot_codec::Words;
use crate::common::slot_table::SlotTable;
use crate::tiered::layout::{self, Head, Line as Ruler};
use crate::tiered::{Tiered, TieredSettings, recovery, state, table};

/// A pool in which a key has a shadow in the top layer and a pair below, and another key that would
/// be written over that shadow.
struct Scene {
    words: Vec<u64>,
    /// The words that the writes below store to.
    changing: BTreeSet<u64>,
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
                Some(layout::Listed::Live(place)) => place.start(),
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

/// The scene of every test: it is found once.
static SCENE: LazyLock<Scene> = LazyLock::new(Scene::find);

type Opened = state::Tiered<LoomMedium<Loom>, Words>;

fn open() -> Opened {
    let words = (0..).map(|word| Addr::new(word * 8)).zip(SCENE.words.iter().copied());
    let (explored, fixed): (Vec<_>, Vec<_>) =
        words.partition(|(at, _)| SCENE.changing.contains(&at.word()));
    let region = Region::new(LoomMedium::new(explored, fixed).unsealed());
    let pool = Pool::open(region, Opening::default().boot).unwrap();
    let table: Opened = recovery::open(pool, &Inline, table::word_lookup).unwrap();
    table.pool.region().media().seal();
    table
}

/// Reads the key once; returns what the reader accepted.
fn read(table: &Opened) -> Option<u64> {
    let found = table.find(SCENE.key, &mut Vec::new()).unwrap().map(|pair| pair[1]);
    if found == Some(NEW) {
        let durable = table.pool.region().media().durable();
        assert!(durable == NEW, "accepted before it was durable");
    }
    found
}

fn update(table: &Opened) {
    table.pool.region().media().will_be_durable(NEW);
    assert!(table.write(SCENE.key, Edit::Update(NEW)).unwrap());
}

fn overwrite(table: &Opened) {
    assert!(table.write(SCENE.other, Edit::Insert(STRANGE)).unwrap());
}

fn overwrite_and_update(table: &Opened) {
    overwrite(table);
    update(table);
}

/// Returns what a reader accepted beside a writer, in every schedule with up to two preemptions.
fn read_beside(write: fn(&Opened)) -> BTreeSet<Option<u64>> {
    primitives::read_beside(2, open, read, write, None)
}

#[test]
fn p02_a_shadow_that_is_updated_is_read_when_it_is_durable() {
    // Fails if a reader does not look at the sequence of the group, or if it accepts nothing new.
    let accepted = read_beside(update);
    assert_eq!(accepted, BTreeSet::from([Some(OLD), Some(NEW)]));
}

#[test]
fn p02_a_shadow_that_is_overwritten_is_read_whole_or_further_down() {
    // Fails if a reader takes another key's value for that of its key, or misses its key because
    // the shadow went away while it looked; and if a value is read before it is durable.
    assert_eq!(read_beside(overwrite), BTreeSet::from([Some(OLD)]));
    let accepted = read_beside(overwrite_and_update);
    assert_eq!(accepted, BTreeSet::from([Some(OLD), Some(NEW)]));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the models above are too small to show what the fences are for.
    let both = || {
        read_beside(update);
        read_beside(overwrite);
    };
    assert!(without_fences(|order| order == Ordering::Acquire, both).is_err());
}
