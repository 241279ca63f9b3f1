//! Reused space under loom: a reader that follows a link and then looks at it again never accepts
//! the words of the next owner, on weak memory either.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use everhash_pmem::{Addr, AtomicWord, Class, Heap, Image, LINE, Primitives, Region, Space, Span};
use everhash_testkit::primitives::{Loom, LoomWord, without_fences};

/// What hands out space and takes it back.
trait Source: Send + Sync + 'static {
    fn new() -> Self;
    fn take(&self) -> Addr;
    fn give(&self, at: Addr);
}

fn space() -> Space<Image<Loom>> {
    Space::fresh(Region::new(Image::new(1024, 1024)), Addr::new(256))
}

impl Source for Space<Image<Loom>> {
    fn new() -> Self {
        space()
    }

    fn take(&self) -> Addr {
        Space::take(self, LINE, LINE).unwrap().span.start
    }

    fn give(&self, at: Addr) {
        Space::give(self, Span::of_bytes(at, LINE));
    }
}

impl Source for Heap<Image<Loom>> {
    fn new() -> Self {
        Heap::new(Arc::new(space()), 256)
    }

    fn take(&self) -> Addr {
        Heap::take(self, Class::of(16).unwrap()).unwrap()
    }

    fn give(&self, at: Addr) {
        Heap::give(self, at, Class::of(16).unwrap());
    }
}

/// A link to a record of one word, the word, and where both copies of the record came from.
struct Shared<S> {
    source: S,
    /// 0 leads to the record below, 1 to a copy elsewhere.
    link: LoomWord,
    word: LoomWord,
    at: Addr,
}

impl<S: Source> Shared<S> {
    fn new() -> Self {
        let source = S::new();
        let at = source.take();
        Shared { source, link: LoomWord::new(0), word: LoomWord::new(5), at }
    }

    /// Reads without a pin, and returns what was accepted.
    fn read(&self) -> Option<u64> {
        if self.link.load(Acquire) != 0 {
            return None;
        }
        let found = self.word.load(Relaxed);
        <Loom>::fence(Acquire);
        (self.link.load(Relaxed) == 0).then_some(found)
    }

    /// Unlinks the record, gives it back, gets it again, and stores something else there.
    fn reuse(&self) {
        self.link.store(1, Release);
        self.source.give(self.at);
        assert_eq!(self.source.take(), self.at, "the same place is handed out again");
        self.word.store(9, Relaxed);
    }
}

/// Returns what a reader accepted beside a writer that reuses the record.
fn read_beside_reuse<S: Source>() -> BTreeSet<Option<u64>> {
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&accepted);
    loom::model(move || {
        let shared = Arc::new(Shared::<S>::new());
        let (reader, all) = (Arc::clone(&shared), Arc::clone(&all));
        let reader = loom::thread::spawn(move || {
            let found = reader.read();
            all.lock().unwrap().insert(found);
        });
        shared.reuse();
        reader.join().unwrap();
    });
    accepted.lock().unwrap().clone()
}

#[test]
fn no_reader_accepts_a_word_of_the_next_owner_of_a_span() {
    // Fails if `Space::take` does not fence; and if readers accept nothing, or are never refused.
    let accepted = read_beside_reuse::<Space<Image<Loom>>>();
    assert_eq!(accepted, BTreeSet::from([None, Some(5)]));
}

#[test]
fn no_reader_accepts_a_word_of_the_next_owner_of_a_record() {
    // Fails if `Heap::take` does not fence.
    let accepted = read_beside_reuse::<Heap<Image<Loom>>>();
    assert_eq!(accepted, BTreeSet::from([None, Some(5)]));
}

#[test]
fn a_missing_release_fence_shows() {
    // Fails if the model is too small to show what the fence is for.
    for read in [read_beside_reuse::<Space<Image<Loom>>>, read_beside_reuse::<Heap<Image<Loom>>>] {
        let found = without_fences(|order| order == Release, read).unwrap();
        assert!(found.contains(&Some(9)), "{found:?}");
    }
}
