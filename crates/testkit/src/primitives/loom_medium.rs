//! A medium of a few words that loom explores.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use everhash_pmem::{
    Addr, AtomicWord, Block, Domain, Error, Guarantees, Hints, Holes, Media, Primitives, Result,
    Simulation, Site, Span,
};

use super::{LoomWord, rehearsed};

/// A medium of which a few words are explored and the others do not change while threads run.
///
/// A line keeps the order of its stores. What a fence makes durable is one number, which a test
/// names before it: a reader that accepts anything asks whether that is durable.
pub struct LoomMedium<P> {
    explored: BTreeMap<u64, LoomWord>,
    fixed: BTreeMap<u64, AtomicU64>,
    is_sealed: AtomicBool,
    /// The other words of a medium whose writer is rehearsed: it says itself what it changes.
    rehearsed: Box<[AtomicU64]>,
    /// What the next fence makes durable, and what is durable.
    next: AtomicU64,
    durable: LoomWord,
    primitives: PhantomData<fn() -> P>,
}

impl<P: Primitives> LoomMedium<P> {
    /// Makes a medium of words that loom explores, and of words that nobody stores to. Fewer
    /// explored words mean fewer steps.
    pub fn new(
        explored: impl IntoIterator<Item = (Addr, u64)>,
        fixed: impl IntoIterator<Item = (Addr, u64)>,
    ) -> Self {
        let explored = explored.into_iter().map(|(at, word)| (at.word(), LoomWord::new(word)));
        LoomMedium {
            explored: explored.collect(),
            fixed: fixed.into_iter().map(|(at, word)| (at.word(), AtomicU64::new(word))).collect(),
            is_sealed: AtomicBool::new(true),
            rehearsed: Box::new([]),
            next: AtomicU64::new(0),
            durable: LoomWord::new(0),
            primitives: PhantomData,
        }
    }

    /// Makes a medium of zeros, of which the words are explored that the writer changed when it was
    /// rehearsed: [`read_beside_rehearsed`](super::read_beside_rehearsed).
    pub fn rehearsed(words: u64) -> Self {
        let explored = rehearsed::explored().into_iter().map(|at| (at, 0));
        let rehearsed = (0..words).map(|_| AtomicU64::new(0)).collect();
        LoomMedium { rehearsed, ..LoomMedium::new(explored, []) }
    }

    /// Lets one thread store to the other words too, until [`LoomMedium::seal`]: to open a table.
    pub fn unsealed(self) -> Self {
        self.is_sealed.store(false, Relaxed);
        self
    }

    /// Lets nobody store to the other words from now on.
    pub fn seal(&self) {
        self.is_sealed.store(true, Relaxed);
    }

    /// Names what the next fence makes durable.
    pub fn will_be_durable(&self, value: u64) {
        self.next.store(value, Relaxed);
    }

    /// Returns what is durable.
    pub fn durable(&self) -> u64 {
        // What is durable is so for every thread: without the fence a reader that saw that nothing
        // is pending might not see the fence which made it so.
        loom::sync::atomic::fence(Ordering::Acquire);
        self.durable.load(Relaxed)
    }

    /// Returns a word that is not explored.
    fn fixed(&self, at: Addr) -> &AtomicU64 {
        let word = self.fixed.get(&at.word());
        let word = word.or_else(|| self.rehearsed.get(at.word() as usize));
        word.unwrap_or_else(|| panic!("{at:?} is no word of the medium"))
    }

    fn load(&self, at: Addr, order: Ordering) -> u64 {
        match self.explored.get(&at.word()) {
            Some(word) => word.load(order),
            None => self.fixed(at).load(Relaxed),
        }
    }

    fn store(&self, at: Addr, value: u64, order: Ordering) {
        if let Some(word) = self.explored.get(&at.word()) {
            return word.store(value, order);
        }
        let word = self.fixed(at);
        if self.rehearsed.is_empty() {
            let is_sealed = self.is_sealed.load(Relaxed);
            assert!(!is_sealed, "only explored words are stored to: not {at:?}");
        } else if word.load(Relaxed) != value {
            rehearsed::changes(at);
        }
        word.store(value, Relaxed);
    }
}

/// A window of words of a [`LoomMedium`].
pub struct LoomBlock<'a, P> {
    medium: &'a LoomMedium<P>,
    start: Addr,
}

impl<P> Clone for LoomBlock<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for LoomBlock<'_, P> {}

impl<P: Primitives> LoomBlock<'_, P> {
    fn at(&self, index: usize) -> Addr {
        self.start.plus(index as u64)
    }
}

impl<P: Primitives, const N: usize> Block<N> for LoomBlock<'_, P> {
    fn start(&self) -> Addr {
        self.start
    }

    fn load(&self, index: usize) -> u64 {
        self.medium.load(self.at(index), Ordering::Acquire)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.medium.load(self.at(index), Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.medium.store(self.at(index), value, Relaxed);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.medium.store(self.at(index), value, Ordering::Release);
    }

    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        let word = self.medium.explored.get(&self.at(index).word());
        let word = word.expect("only explored words are stored to");
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

impl<P: Primitives> Media for LoomMedium<P> {
    type Sync = P;
    type Context = ();
    type Block<'a, const N: usize> = LoomBlock<'a, P>;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        let last = [self.explored.keys().next_back(), self.fixed.keys().next_back()];
        let words = last.into_iter().flatten().max().map_or(0, |word| word + 1);
        words.max(self.rehearsed.len() as u64) * 8
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { domain: Domain::Adr, same_line_order: true, access_unit_bytes: 256 }
    }

    fn block<'a, const N: usize>(&'a self, _cx: &'a (), start: Addr) -> Result<LoomBlock<'a, P>> {
        Ok(LoomBlock { medium: self, start })
    }

    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        (0..).zip(out).for_each(|(i, word)| *word = self.load(at.plus(i), Ordering::Acquire));
        Ok(())
    }

    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        (0..).zip(words).for_each(|(i, word)| self.store(at.plus(i), *word, Relaxed));
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

    fn sync(&self, cx: &(), site: Site) -> Result<()> {
        self.fence(cx, site)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= Media::bytes(self) { Ok(()) } else { Err(Error::Full { needed: bytes }) }
    }
}

impl<P: Primitives> Hints for LoomMedium<P> {}

impl<P: Primitives> Holes for LoomMedium<P> {}

impl<P: Primitives> Simulation<()> for LoomMedium<P> {}

/// Returns what `read` returns beside a writer, and beside another one if there is a second, in
/// every schedule with up to `preemptions` preemptions.
///
/// The reader is a spawned thread: the other way round, loom leaves out the schedules in which the
/// writer is ahead of it.
pub fn read_beside<T, R>(
    preemptions: usize,
    make: fn() -> T,
    read: fn(&T) -> R,
    write: fn(&T),
    then: Option<fn(&T)>,
) -> BTreeSet<R>
where
    T: Send + Sync + 'static,
    R: Ord + Clone + Send + 'static,
{
    explore(preemptions, make, read, write, then, None)
}

/// Runs `scene` in a thread of a model that has so much room on its stack.
pub(super) fn on_stack(words: usize, scene: impl FnOnce() + Send + 'static) {
    let thread = loom::thread::Builder::new().stack_size(words).spawn(scene);
    let thread = thread.expect("a model has room for a thread");
    thread.join().expect("no thread of the model panicked");
}

/// As [`read_beside`]; the thread that makes the table and writes has `stack` words of stack, or
/// as many as loom gives it.
pub(super) fn explore<T, R>(
    preemptions: usize,
    make: impl Fn() -> T + Send + Sync + 'static,
    read: fn(&T) -> R,
    write: fn(&T),
    then: Option<fn(&T)>,
    stack: Option<usize>,
) -> BTreeSet<R>
where
    T: Send + Sync + 'static,
    R: Ord + Clone + Send + 'static,
{
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&accepted);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Enough for an engine that opens a whole table.
    builder.max_branches = 100_000;
    let make = Arc::new(make);
    let scene = move || {
        let table = Arc::new(make());
        let (reader, all) = (Arc::clone(&table), Arc::clone(&all));
        let reader = loom::thread::spawn(move || {
            let found = read(&reader);
            all.lock().expect("no thread of the model panicked").insert(found);
        });
        let writer = then.map(|then| {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || then(&table))
        });
        write(&table);
        for thread in writer.into_iter().chain([reader]) {
            thread.join().expect("no thread of the model panicked");
        }
    };
    match stack {
        None => builder.check(scene),
        Some(stack) => builder.check(move || on_stack(stack, scene.clone())),
    }
    accepted.lock().expect("no thread of the model panicked").clone()
}
