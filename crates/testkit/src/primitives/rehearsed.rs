//! Words of which loom explores those that a writer changes: for models of a whole table.
//!
//! A table in DRAM has thousands of words, and a model in which loom explores each of them does not
//! end. So the writer is rehearsed once, alone: what it changes then is explored, and nothing else.
//! A word is known by its number, in the order in which words are made, or by its address on a
//! [`LoomMedium`](super::LoomMedium). A writer that changes another word beside the reader than in
//! the rehearsal ends the model.

use core::cell::RefCell;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use everhash_pmem::{Addr, AtomicWord};

use super::LoomWord;
use super::loom_medium::{explore, on_stack};

/// The stack of the thread that makes a table: loom's own have an eighth of it, which is too little
/// for that.
///
/// Unit: words. Source: ours.
const STACK: usize = 1 << 15;

/// What happens on the stage of this thread. All threads of a model run on it.
struct Stage {
    scene: Scene,
    /// How many words were made.
    made: u64,
    changed: BTreeSet<Name>,
}

/// Which word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Name {
    /// A word in DRAM, by its number.
    Made(u64),
    /// A word of the medium, by its address.
    At(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// One thread makes the table.
    Making,
    /// The writer runs alone.
    Rehearsal,
    /// The writer runs beside the reader.
    Play,
}

thread_local! {
    static STAGE: RefCell<Stage> =
        const { RefCell::new(Stage { scene: Scene::Making, made: 0, changed: BTreeSet::new() }) };
}

fn with_stage<R>(act: impl FnOnce(&mut Stage) -> R) -> R {
    STAGE.with_borrow_mut(act)
}

impl Stage {
    /// Begins to make a table.
    fn open(&mut self) {
        (self.scene, self.made) = (Scene::Making, 0);
    }

    /// Notes that a word changes which is not explored.
    fn change(&mut self, name: Name) {
        match self.scene {
            Scene::Making => (),
            Scene::Rehearsal => drop(self.changed.insert(name)),
            Scene::Play => panic!("{name:?} did not change in the rehearsal"),
        }
    }
}

/// A 64-bit atomic that loom explores if the writer changed it in the rehearsal, or made it.
#[derive(Debug)]
pub struct RehearsedWord(Word);

#[derive(Debug)]
enum Word {
    Explored(LoomWord),
    Plain(u64, AtomicU64),
}

impl RehearsedWord {
    /// Applies `step` to a word that is not explored.
    fn step(number: u64, word: &AtomicU64, step: impl FnOnce(u64) -> u64) -> u64 {
        let before = word.load(Relaxed);
        let after = step(before);
        if before != after {
            with_stage(|stage| stage.change(Name::Made(number)));
            word.store(after, Relaxed);
        }
        before
    }
}

impl AtomicWord for RehearsedWord {
    fn new(value: u64) -> Self {
        let plain = with_stage(|stage| {
            stage.made += 1;
            let is_known = stage.scene == Scene::Making;
            (is_known && !stage.changed.contains(&Name::Made(stage.made))).then_some(stage.made)
        });
        RehearsedWord(match plain {
            Some(number) => Word::Plain(number, AtomicU64::new(value)),
            None => Word::Explored(LoomWord::new(value)),
        })
    }

    fn load(&self, order: Ordering) -> u64 {
        match &self.0 {
            Word::Explored(word) => word.load(order),
            Word::Plain(_, word) => word.load(Relaxed),
        }
    }

    fn store(&self, value: u64, order: Ordering) {
        match &self.0 {
            Word::Explored(word) => word.store(value, order),
            Word::Plain(number, word) => drop(Self::step(*number, word, |_| value)),
        }
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        match &self.0 {
            Word::Explored(word) => word.fetch_add(value, order),
            Word::Plain(number, word) => Self::step(*number, word, |old| old.wrapping_add(value)),
        }
    }

    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        match &self.0 {
            Word::Explored(word) => word.fetch_sub(value, order),
            Word::Plain(number, word) => Self::step(*number, word, |old| old.wrapping_sub(value)),
        }
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        match &self.0 {
            Word::Explored(word) => word.compare_exchange(current, new, success, failure),
            Word::Plain(number, word) => {
                let exchange = |old| if old == current { new } else { old };
                let old = Self::step(*number, word, exchange);
                if old == current { Ok(old) } else { Err(old) }
            }
        }
    }
}

/// Returns the words that loom explores of a medium that is being made.
pub(super) fn explored() -> Vec<Addr> {
    with_stage(|stage| {
        let at = |name: &Name| match name {
            Name::At(word) => Some(Addr::new(word * 8)),
            Name::Made(_) => None,
        };
        stage.changed.iter().filter_map(at).collect()
    })
}

/// Notes that a word of a medium changes which is not explored.
pub(super) fn changes(at: Addr) {
    with_stage(|stage| stage.change(Name::At(at.word())));
}

/// As [`read_beside`](super::read_beside), of a table with [`RehearsedWord`]s on a
/// [`LoomMedium::rehearsed`](super::LoomMedium::rehearsed): the writer is rehearsed first.
pub fn read_beside_rehearsed<T, R>(
    preemptions: usize,
    make: fn() -> T,
    read: fn(&T) -> R,
    write: fn(&T),
) -> BTreeSet<R>
where
    T: Send + Sync + 'static,
    R: Ord + Clone + Send + 'static,
{
    with_stage(|stage| stage.changed.clear());
    // Locks are loom's, so that the rehearsal, too, is a model: of one thread.
    loom::model(move || {
        on_stack(STACK, move || {
            with_stage(Stage::open);
            let table = make();
            with_stage(|stage| stage.scene = Scene::Rehearsal);
            write(&table);
        });
    });
    let make = move || {
        with_stage(Stage::open);
        let table = make();
        with_stage(|stage| stage.scene = Scene::Play);
        table
    };
    explore(preemptions, make, read, write, None, Some(STACK))
}
