//! A collecting log under loom: appends and readers in any order of a few steps, and on weak memory
//! too.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Relaxed};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use everhash_index::Error;
use everhash_pmem::crash::Model;
use everhash_pmem::media::{Hints, Holes, Simulation};
use everhash_pmem::{
    Access, Addr, AtomicWord, Block, Guarantees, Media, Primitives, Region, Result, Site, Span,
};
use everhash_testkit::primitives::{Loom, LoomMutex, LoomWord};

use crate::elimda::collecting_log::CollectingLog;
use crate::elimda::layout::{CollectingLog as Log, Control};

/// Where the only log lies.
const HERE: Addr = Addr::new(256);

/// Its slots.
const SLOTS: u64 = 2;

/// A medium of one log, with its words for loom.
struct OneLog<P> {
    words: [LoomWord; Log::ITEMS + 2 * SLOTS as usize],
    primitives: PhantomData<fn() -> P>,
}

impl<P> OneLog<P> {
    fn word(&self, at: Addr, index: usize) -> &LoomWord {
        &self.words[(at.word() - HERE.word()) as usize + index]
    }
}

struct Window<'a, P>(&'a OneLog<P>, Addr);

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
        self.0.word(self.1, index).load(Ordering::Acquire)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.0.word(self.1, index).load(Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.0.word(self.1, index).store(value, Relaxed);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.0.word(self.1, index).store(value, Ordering::Release);
    }

    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        let word = self.0.word(self.1, index);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

impl<P: Primitives> Media for OneLog<P> {
    type Sync = P;
    type Context = ();
    type Block<'a, const N: usize> = Window<'a, P>;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        HERE.byte() + 256
    }

    fn guarantees(&self) -> Guarantees {
        Model::Eadr.guarantees()
    }

    fn block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Result<Window<'a, P>> {
        Ok(Window(self, at))
    }

    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        for (index, word) in out.iter_mut().enumerate() {
            *word = self.word(at, index).load(Relaxed);
        }
        Ok(())
    }

    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        for (index, word) in words.iter().enumerate() {
            self.word(at, index).store(*word, Relaxed);
        }
        Ok(())
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], _site: Site) -> Result<()> {
        self.write_words(cx, at, words)
    }

    fn flush(&self, _cx: &(), _span: Span, _site: Site) {}

    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        Ok(())
    }

    fn sync(&self, _cx: &(), _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Err(everhash_pmem::Error::Full { needed: 0 })
    }
}

impl<P: Primitives> Hints for OneLog<P> {}

impl<P: Primitives> Holes for OneLog<P> {}

impl<P: Primitives> Simulation<()> for OneLog<P> {}

/// Makes an empty log.
fn medium<P: Primitives>() -> Region<OneLog<P>> {
    let words = core::array::from_fn(|_| LoomWord::new(0));
    Region::new(OneLog { words, primitives: PhantomData })
}

fn log<'a, P: Primitives>(pm: &'a Access<'a, OneLog<P>>) -> CollectingLog<'a, OneLog<P>> {
    CollectingLog { pm, at: HERE, slots: SLOTS, item_words: 2 }
}

/// The keys with their values that are live; a value is ten times its key.
fn contents<P: Primitives>(region: &Region<OneLog<P>>) -> Vec<u64> {
    let pm = region.access();
    let items = log(&pm).read().unwrap();
    let keys = items.slots().map(|slot| {
        let [key, value, ..] = items.item(slot);
        assert!(key != 0 && value == 10 * key, "torn: {key} {value}");
        key
    });
    keys.collect()
}

/// Inserts a key if it is absent, as the engine does; returns whether it was.
fn insert<P: Primitives>(region: &Region<OneLog<P>>, key: u64) -> bool {
    let pm = region.access();
    let log = log(&pm);
    for attempt in 0.. {
        let seen = log.look().unwrap();
        if contents(region).contains(&key) {
            return false;
        }
        if !seen.control.is_pending()
            && seen.control.reserved < SLOTS
            && let Some(slot) = log.reserve(&seen).unwrap()
        {
            log.fill(slot, &[key, 10 * key, 0, 0]).unwrap();
            return true;
        }
        P::pause(attempt);
    }
    unreachable!("the loop ends with an insert")
}

/// Ends what is in slot 0, empties the log, and writes key 3 into that slot.
fn reuse<P: Primitives>(region: &Region<OneLog<P>>) {
    let pm = region.access();
    let log = log(&pm);
    log.end(0).unwrap();
    let control: Control = log.look().unwrap().control;
    let emptied = control.emptied().unwrap().seal(HERE);
    pm.commit_word(HERE, emptied, Site::new("elimda/test/emptied")).unwrap();
    assert!(insert(region, 3));
}

/// Runs two threads in every schedule with up to two preemptions; returns what they returned.
fn beside<P: Primitives, R: Ord + Clone + Send + 'static>(
    prepare: fn(&Region<OneLog<P>>),
    first: fn(&Region<OneLog<P>>) -> R,
    second: fn(&Region<OneLog<P>>) -> R,
    check: fn(&Region<OneLog<P>>),
) -> BTreeSet<(R, R)> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&outcomes);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let region = medium::<P>();
        prepare(&region);
        let other = region.clone();
        let thread = loom::thread::spawn(move || second(&other));
        let one = first(&region);
        let two = thread.join().unwrap();
        check(&region);
        all.lock().unwrap().insert((one, two));
    });
    outcomes.lock().unwrap().clone()
}

fn holds_one<P: Primitives>(region: &Region<OneLog<P>>) {
    assert_eq!(contents(region), [1]);
}

fn put_one<P: Primitives>(region: &Region<OneLog<P>>) {
    assert!(insert(region, 1));
}

#[test]
fn of_two_inserts_of_one_key_one_succeeds() {
    // Fails if an insert does not notice another that came between its search and its slot.
    let outcomes = beside::<Loom, _>(|_| {}, |log| insert(log, 1), |log| insert(log, 1), holds_one);
    assert_eq!(outcomes, BTreeSet::from([(true, false), (false, true)]));
}

#[test]
fn inserts_of_two_keys_lose_neither() {
    // Fails if the bit of one slot is lost to that of the other.
    fn holds_both<P: Primitives>(region: &Region<OneLog<P>>) {
        assert_eq!(contents(region).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
    }
    let outcomes =
        beside::<Loom, _>(|_| {}, |log| insert(log, 1), |log| insert(log, 2), holds_both);
    assert_eq!(outcomes, BTreeSet::from([(true, true)]));
}

#[test]
fn a_reader_sees_whole_items_of_one_generation() {
    // Fails if a reader takes a slot for written too early, or reads the next generation of a log
    // with the control word of this one.
    let seen = beside::<Loom, _>(
        put_one,
        |log| {
            reuse(log);
            Vec::new()
        },
        contents,
        |log| assert_eq!(contents(log), [3]),
    );
    let seen: BTreeSet<_> = seen.into_iter().map(|(_, seen)| seen).collect();
    assert_eq!(seen, BTreeSet::from([vec![], vec![1], vec![3]]));
}

#[test]
fn a_missing_fence_is_caught() {
    // Fails if the model above is too small to show what the fences are for.
    fn is_caught<P: Primitives>() -> bool {
        let run = || {
            beside::<P, _>(
                put_one,
                |log| {
                    reuse(log);
                    Vec::new()
                },
                contents,
                |_| {},
            )
        };
        catch_unwind(AssertUnwindSafe(run)).is_err()
    }
    assert!(is_caught::<Without<RELEASE>>());
    assert!(is_caught::<Without<ACQUIRE>>());
}

#[test]
fn a_damaged_control_word_ends_the_waiting() {
    // Fails if a log whose control word is damaged is waited for.
    loom::model(|| {
        let region = medium::<Loom>();
        let pm = region.access();
        pm.store(HERE, 12345).unwrap();
        assert!(matches!(log(&pm).look(), Err(Error::Corrupt { .. })));
    });
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
