//! Damaged and hostile pools: an error or the right answers, and never a panic.

use core::ops::ControlFlow;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use everhash_index::{Design, Engine, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::crash::{Event, Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::pool::{DATA, ROOT};
use everhash_pmem::{Addr, AllocationMeter, Bits, Boot, Image, LINE, Media, Region, Std};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::hostile;
use everhash_testkit::session::Session;

use super::upkeep::{figure, insert_until_it_grows};
use crate::common::{record, settings};
use crate::wophi::layout::{self, DoubleBucket, Kind, NEXT, Root, Token, WordBucket};
use crate::wophi::{Wophi, WophiSettings, WophiTable};

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, other than a key or a value of a
    // fixed form, or if a number from the medium is used before it is bounded.
    let effort = Effort { bare_pairs: true, flip_every: 7, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Wophi>(), form, &effort).unwrap();
        println!("{form}: {report}");
        // A bit of a value is never noticed, and few of a key are in so small a table.
        let pair_bits = if form == Form::DOUBLE_WORDS { 256 } else { 128 };
        let most = if form == Form::Variable { 0 } else { 2 * 24 * pair_bits };
        assert!(report.in_bare_pairs <= most && report.noticed > 2000, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}

/// Stores a value as settings, link, token word, record word or plain word, with its check.
fn forge(words: &mut [u64], index: usize, value: u64, kind: u64) {
    let (at, root) = (Addr::new(index as u64 * 8), ROOT.word() as usize);
    let link = || layout::encode_link(Addr::new((value & ((1 << 48) - 1)) * LINE), at);
    if at >= DATA {
        words[index] = match kind % 8 {
            0 | 1 => Token::from_contents(value).encode(at, Kind::Main),
            2 | 3 => Token::from_contents(value).encode(at, Kind::Chained),
            4 | 5 => link(),
            6 => {
                let tag = Bits::new(52, 12);
                let word = tag.set(value, 0);
                tag.set(word, record::tag_of(words[index - 1], word).into())
            }
            _ => value,
        };
    } else if index < root + Root::CHECKSUM {
        words[index] = value;
        let settings = &words[root..root + Root::CHECKSUM];
        words[root + Root::CHECKSUM] = settings::checksum(ROOT, settings);
    } else {
        words[index] = if kind.is_multiple_of(8) { value } else { link() };
    }
}

#[test]
fn p07_a_forged_image_is_an_error_or_a_table_and_never_a_panic() {
    // Fails if a count, level, length, address or token from the medium is used before it is
    // bounded, the token of a slot that a bucket of this form does not have among them.
    let effort = hostile::Effort { images: 600, forge: Some(forge), ..hostile::Effort::default() };
    for form in super::FORMS {
        let report = hostile::judge(&Design::of::<Wophi>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.opened > report.images / 20, "{form}: {report}");
    }
}

/// Length of the value to which every slot leads. Unit: bytes.
const LONG: usize = 256 << 10;

#[test]
fn p07_a_check_of_a_thousand_slots_of_one_record_takes_little_memory() {
    // Fails if a check, or a salvage, keeps what every slot of a chain leads to, however often that
    // is the same record: 180 MB here, and a file of some megabytes would take all memory.
    let mut session = Session::<Wophi>::tiny(Form::Variable, 8 << 20).unwrap();
    session.table().put(b"key", &vec![1; LONG]).unwrap();
    session.close().unwrap();
    let mut words = session.region().media().words();
    let buckets = WophiSettings::tiny().initial_buckets as usize;
    let extent =
        layout::decode_link(words[layout::extent_link(0).word() as usize], layout::extent_link(0));
    let first = extent.unwrap();
    let main = (0..buckets).map(|index| first.plus((index * WordBucket::WORDS) as u64));
    let decode = |at: Addr| Token::decode(words[at.word() as usize], at, Kind::Main, 3).unwrap();
    let (home, at) = main.enumerate().find(|(_, at)| decode(*at).count() == 1).unwrap();
    let token = decode(at);
    let slot = at.word() as usize + WordBucket::SLOTS + 2 * token.live_slots().next().unwrap();
    let pair = [words[slot], words[slot + 1]];
    // A chain of buckets at the end of the medium, whose slots are all equal.
    let mut before = at.plus(NEXT as u64);
    for _ in 0..250 {
        let at = Addr::new(words.len() as u64 * 8);
        words[before.word() as usize] = layout::encode_link(at, before);
        let token = (0..3).fold(Token::empty(home as u64), |token, slot| token.with_slot(slot, 1));
        words.extend([token.encode(at, Kind::Chained), 0].into_iter().chain(pair.repeat(3)));
        before = at.plus(NEXT as u64);
        words[before.word() as usize] = layout::encode_link(Addr::NULL, before);
    }
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    let (checked, most) =
        AllocationMeter::measure(|| Wophi::check(&region, Boot::default(), &mut |_, _| {}));
    assert!(matches!(checked, Err(Error::Corrupt { .. })), "{checked:?}");
    assert!(most < 4 * bytes, "{most} bytes of memory for a pool of {bytes}");
    let mut reports = 0;
    let (salvaged, most) = AllocationMeter::measure(|| {
        Wophi::salvage(&region, Boot::default(), &mut |_, _| {}, &mut |_| reports += 1)
    });
    salvaged.unwrap();
    assert!(reports > 0 && most < 4 * bytes, "{most} bytes of memory for a pool of {bytes}");
}

#[test]
fn a_damaged_pair_takes_no_other_one_of_its_chain_along() {
    // Fails if a salvage gives up a chain for one of its pairs.
    let mut session = Session::<Wophi>::tiny(Form::Variable, 1 << 20).unwrap();
    for key in 0..40u64 {
        session.table().put(&key.to_le_bytes(), b"a value.").unwrap();
    }
    session.close().unwrap();
    let mut words = session.region().media().words();
    let value = u64::from_le_bytes(*b"a value.");
    let at = words.iter().position(|word| *word == value).unwrap();
    words[at] ^= 1;
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    assert!(Wophi::check(&region, Boot::default(), &mut |_, _| {}).is_err());
    let (mut pairs, mut reports) = (0, 0);
    let (visit, report) = (&mut |_: &[u8], _: &[u8]| pairs += 1, &mut |_| reports += 1);
    Wophi::salvage(&region, Boot::default(), visit, report).unwrap();
    assert_eq!((pairs, reports), (39, 1));
}

#[test]
fn an_open_after_a_crash_notices_a_key_among_those_of_another_bucket() {
    // Fails if recovery takes any pair for one that a split has moved, and removes it.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 1 << 20), Form::WORDS);
    let key = |number: u64| number << 40 | 0xfeed;
    (0..20).for_each(|number| {
        let words = table.words().unwrap();
        assert!(words.insert_word(key(number), number).unwrap());
    });
    drop(table);
    let words = region.media().words();
    let at = words.iter().position(|word| *word == key(7)).unwrap();
    let refused = (100..116).filter(|other| {
        let mut words = words.clone();
        words[at] = key(*other);
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
        match open::<Wophi, _>(region, Boot::default(), &Inline) {
            Ok(_) => false,
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                true
            }
        }
    });
    // One in 64 keys belongs there.
    let refused = refused.count();
    assert!(refused >= 12, "{refused} of 16");
}

#[test]
fn a_flipped_bit_of_a_fingerprint_hides_no_key() {
    // Fails if a fingerprint that another one was made of means that the key is another one.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 1 << 20), Form::DOUBLE_WORDS);
    let key = |number: u64| number.to_le_bytes().repeat(2);
    (0..100).for_each(|number| assert!(table.insert(&key(number), &key(number)).unwrap()));
    let (pm, link) = (region.access(), layout::extent_link(0));
    let first = layout::decode_link(pm.load(link).unwrap(), link).unwrap();
    let mut noticed = 0;
    for (bucket, slot) in (0..64).flat_map(|bucket| (1..4).map(move |slot| (bucket, slot))) {
        let (word, shift) = layout::print_place(slot);
        let at = first.plus(bucket * DoubleBucket::WORDS as u64 + word as u64);
        let before = pm.load(at).unwrap();
        pm.store(at, before ^ 1 << (shift as u64 + bucket % 32)).unwrap();
        for number in 0..100 {
            match table.contains(&key(number)) {
                Err(Error::Corrupt { .. }) => noticed += 1,
                found => assert!(found.unwrap(), "{number} is hidden by slot {slot} of {bucket}"),
            }
        }
        pm.store(at, before).unwrap();
    }
    assert!(noticed > 20, "{noticed}");
}

/// Makes a table with 64 main buckets.
fn of_64_buckets<M: Media>(medium: M, form: Form) -> (Region<M>, WophiTable<M>) {
    let region = Region::new(medium);
    let settings = WophiSettings { initial_buckets: 64, stripes: 8, ..WophiSettings::tiny() };
    let opening = Opening { form, ..Opening::default() };
    let table = create::<Wophi, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    (region, table)
}

/// Returns where the first main bucket of an extent lies.
fn first_bucket<M: Media>(region: &Region<M>, extent: usize) -> Addr {
    let link = layout::extent_link(extent);
    layout::decode_link(region.access().load(link).unwrap(), link).unwrap()
}

/// Returns the main buckets of extent 0 behind which there is another one, and that one.
fn linked<M: Media>(region: &Region<M>) -> Vec<(Addr, Addr)> {
    let (pm, first) = (region.access(), first_bucket(region, 0));
    let buckets = (0..64).map(|index| first.plus(index * WordBucket::WORDS as u64));
    let behind = |main: Addr| {
        let next = main.plus(NEXT as u64);
        (main, layout::decode_link(pm.load(next).unwrap(), next).unwrap())
    };
    buckets.map(behind).filter(|(_, next)| *next != Addr::NULL).collect()
}

/// Calls `maintain` some times; returns how often it told of damage.
fn maintain(table: &impl Table, times: usize) -> usize {
    let tells = |second: &usize| match table.maintain(Duration::from_secs(*second as u64), 16) {
        Ok(_) => false,
        Err(Error::Corrupt { .. }) => true,
        Err(other) => panic!("{other}"),
    };
    (0..times).filter(tells).count()
}

/// Returns every pair that a salvage saves.
fn salvaged(region: &Region<Image>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        assert!(pairs.insert(key.to_vec(), value.to_vec()).is_none(), "{key:?} is saved twice");
    };
    let mut reports = 0;
    Wophi::salvage(region, Boot::default(), visit, &mut |_| reports += 1).unwrap();
    assert!(reports > 0, "there is damage");
    pairs
}

#[test]
fn a_damaged_bucket_keeps_a_growth_from_no_other_key_and_not_from_its_end() {
    // Fails if a write fails for damage that its key does not meet; if a growth that meets a
    // damaged bucket never ends, so that chains grow for ever and upkeep tells of it at each call;
    // or if upkeep, a check or a salvage takes what became of the bucket for sound.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 1 << 20), Form::WORDS);
    let words = table.words().unwrap();
    insert_until_it_grows(&table);
    let [last, upper] =
        [0, 1].map(|extent| first_bucket(&region, extent).plus(63 * WordBucket::WORDS as u64));
    let pm = region.access();
    pm.store(last, pm.load(last).unwrap() ^ 1 << 20).unwrap();
    // What nobody has written yet may look like a bucket.
    let next = upper.plus(NEXT as u64);
    pm.store(upper, Token::empty(1).encode(upper, Kind::Main)).unwrap();
    pm.store(next, layout::encode_link(Addr::NULL, next)).unwrap();
    let are_met = || (0..600).map(|key| words.get_word(key).is_err()).collect::<Vec<_>>();
    let met = are_met();
    for round in 0..5 {
        for (key, is_met) in (0..).zip(&met) {
            assert_eq!(words.put_word(key, key).is_err(), *is_met, "round {round}, {key}");
        }
        assert_eq!(are_met(), met, "round {round}");
    }
    let refused = met.iter().filter(|is_met| **is_met).count();
    assert!((1..30).contains(&refused), "{refused}: one bucket of 64");
    let told = maintain(&table, 200);
    let [growing, buckets] = ["growing", "main_buckets"].map(|name| figure(&table, name));
    assert!(growing == 0 && buckets >= 256, "{growing}, {buckets}");
    assert_eq!(maintain(&table, 5), 0, "it told of it {told} times: no oftener than it splits");
    assert_eq!(are_met(), met);
    let checked = table.check();
    let is_it = matches!(checked, Err(Error::Corrupt { at, .. }) if at == last.byte());
    assert!(is_it, "{checked:?}");
    assert_eq!(salvaged(&region).len(), 600 - refused);
    for key in 0..600 {
        assert_eq!(words.remove_word(key).is_err(), words.get_word(key).is_err(), "{key}");
    }
    maintain(&table, 200);
    let left = figure(&table, "chained_buckets");
    assert!(left < 5, "{left}: those of the damaged chain");
    assert_eq!(maintain(&table, 5), 0);
}

#[test]
fn a_check_notices_that_an_upper_half_has_lost_a_pair_that_moved() {
    // Fails if a check forgets the pairs that a chained bucket of a lower half still has: a crash
    // leaves them there, and they must be in the upper half, whose copy alone is found.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 1 << 20), Form::WORDS);
    let count = insert_until_it_grows(&table);
    table.maintain(Duration::ZERO, 8).unwrap();
    assert_eq!(figure(&table, "growing"), 1);
    drop(table);
    let mut words = region.media().words();
    let firsts = [0, 1].map(|extent| first_bucket(&region, extent));
    let decode = |at: Addr| Token::decode(words[at.word() as usize], at, Kind::Main, 3);
    let halves = |index: u64| firsts.map(|first| first.plus(index * WordBucket::WORDS as u64));
    let has_moved = |[lower, upper]: &[Addr; 2]| {
        decode(*lower).is_some_and(|token| token.home() == 1)
            && decode(*upper).is_some_and(|token| token.count() > 0)
    };
    let (home, [lower, upper]) = (0..64)
        .map(|index| (index, halves(index)))
        .find(|(_, halves)| has_moved(halves))
        .expect("a pair has moved");
    let token = decode(upper).expect("it was decoded before");
    let slot = token.live_slots().next().expect("it holds a pair");
    let first = upper.word() as usize + WordBucket::SLOTS + 2 * slot;
    let pair = [words[first], words[first + 1]];
    // A bucket at the end of the medium, and of the chain of the lower half.
    let at = Addr::new(words.len() as u64 * 8);
    let mut last = lower.plus(NEXT as u64);
    while let Some(next) = layout::decode_link(words[last.word() as usize], last)
        && next != Addr::NULL
    {
        last = next.plus(NEXT as u64);
    }
    words[last.word() as usize] = layout::encode_link(at, last);
    let end = layout::encode_link(Addr::NULL, at.plus(NEXT as u64));
    words.extend([Token::empty(home).with_slot(0, 1).encode(at, Kind::Chained), end]);
    words.extend(pair.into_iter().chain([0; WordBucket::WORDS - 4]));
    let check = |words: &[u64]| {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(words, bytes, bytes));
        Wophi::check(&region, Boot::default(), &mut |_, _| {}).map(|checked| checked.items)
    };
    assert_eq!(check(&words).unwrap(), count);
    words[upper.word() as usize] = token.with_slot(slot, 0).encode(upper, Kind::Main);
    let checked = check(&words);
    let is_it = matches!(checked, Err(Error::Corrupt { at, broken })
        if at == upper.byte() && broken == "what moved is in the upper half");
    assert!(is_it, "{checked:?}");
    // Recovery would end the last copy of the pair.
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(&words, bytes, bytes));
    let opened = open::<Wophi, _>(region, Opening::default().boot, &Inline).map(drop);
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
}

/// What is damaged of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The link of its main bucket.
    Link,
    /// The token word of the bucket behind that.
    Chained,
    /// The record word of a slot of its main bucket.
    Record,
    /// The hash beside it.
    Hash,
    /// A key of words, which has no check.
    Key,
}

/// Returns a word of the first chain with two buckets.
fn word_of(part: Part, region: &Region<Image>) -> Addr {
    let (main, behind) = *linked(region).first().expect("a chain has two buckets");
    // A full bucket comes before another one.
    let slot = main.plus(WordBucket::SLOTS as u64);
    match part {
        Part::Link => main.plus(NEXT as u64),
        Part::Chained => behind,
        Part::Record => slot.plus(1),
        Part::Hash | Part::Key => slot,
    }
}

/// Whether a key has its value, if it was found.
type Answer = Result<Option<bool>>;

/// Compares what the keys from 0 on answer after a growth with what they answered before, of which
/// `count` were inserted; returns how many are damaged.
fn unknown(before: &[Answer], after: &[Answer], count: u64) -> usize {
    let mut unknown = 0;
    for (key, (before, now)) in (0..).zip(before.iter().zip(after)) {
        let truth = (key < count).then_some(true);
        match (before, now) {
            (Ok(before), Ok(now)) => assert_eq!(before, now, "{key}"),
            (Err(_), Ok(now)) => assert_eq!(*now, truth, "{key}"),
            (Err(_), Err(Error::Corrupt { .. })) => unknown += 1,
            (_, now) => panic!("{key}: {now:?}"),
        }
    }
    unknown
}

#[test]
fn a_growth_takes_along_what_is_intact_of_a_damaged_chain() {
    // Fails if a growth ends at a damaged pair, link or chained bucket; if it keeps a key from
    // being found that was found before; if a key whose pair cannot be read passes for absent in
    // one of the halves; or if a salvage saves less than before.
    for (form, part) in [
        (Form::Variable, Part::Link),
        (Form::Variable, Part::Chained),
        (Form::Variable, Part::Record),
        (Form::Variable, Part::Hash),
        (Form::WORDS, Part::Link),
        (Form::WORDS, Part::Chained),
        (Form::WORDS, Part::Key),
    ] {
        let (region, table) = of_64_buckets(Image::<Std>::new(0, 4 << 20), form);
        let insert = |key: u64| table.insert(&key.to_le_bytes(), &(!key).to_le_bytes());
        let mut count = 0;
        while figure(&table, "growing") == 0 {
            assert!(insert(count).unwrap());
            count += 1;
        }
        let (pm, at) = (region.access(), word_of(part, &region));
        let whole = pm.load(at).unwrap();
        // A key may hash to its bucket with another bit, too.
        let is_noticed = (20..30).any(|bit| {
            pm.store(at, whole ^ 1 << bit).unwrap();
            matches!(table.check(), Err(Error::Corrupt { .. }))
        });
        assert!(is_noticed, "{form}, {part:?}");
        let ask = || {
            let mut value = Vec::new();
            let get = |key: u64| {
                let found = table.get(&key.to_le_bytes(), &mut value)?;
                Ok(found.then(|| value[..] == (!key).to_le_bytes()))
            };
            (0..2 * count).map(get).collect::<Vec<Answer>>()
        };
        let (before, saved) = (ask(), salvaged(&region));
        assert!(saved.len() + 8 > count as usize, "{form}, {part:?}: {} of {count}", saved.len());
        let mut more = 1000..3000;
        for doublings in 1..3 {
            let is_done = || {
                (figure(&table, "main_buckets"), figure(&table, "growing")) == (64 << doublings, 0)
            };
            while !is_done() {
                let key = more.next().unwrap_or_else(|| panic!("{form}, {part:?}: no end"));
                let inserted = insert(key);
                let is_fine = matches!(inserted, Ok(true) | Err(Error::Corrupt { .. }));
                assert!(is_fine, "{inserted:?}");
                maintain(&table, 1);
            }
            let unknown = unknown(&before, &ask(), count);
            assert_eq!(unknown > 0, part != Part::Key, "{form}, {part:?}: {unknown}");
            let saved_now = salvaged(&region);
            assert!(saved.iter().all(|(key, value)| saved_now.get(key) == Some(value)));
            assert!(matches!(table.check(), Err(Error::Corrupt { .. })));
        }
        drop(table);
        let opened = open::<Wophi, _>(region, Opening::default().boot, &Inline).map(drop);
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
    }
}

#[test]
fn a_growth_moves_each_pair_of_a_circle_once() {
    // Fails if a split lists the pairs of a chain that leads back as often as it comes round: the
    // new chains would be as long as the medium.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 4 << 20), Form::WORDS);
    let count = insert_until_it_grows(&table);
    let (pm, linked) = (region.access(), linked(&region));
    for (_, behind) in &linked {
        let next = behind.plus(NEXT as u64);
        pm.store(next, layout::encode_link(*behind, next)).unwrap();
    }
    let before = figure(&table, "chained_buckets");
    let ask = || {
        let words = table.words().unwrap();
        (0..count).map(|key| words.get_word(key).ok()).collect::<Vec<_>>()
    };
    let answers = ask();
    maintain(&table, 200);
    assert_eq!((figure(&table, "growing"), figure(&table, "main_buckets")), (0, 128));
    let chained = figure(&table, "chained_buckets");
    assert!(linked.len() > 4 && chained <= 2 * before, "{chained} buckets, {before} before");
    assert_eq!(ask(), answers);
}

/// Words that damage stores, and where.
type Harm = Vec<(Addr, u64)>;

/// Returns ways to damage a table of words or byte strings whose 64 first buckets are being split:
/// of the main buckets, of their chains, and then of slots. Where the upper half of a bucket is to
/// be that does not say any more whether it is split, lies something like it, with a `stale` pair.
fn harms<M: Media>(region: &Region<M>, stale: [u64; 2]) -> [Harm; 8] {
    let pm = region.access();
    let flip = |at: Addr, bit: u32| (at, pm.load(at).unwrap() ^ 1 << bit);
    let link = |at: Addr, target| (at, layout::encode_link(target, at));
    let [first, upper] = [0, 1].map(|extent| first_bucket(region, extent));
    let behind = |first: Addr, index| first.plus(index * WordBucket::WORDS as u64);
    let (split, whole, looks) = (first, behind(first, 63), behind(upper, 63));
    let depth = |at: Addr| Token::decode(pm.load(at).unwrap(), at, Kind::Main, 3).unwrap().home();
    assert_eq!([split, whole].map(depth), [1, 0]);
    let linked = linked(region).into_iter().filter(|(main, _)| ![split, whole].contains(main));
    let chains = *linked.collect::<Vec<_>>().first_chunk::<5>().expect("there are five chains");
    let slot = |chain: usize| chains[chain].0.plus(WordBucket::SLOTS as u64);
    let token = Token::empty(1).with_slot(0, 1).encode(looks, Kind::Main);
    let pair = [2, 3].map(|word| looks.plus(word)).into_iter().zip(stale);
    let unknown = [flip(whole, 20), (looks, token), link(looks.plus(NEXT as u64), Addr::NULL)];
    [
        unknown.into_iter().chain(pair).collect(),
        vec![flip(split, 20)],
        vec![flip(behind(upper, 1), 50)],
        vec![flip(chains[0].0.plus(NEXT as u64), 7)],
        vec![flip(chains[1].1, 3)],
        vec![link(chains[2].1.plus(NEXT as u64), chains[2].1)],
        vec![flip(slot(3).plus(1), 40)],
        vec![flip(slot(4), 40)],
    ]
}

fn do_harm<M: Media>(region: &Region<M>, harm: &Harm) {
    harm.iter().for_each(|(at, word)| region.access().store(*at, *word).unwrap());
}

#[test]
fn a_clear_goes_past_damage_and_leaves_none() {
    // Fails if damage keeps a clear from the pairs behind it, or stays where nothing counts any
    // more; if the pairs of a chain that nobody could count are counted later on; or if what is
    // written anew of a bucket is not what a growth, or the next open, takes it for.
    for (form, is_growing) in
        [(Form::WORDS, true), (Form::WORDS, false), (Form::Variable, true), (Form::Variable, false)]
    {
        let (region, table) = of_64_buckets(Image::<Std>::new(0, 4 << 20), form);
        let pair = |number: u64| (number.to_le_bytes(), (!number).to_le_bytes());
        let (mut count, mut before) = (0, 0);
        let put_all = |count: u64| {
            for (key, value) in (0..count).map(pair) {
                assert!(!table.put(&key, &value).unwrap(), "{form}: it was not there before");
            }
        };
        while figure(&table, "growing") == 0 {
            assert!(table.insert(&pair(count).0, &pair(count).1).unwrap());
            count += 1;
        }
        table.maintain(Duration::ZERO, 8).unwrap();
        assert_eq!(figure(&table, "growing"), 1);
        harms(&region, [0, !1]).iter().for_each(|harm| do_harm(&region, harm));
        if !is_growing {
            before = maintain(&table, 200);
            assert_eq!((figure(&table, "growing"), figure(&table, "main_buckets")), (0, 128));
        }
        assert!(matches!(table.check(), Err(Error::Corrupt { .. })), "{form}, {before}");
        table.clear().unwrap();
        let counted = || (table.len().unwrap(), table.check().unwrap().items);
        assert_eq!(counted(), (0, 0), "{form}, {is_growing}");
        table.clear().unwrap();
        put_all(count);
        assert_eq!(counted(), (count, count), "{form}, {is_growing}");
        assert_eq!(maintain(&table, 200), 0);
        assert_eq!(figure(&table, "growing"), 0);
        assert_eq!(counted(), (count, count), "{form}, {is_growing}");
        drop(table);
        let boot = Opening::default().boot;
        let table = open::<Wophi, _>(region.clone(), boot, &Inline).unwrap();
        let mut value = Vec::new();
        for (key, expected) in (0..count).map(pair) {
            assert!(table.get(&key, &mut value).unwrap() && value == expected, "{form}");
        }
        Box::new(table).close().unwrap();
        assert_eq!(Wophi::check(&region, boot, &mut |_, _| {}).unwrap().items, count);
    }
}

#[test]
fn pairs_that_come_beside_clears_past_damage_are_counted() {
    // Fails if the pairs that nobody could count stay counted, or if pairs that a writer adds or
    // removes meanwhile are taken for some of them.
    let (region, table) = of_64_buckets(Image::<Std>::new(0, 4 << 20), Form::WORDS);
    let words = table.words().unwrap();
    let all = Barrier::new(3);
    let write = || {
        for round in 0..ROUNDS {
            let before = (0..100).try_for_each(|key| words.put_word(key, key).map(drop));
            all.wait();
            all.wait();
            // They may meet the damage.
            let _ = (0..100).filter(|key| words.remove_word((key + round) % 150).is_ok()).count();
            let _ = (100..150).filter(|key| words.put_word(*key, *key).is_ok()).count();
            all.wait();
            all.wait();
            before?;
        }
        Ok(())
    };
    let clear_often = |index: u64| {
        let damaged = first_bucket(&region, 0).plus(index * WordBucket::WORDS as u64);
        let clear = |_| {
            all.wait();
            let pm = region.access();
            pm.store(damaged, pm.load(damaged).unwrap() ^ 1 << 20).unwrap();
            all.wait();
            let cleared = table.clear();
            all.wait();
            let counted = cleared.and_then(|()| Ok((table.len()?, table.check()?.items)));
            all.wait();
            counted
        };
        (0..ROUNDS).map(clear).collect::<Vec<_>>()
    };
    let (written, cleared) = std::thread::scope(|scope| {
        let (writer, other) = (scope.spawn(write), scope.spawn(|| clear_often(9)));
        let cleared = [clear_often(5), other.join().unwrap()];
        (writer.join().unwrap(), cleared)
    });
    written.unwrap_or_else(|error: Error| panic!("{error}"));
    for counted in cleared.into_iter().flatten() {
        let (count, items) = counted.unwrap();
        assert_eq!(count, items);
    }
}

/// Rounds of a test with threads.
const ROUNDS: u64 = 200;

#[test]
fn p01_a_power_failure_in_a_clear_past_damage_brings_nothing_back() {
    // Fails if a damaged bucket is whole before what it leads to is cut off, or a lower half says
    // that it is split before there is an upper one: a value comes back then that its key had
    // before. Or if a clear has returned and not all of what it did is durable.
    for (model, harm) in Model::ALL.into_iter().flat_map(|model| (0..6).map(move |it| (model, it)))
    {
        let (region, table) = of_64_buckets(Traced::<Std>::new(model, 0, 1 << 20), Form::WORDS);
        let count = insert_until_it_grows(&table);
        table.maintain(Duration::ZERO, 8).unwrap();
        // A pair that belongs into the upper half of the last bucket, with a value of long ago.
        let WophiTable::Words(inner) = &table else { panic!("8/8 has words") };
        let is_upper = |key: &u64| inner.hasher.bytes(&key.to_le_bytes()) & 127 == 127;
        let old = (0..count).find(is_upper).expect("one key in 128 belongs there");
        do_harm(&region, &harms(&region, [old, !old])[harm]);
        let before = region.media().visible();
        region.media().take_log();
        table.clear().unwrap();
        assert_eq!(table.len().unwrap(), 0);
        drop(table);
        let log = region.media().take_log();
        let (opened, refused) = crash_in_clear(Memory::of(model, before), log.events(), count);
        println!("{model}, {harm}: {opened} opened, {refused} still damaged");
        assert!(opened > 1 && refused > 0, "{model}, {harm}: {opened}, {refused}");
    }
}

/// Tries crashes of a clear of keys up to `count`, which are their own values. Returns how many
/// of the states could be opened, and how many were still damaged.
fn crash_in_clear(memory: Memory, log: &[Event], count: u64) -> (u32, u32) {
    let few = Limits { product: 64, single: 64, pairs: 64, random: 16, ..Limits::default() };
    let (mut opened, mut refused) = (0, 0);
    let mut look = |words: &[u64]| {
        let bytes = words.len() as u64 * 8;
        let region = Region::new(Image::<Std>::of(words, bytes, bytes));
        let boot = Boot([Opening::default().boot.0[0], 2]);
        let Ok(table) = open::<Wophi, _>(region, boot, &Inline) else {
            refused += 1;
            return None;
        };
        opened += 1;
        let values = (0..count).map(|key| (key, table.words().unwrap().get_word(key).unwrap()));
        let there = values.filter(|(key, value)| value.inspect(|it| assert_eq!(it, key)).is_some());
        let there = there.count() as u64;
        assert_eq!(table.check().unwrap().items, there);
        Some(there)
    };
    let mut explorer = Explorer::new(memory, log);
    let mut seen = Seen::default();
    while explorer.next_point().is_some() {
        let _ = explorer.states(&few, &mut seen, 0, &mut |state| {
            look(&state.image());
            ControlFlow::Continue(())
        });
    }
    assert!(explorer.memory().is_settled(), "all is durable");
    assert_eq!(look(explorer.memory().durable()), Some(0));
    (opened, refused)
}
