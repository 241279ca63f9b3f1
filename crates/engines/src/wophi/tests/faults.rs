//! Media that fail: an error of a fence stays local, and no failed growth is forgotten.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everhash_index::{Error, Form, Inline, Opening, Table, create, open};
use everhash_pmem::media::{Hints, Holes, Simulation};
use everhash_pmem::{
    Addr, Error as Fault, Guarantees, Image, Media, Region, Result, Site, Span, Std,
};

use super::upkeep::{figure, insert_until_it_grows, maintain};
use crate::wophi::{Wophi, WophiSettings, WophiTable, ops, resize};

/// An image whose fences and growths fail as a test demands.
struct Faulty {
    image: Image,
    /// The site of which one fence fails.
    failing: Mutex<Option<Site>>,
    /// After how many fences one fails, and after how many growths one does; each once.
    fences: AtomicU64,
    growths: AtomicU64,
}

/// Never within a test.
const NEVER: u64 = 1 << 40;

impl Faulty {
    fn new(image: Image) -> Region<Faulty> {
        let [fences, growths] = [NEVER; 2].map(AtomicU64::new);
        Region::new(Faulty { image, failing: Mutex::new(None), fences, growths })
    }

    fn fail_once_at(&self, site: Site) {
        *self.failing.lock().unwrap() = Some(site);
    }

    fn is_due(counter: &AtomicU64) -> bool {
        counter.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

impl Media for Faulty {
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

    fn block<'a, const N: usize>(&'a self, cx: &'a (), at: Addr) -> Result<Self::Block<'a, N>> {
        self.image.block(cx, at)
    }

    fn read_words(&self, cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        self.image.read_words(cx, at, out)
    }

    fn write_words(&self, cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        self.image.write_words(cx, at, words)
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], site: Site) -> Result<()> {
        self.image.write_words_nt(cx, at, words, site)
    }

    fn flush(&self, _cx: &(), _span: Span, _site: Site) {}

    fn fence(&self, _cx: &(), site: Site) -> Result<()> {
        if self.failing.lock().unwrap().take_if(|failing| *failing == site).is_some() {
            return Err(Fault::Poisoned);
        }
        if Faulty::is_due(&self.fences) { Err(Fault::Poisoned) } else { Ok(()) }
    }

    fn sync(&self, cx: &(), site: Site) -> Result<()> {
        self.fence(cx, site)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if Faulty::is_due(&self.growths) {
            return Err(Fault::Full { needed: bytes - self.bytes() });
        }
        self.image.grow(bytes)
    }
}

impl Hints for Faulty {}

impl Holes for Faulty {}

impl Simulation<()> for Faulty {}

fn settings() -> WophiSettings {
    WophiSettings { initial_buckets: 16, stripes: 8, ..WophiSettings::tiny() }
}

fn make(settings: &WophiSettings) -> (Region<Faulty>, WophiTable<Faulty>) {
    let region = Faulty::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening::default();
    let table = create::<Wophi, _>(region.clone(), &opening, settings, &Inline).unwrap();
    (region, table)
}

/// Opens what is left, as after a power failure.
fn reopen(region: &Region<Faulty>) -> WophiTable<Faulty> {
    let words = region.media().image.words();
    let image = Image::<Std>::of(&words, words.len() as u64 * 8, 1 << 20);
    let mut boot = Opening::default().boot;
    boot.0[1] += 1;
    open::<Wophi, _>(Faulty::new(image), boot, &Inline).unwrap()
}

#[test]
fn p12_a_change_that_fails_stops_its_own_stripe_and_no_other_work() {
    // Fails if other keys, maintenance or the sweep for empty buckets stop with a stripe whose
    // change has failed, if closing calls such a pool clean, or if opening it does not recover.
    let crowded = WophiSettings { grow_percent: 1000, ..settings() };
    let (region, table) = make(&crowded);
    let words = table.words().unwrap();
    (0..400u64).for_each(|key| assert!(words.insert_word(key, key).unwrap()));
    let before = figure(&table, "chained_buckets");
    (100..400u64).for_each(|key| assert!(words.remove_word(key).unwrap()));
    region.media().fences.store(0, Ordering::Relaxed);
    assert!(matches!(words.put_word(7, 70), Err(Error::Poisoned)));
    region.media().fences.store(NEVER, Ordering::Relaxed);
    let works = |key: &u64| words.put_word(*key, *key).is_ok() && words.get_word(*key).is_ok();
    let refused = (0..100u64).filter(|key| !works(key)).count();
    assert!((1..40).contains(&refused), "{refused}: an eighth of the keys share the stripe");
    maintain(&table, 3);
    let left = figure(&table, "chained_buckets");
    assert!(left < before / 2, "{left} of {before}: the sweep must pass the stripe");
    assert!(matches!(Box::new(table).close(), Err(Error::Poisoned)));
    let table = reopen(&region);
    let words = table.words().unwrap();
    for key in 0..100 {
        let value = words.get_word(key).unwrap();
        assert!(value == Some(key) || (key == 7 && value == Some(70)), "{key}: {value:?}");
        assert!(words.put_word(key, key).unwrap());
    }
    assert_eq!(table.check().unwrap().items, 100);
    Box::new(table).close().unwrap();
}

#[test]
fn a_fence_that_fails_anywhere_loses_no_write_that_returned() {
    // Fails if a write that returned is lost, or one that failed is half there, when any one fence
    // fails, those of a growth among them; if a stripe that failed in a split takes its neighbours
    // with it; or if the growth is thought complete.
    let mut failed = 0;
    for fence in 0..260 {
        let (region, table) = make(&settings());
        let words = table.words().unwrap();
        region.media().fences.store(fence, Ordering::Relaxed);
        let mut returned = Vec::new();
        for key in 0..150u64 {
            match words.insert_word(key, !key) {
                Ok(added) => returned.push((key, added)),
                Err(error) => assert!(matches!(error, Error::Poisoned), "{error}"),
            }
        }
        failed += usize::from(returned.len() < 150);
        assert!(returned.len() > 75, "fence {fence}: {} writes", returned.len());
        drop(table);
        let table = reopen(&region);
        let words = table.words().unwrap();
        for (key, added) in &returned {
            assert!(*added);
            assert_eq!(words.get_word(*key).unwrap(), Some(!key), "fence {fence}, {key}");
        }
        assert!((0..150u64).all(|key| words.put_word(key, key).is_ok()));
        maintain(&table, 8);
        assert_eq!(table.check().unwrap().items, 150, "fence {fence}");
    }
    assert!(failed > 100, "{failed}: too few fences were those of a write");
}

#[test]
fn a_growth_that_finds_no_room_at_any_call_is_not_forgotten() {
    // Fails if a write is lost, or a group of a split is forgotten, when any one growth of the
    // medium fails; and if the table does not grow once there is room again.
    for form in super::FORMS {
        for call in 0..12 {
            let region = Faulty::new(Image::<Std>::new(0, 1 << 20));
            let opening = Opening { form, ..Opening::default() };
            let tiny = WophiSettings::tiny();
            let table = create::<Wophi, _>(region.clone(), &opening, &tiny, &Inline).unwrap();
            region.media().growths.store(call, Ordering::Relaxed);
            let mut full = 0;
            for number in 0..300u64 {
                let key =
                    number.to_le_bytes().repeat(if form == Form::DOUBLE_WORDS { 2 } else { 1 });
                match table.insert(&key, &key) {
                    Ok(added) => assert!(added),
                    Err(Error::Full { .. }) => {
                        full += 1;
                        // Nothing was changed: the same write succeeds when there is room.
                        assert!(!table.get(&key, &mut Vec::new()).unwrap());
                        assert!(table.insert(&key, &key).unwrap());
                    }
                    Err(other) => panic!("{form}, call {call}: {other}"),
                }
            }
            maintain(&table, 8);
            assert!(full <= 1, "{form}, call {call}");
            assert_eq!(figure(&table, "growing"), 0, "{form}, call {call}");
            assert!(figure(&table, "main_buckets") >= 64, "{form}, call {call}");
            assert_eq!(table.check().unwrap().items, 300, "{form}, call {call}");
            let free = figure(&table, "pab_free") + figure(&table, "chained_buckets");
            drop(table);
            let words = region.media().image.words();
            let image = Image::<Std>::of(&words, words.len() as u64 * 8, 1 << 20);
            let table = open::<Wophi, _>(Faulty::new(image), opening.boot, &Inline).unwrap();
            let after = figure(&table, "pab_free") + figure(&table, "chained_buckets");
            assert!(after <= free, "{form}, call {call}: {after} buckets, {free} before");
            table.maintain(Duration::ZERO, 8).unwrap();
        }
    }
}

#[test]
fn a_split_that_fails_before_its_commit_gives_its_buckets_back() {
    // Fails if the chained buckets of an upper half are lost with every attempt to write them.
    let settings = WophiSettings { grow_percent: 300, pab_divisor: 1, ..settings() };
    let (region, table) = make(&settings);
    let count = insert_until_it_grows(&table);
    let buckets = |table: &WophiTable<Faulty>| {
        ["pab_free", "chained_buckets", "direct_allocations"].map(|name| figure(table, name))
    };
    let before = buckets(&table);
    for attempt in 0..40 {
        region.media().fail_once_at(resize::sites::IMAGE);
        table.maintain(Duration::ZERO, 2).unwrap();
        assert!(region.media().failing.lock().unwrap().is_none(), "{attempt}: nothing was split");
        assert_eq!(buckets(&table), before, "attempt {attempt}");
    }
    maintain(&table, 2);
    assert_eq!(figure(&table, "growing"), 0);
    let after = buckets(&table);
    assert!(after[1] > before[1], "no split needed a chained bucket");
    assert_eq!(table.check().unwrap().items, count);
    drop(table);
    assert_eq!(figure(&reopen(&region), "chained_buckets"), after[1], "buckets in no chain");
}

#[test]
fn an_append_that_fails_before_its_link_gives_its_bucket_back() {
    // Fails if a bucket is lost when the fence fails that makes it durable.
    let crowded = WophiSettings { grow_percent: 1000, ..settings() };
    for form in super::FORMS {
        let region = Faulty::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form, ..Opening::default() };
        let table = create::<Wophi, _>(region.clone(), &opening, &crowded, &Inline).unwrap();
        let mut failed = 0;
        for number in 0..200u64 {
            let key = number.to_le_bytes().repeat(if form == Form::DOUBLE_WORDS { 2 } else { 1 });
            let before = figure(&table, "chained_buckets");
            region.media().fail_once_at(ops::sites::APPEND_BUCKET);
            if table.insert(&key, &key).is_err() {
                failed += 1;
                assert_eq!(figure(&table, "chained_buckets"), before, "{form}, {number}");
                assert!(table.insert(&key, &key).unwrap());
            }
        }
        assert!(failed > 20, "{form}: {failed} appends");
        assert_eq!(table.check().unwrap().items, 200);
    }
}
