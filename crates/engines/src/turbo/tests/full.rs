//! A medium that does not grow when it should: nothing is lost, nothing wedges, and nothing is
//! reported that did not happen.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everhash_index::{Change, Cursor, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::{
    Addr, Guarantees, Hints, Holes, Image, Media, Region, Simulation, Site, Span, Std,
};

use crate::turbo::{Turbo, TurboSettings, TurboTable};

/// An image whose growth fails from one call on, until it is told otherwise.
struct Scarce {
    image: Image,
    /// How many more calls succeed.
    left: AtomicU64,
    calls: AtomicU64,
}

/// Every call succeeds.
const PLENTY: u64 = u64::MAX;

impl Scarce {
    fn new(left: u64) -> Scarce {
        let image = Image::<Std>::new(0, 4 << 20);
        Scarce { image, left: AtomicU64::new(left), calls: AtomicU64::new(0) }
    }
}

impl Hints for Scarce {}

impl Holes for Scarce {}

impl Simulation<()> for Scarce {}

impl Media for Scarce {
    type Sync = Std;
    type Context = ();
    type Block<'a, const N: usize> = <Image as Media>::Block<'a, N>;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.image.guarantees()
    }

    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a (),
        at: Addr,
    ) -> everhash_pmem::Result<Self::Block<'a, N>> {
        self.image.block(cx, at)
    }

    fn read_words(&self, cx: &(), at: Addr, out: &mut [u64]) -> everhash_pmem::Result<()> {
        self.image.read_words(cx, at, out)
    }

    fn write_words(&self, cx: &(), at: Addr, words: &[u64]) -> everhash_pmem::Result<()> {
        self.image.write_words(cx, at, words)
    }

    fn write_words_nt(
        &self,
        cx: &(),
        at: Addr,
        words: &[u64],
        site: Site,
    ) -> everhash_pmem::Result<()> {
        self.image.write_words_nt(cx, at, words, site)
    }

    fn flush(&self, _cx: &(), _span: Span, _site: Site) {}

    fn fence(&self, _cx: &(), _site: Site) -> everhash_pmem::Result<()> {
        Ok(())
    }

    fn sync(&self, _cx: &(), _site: Site) -> everhash_pmem::Result<()> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> everhash_pmem::Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.left.load(Ordering::Relaxed) {
            0 => return Err(everhash_pmem::Error::Full { needed: bytes - self.bytes() }),
            PLENTY => {}
            left => self.left.store(left - 1, Ordering::Relaxed),
        }
        self.image.grow(bytes)
    }
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table beside the map that it should be.
struct Twins {
    form: Form,
    table: TurboTable<Scarce>,
    pairs: Pairs,
    /// Decides what comes next.
    state: u64,
}

impl Twins {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7f);
        (self.state >> 33) % below
    }

    fn pair(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (number, value) = (self.random(120), self.random(1 << 20));
        let length = if self.form == Form::WORDS { 8 } else { 8 + value as usize % 300 };
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.resize(length, 7);
        (number.to_le_bytes().to_vec(), bytes)
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        self.table.get(key, &mut value).unwrap().then_some(value)
    }

    /// Does one operation on both, and compares; returns whether the medium was full.
    fn step(&mut self) -> bool {
        let (key, value) = self.pair();
        let present = self.pairs.get(&key).cloned();
        let (outcome, after): (Result<bool>, _) = match self.random(20) {
            0..=4 => (self.table.insert(&key, &value), present.clone().or(Some(value))),
            5..=9 => (self.table.put(&key, &value), Some(value)),
            10..=11 => (self.table.update(&key, &value), present.is_some().then_some(value)),
            12..=14 => (self.table.remove(&key), None),
            15..=16 => {
                let change = &mut |_: Option<&[u8]>| Change::Put(value.clone());
                (self.table.modify(&key, change).map(|()| true), Some(value))
            }
            17..=18 => return self.step_of_batch(),
            _ => {
                self.table.maintain(Duration::ZERO, 64).unwrap();
                return false;
            }
        };
        let expected = if outcome.is_ok() { after } else { present };
        assert_eq!(self.value(&key), expected, "after {outcome:?}");
        match expected {
            Some(value) => drop(self.pairs.insert(key, value)),
            None => drop(self.pairs.remove(&key)),
        }
        match outcome {
            Ok(_) => false,
            Err(Error::Full { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    }

    /// Puts some pairs at once: if that fails, a prefix of them is there.
    fn step_of_batch(&mut self) -> bool {
        let mut last = BTreeMap::new();
        let batch: Vec<_> = (0..12).map(|_| self.pair()).collect();
        let pairs: Vec<(&[u8], &[u8])> =
            batch.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        let outcome = self.table.put_many(&pairs);
        let mut expected = self.pairs.clone();
        let all = outcome.is_ok().then_some(batch.len());
        let found: Pairs =
            batch.iter().filter_map(|(key, _)| Some((key.clone(), self.value(key)?))).collect();
        for (count, pair) in batch.iter().map(Some).chain([None]).enumerate() {
            let is_prefix = batch.iter().all(|(key, _)| found.get(key) == expected.get(key));
            if is_prefix {
                last.insert(count, expected.clone());
            }
            if let Some((key, value)) = pair {
                expected.insert(key.clone(), value.clone());
            }
        }
        let (count, pairs) = last.pop_last().expect("a prefix of the batch was put");
        assert!(all.is_none_or(|all| all == count), "{count} were put: {outcome:?}");
        self.pairs = pairs;
        match outcome {
            Ok(_) => false,
            Err(Error::Full { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    }

    fn compare_all(&self) {
        let (mut found, mut next) = (Pairs::new(), Some(Cursor::default()));
        while let Some(cursor) = next {
            let visit = &mut |key: &[u8], value: &[u8]| {
                found.insert(key.to_vec(), value.to_vec());
            };
            next = self.table.scan(cursor, visit).unwrap();
        }
        assert_eq!(found, self.pairs);
        let count = self.pairs.len() as u64;
        assert_eq!((self.table.len().unwrap(), self.table.check().unwrap().items), (count, count));
    }
}

/// Works on a table whose medium fails from its `n`-th growth on, lets it grow again some time
/// later, and closes and opens it. Returns how often the medium was asked to grow, and how many
/// operations met a full medium.
fn judge(form: Form, n: u64, operations: u32) -> (u64, u32) {
    let media = Arc::new(Scarce::new(PLENTY));
    let opening = Opening { form, ..Opening::default() };
    let region = Region::new(Arc::clone(&media));
    let table = create::<Turbo, _>(region, &opening, &TurboSettings::tiny(), &Inline).unwrap();
    media.left.store(n, Ordering::Relaxed);
    media.calls.store(0, Ordering::Relaxed);
    let mut twins = Twins { form, table, pairs: Pairs::new(), state: n ^ 0x9e37_79b9 };
    let mut full = 0;
    for number in 0..operations {
        full += u32::from(twins.step());
        if number == operations / 2 {
            twins.compare_all();
            media.left.store(PLENTY, Ordering::Relaxed);
        }
    }
    let met = full;
    // With room again, everything succeeds.
    assert!((0..100).all(|_| !twins.step()));
    twins.compare_all();
    Box::new(twins.table).close().unwrap();
    let region = Region::new(Arc::clone(&media));
    twins.table = open::<Turbo, _>(region, opening.boot, &Inline).unwrap();
    twins.compare_all();
    (media.calls.load(Ordering::Relaxed), met)
}

#[test]
fn p10_a_medium_that_is_full_at_any_moment_loses_nothing_and_wedges_nothing() {
    // Fails if an operation that met a full medium has changed its key, if one that returned is not
    // there, or if the table does not go on when there is room.
    for form in [Form::WORDS, Form::Variable] {
        let (calls, _) = judge(form, PLENTY, 600);
        let met: u32 = (0..calls).map(|n| judge(form, n, 600).1).sum();
        println!("{form}: {calls} growths, {met} operations met a full medium");
        assert!(calls > 5 && met > 100, "{form}: {calls} growths, {met} met a full medium");
    }
}
