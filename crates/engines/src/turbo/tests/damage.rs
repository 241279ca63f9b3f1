//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::{Design, Engine, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::{Addr, Boot, Image, Media, Pool, Region, Shutdown, Std, pool};
use everhash_testkit::damage::{Effort, judge};

use crate::turbo::bucket::{Bucket as OpenBucket, slots_of};
use crate::turbo::concurrency::Shard;
use crate::turbo::layout::{self, BUCKET_WORDS, Bucket, Meta, Place, SLOTS};
use crate::turbo::{Turbo, TurboSettings, TurboTable};

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, keys and values of the fixed forms
    // included, or if a number from the medium is used before it is bounded. Of other damage the
    // five bits over a pair notice 31 in 32; most images are not damaged there.
    let effort = Effort { flip_every: 7, missed_one_in: 64, ..Effort::default() };
    for form in super::FORMS {
        let report = judge(&Design::of::<Turbo>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 800 && report.by_check_alone == 0, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}

/// A key and its value: numbers, as long as the form wants them.
pub(super) fn pair(form: Form, number: u64) -> (Vec<u8>, Vec<u8>) {
    let bytes = |word: u64, length: usize| {
        let mut bytes = word.to_le_bytes().to_vec();
        bytes.resize(length, 7);
        bytes
    };
    let (key_bytes, value_bytes) = match form {
        Form::Fixed { key_bytes, value_bytes } => (key_bytes as usize, value_bytes as usize),
        Form::Variable => (8 + number as usize % 9, 8 + number as usize * 5 % 40),
    };
    (bytes(number, key_bytes), bytes(!number, value_bytes))
}

/// A way to ask for a key: by one operation, and by no other.
type Ask = fn(&TurboTable<Image>, &[u8]) -> Result<Option<Vec<u8>>>;

const GET: Ask = |table, key| {
    let mut value = Vec::new();
    Ok(table.get(key, &mut value)?.then_some(value))
};

const GET_MANY: Ask = |table, key| {
    let mut value = None;
    table.get_many(&[key], &mut |_, found| value = found.map(<[u8]>::to_vec))?;
    Ok(value)
};

/// Returns what is done to a word of the medium: every bit is flipped, and every byte is replaced,
/// in the words that say what a bucket holds by everything else, in others by some values.
fn damages(at: Addr, form: Form) -> Vec<u64> {
    let bits = (0..64).map(|bit| 1 << bit);
    let is_head = at.word() % BUCKET_WORDS as u64 <= Bucket::CHECKS as u64;
    let step = match (is_head, form) {
        (true, _) => 1,
        // Pairs of words have no room for more than the five bits that notice one flipped bit.
        (false, Form::WORDS) => return bits.collect(),
        (false, _) => 17,
    };
    let bytes = (0..8).flat_map(|byte| (1..256u64).step_by(step).map(move |x| x << (8 * byte)));
    bits.chain(bytes).collect()
}

#[test]
fn p06_every_way_to_ask_notices_every_damaged_bit_and_byte_by_itself() {
    // Fails if a scan, or the reading of all slots at open, tells of damage that a get passes over:
    // the words are damaged below an open table, and each operation is asked alone. Or if a check
    // passes over what a get tells of.
    for form in super::FORMS {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form, ..Opening::default() };
        let settings = TurboSettings { shards: 1, ..TurboSettings::tiny() };
        let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        (0..12).for_each(|number| {
            let (key, value) = pair(form, number);
            table.put(&key, &value).unwrap();
        });
        (8..12).for_each(|number| assert!(table.remove(&pair(form, number).0).unwrap()));
        let pm = region.access();
        let (mut noticed, mut right, mut wrong) = (0, 0, Vec::new());
        for word in pool::DATA.word()..region.media().bytes() / 8 {
            let at = Addr::new(word * 8);
            let whole = pm.load(at).unwrap();
            let count = if whole == 0 { 1 } else { usize::MAX };
            for damage in damages(at, form).into_iter().take(count) {
                pm.store(at, whole ^ damage).unwrap();
                let before = noticed;
                for number in 0..12 {
                    let (key, value) = pair(form, number);
                    let truth = (number < 8).then_some(value);
                    let found = [GET, GET_MANY].map(|ask| ask(&table, &key));
                    let there = table.contains(&key).map(|there| there == truth.is_some());
                    for is_right in
                        found.map(|found| Ok(found? == truth)).into_iter().chain([there])
                    {
                        match is_right {
                            Ok(true) => right += 1,
                            Ok(false) => wrong.push((at, damage, number)),
                            Err(Error::Corrupt { .. }) => noticed += 1,
                            Err(other) => panic!("{form}: {damage:#x} at {at:?}: {other}"),
                        }
                    }
                }
                if noticed > before && damage.is_power_of_two() {
                    let checked = Turbo::check(&region, Boot::default(), &mut |_, _| {});
                    assert!(checked.is_err(), "{form}: a check passes over {damage:#x} at {at:?}");
                }
            }
            pm.store(at, whole).unwrap();
        }
        println!("{form}: {noticed} answers are errors, {right} are right");
        assert!(wrong.is_empty(), "{form}: {} are wrong: {:x?}", wrong.len(), wrong[0]);
        assert!(noticed > 1000 && right > 1000, "{form}");
    }
}

#[test]
fn a_check_and_a_get_name_the_word_that_does_not_lead_to_a_record() {
    // Fails if the place in the error is that of a word beside it: who repairs a pool by hand would
    // look at the hash.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let opening = Opening { form: Form::Variable, ..Opening::default() };
    let settings = TurboSettings { shards: 1, ..TurboSettings::tiny() };
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    table.put(b"key", b"value").unwrap();
    let (pm, place) = (region.access(), places(&table)[0]);
    let mut buckets = (0..place.buckets()).map(|index| OpenBucket::of(&pm, place, index).unwrap());
    let (bucket, view, slot) = buckets
        .find_map(|bucket| {
            let view = bucket.view_of(bucket.meta_word()).unwrap();
            let slot = slots_of(view.meta.live()).next()?;
            Some((bucket, view, slot))
        })
        .expect("one bucket holds the pair");
    let [hash, record] = bucket.pair(&view, slot).unwrap();
    let (start, at, damaged) = (bucket.at(), bucket.slot_at(slot), record ^ 1 << 60);
    // The checks of the slot and of the bucket match again, and the record's own does not.
    let places = [Bucket::TAGS, Bucket::TAGS + 1, Bucket::CHECKS, Bucket::META];
    let places = places.map(|word| start.plus(word as u64));
    let [low, high, checks, _] = places.map(|at| pm.load(at).unwrap());
    let tag = layout::slot_tag([low, high, checks], slot);
    let check = layout::check_of([hash, damaged], start, slot);
    let [low, high, checks] = layout::with_slot([low, high, checks], slot, tag, check);
    let meta = view.meta.encode([low, high], start);
    for (at, word) in places.into_iter().zip([low, high, checks, meta]) {
        pm.store(at, word).unwrap();
    }
    pm.store(at, damaged).unwrap();
    let asked = [table.check().map(drop), GET(&table, b"key").map(drop)];
    for outcome in asked {
        let is_it = matches!(outcome, Err(Error::Corrupt { at: byte, .. }) if byte == at.byte());
        assert!(is_it, "{outcome:?}, and not at {at:?}");
    }
}

#[test]
fn a_damaged_bucket_takes_no_other_one_of_its_shard_along() {
    // Fails if a salvage gives up a shard for one of its buckets, or a pair that lies behind it.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let tiny = TurboSettings { shards: 1, buckets_per_shard: 16, ..TurboSettings::tiny() };
    let opening = Opening::default();
    let table = create::<Turbo, _>(region.clone(), &opening, &tiny, &Inline).unwrap();
    (0..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, !key).unwrap()));
    let TurboTable::Words(inner) = &table else { panic!("8/8 has words") };
    let place = inner.directory.shards()[0].place();
    let mut homes = vec![0; place.buckets() as usize];
    let home = |key: u64| layout::home_of(inner.hashed(key).hash, place.log) as usize;
    (0..100).for_each(|key| homes[home(key)] += 1);
    assert!(homes.iter().any(|pairs| *pairs > 3), "none lies behind its home");
    Box::new(table).close().unwrap();
    let pm = region.access();
    let mut all = 0;
    for bucket in (0..place.buckets()).map(|index| place.bucket(index)) {
        let [meta, low, high] = [Bucket::META, Bucket::TAGS, Bucket::TAGS + 1]
            .map(|word| pm.load(bucket.plus(word as u64)).unwrap());
        let here = Meta::decode(meta, [low, high], bucket).unwrap().live().count_ones();
        pm.store(bucket.plus(Bucket::META as u64), meta ^ 1 << 3).unwrap();
        let (mut pairs, mut reports) = (0, 0);
        let (visit, report) = (&mut |_: &[u8], _: &[u8]| pairs += 1, &mut |_| reports += 1);
        Turbo::salvage(&region, opening.boot, visit, report).unwrap();
        assert_eq!((pairs + here, reports), (100, 1), "{bucket:?}");
        pm.store(bucket.plus(Bucket::META as u64), meta).unwrap();
        all += here;
    }
    assert_eq!(all, 100);
}

/// Returns where the shards of a table lie.
fn places(table: &TurboTable<Image>) -> Vec<Place> {
    match table {
        TurboTable::Words(inner) => inner.directory.shards().iter().map(Shard::place).collect(),
        TurboTable::Bytes(inner) => inner.directory.shards().iter().map(Shard::place).collect(),
    }
}

#[test]
fn a_clear_goes_past_damage_and_leaves_none() {
    // Fails if damage keeps a clear from the pairs behind it, or stays where nothing counts any
    // more; or if the pairs of a bucket that nobody could count are counted later on.
    for form in super::FORMS {
        let region = Region::new(Image::<Std>::new(0, 1 << 20));
        let opening = Opening { form, ..Opening::default() };
        let settings = TurboSettings { shards: 4, ..TurboSettings::tiny() };
        let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
        let put_all = || {
            for (key, value) in (0..100).map(|number| pair(form, number)) {
                assert!(!table.put(&key, &value).unwrap(), "{form}: it was not there before");
            }
        };
        put_all();
        assert_eq!(table.len().unwrap(), 100);
        // Of one shard a META, of another one a slot, which leads to a record if there are any.
        let (pm, places) = (region.access(), places(&table));
        let meta = places[0].bucket(0).plus(Bucket::META as u64);
        pm.store(meta, pm.load(meta).unwrap() ^ 1 << 3).unwrap();
        // A crash may leave pairs behind it, whose paths must not end at it.
        let damaged = OpenBucket::of(&pm, places[0], 0).unwrap().view_of_unknown(4);
        assert!(!damaged.ends_path(4) && damaged.meta.filled() < 4);
        let slots = (0..places[1].buckets()).flat_map(|index| {
            let bucket = places[1].bucket(index);
            let [meta, low, high] = [Bucket::META, Bucket::TAGS, Bucket::TAGS + 1]
                .map(|word| pm.load(bucket.plus(word as u64)).unwrap());
            let live = Meta::decode(meta, [low, high], bucket).unwrap().live();
            let slots = (0..SLOTS).filter(move |slot| live >> slot & 1 == 1);
            slots.map(move |slot| bucket.plus((Bucket::SLOTS + 2 * slot + 1) as u64))
        });
        let slot = slots.last().expect("a shard of 25 pairs has one");
        pm.store(slot, pm.load(slot).unwrap() ^ 1 << 40).unwrap();
        assert!(matches!(table.check(), Err(Error::Corrupt { .. })));
        table.clear().unwrap();
        let is_empty = || (table.len().unwrap(), table.check().unwrap().items) == (0, 0);
        assert!(is_empty(), "{form}: {:?}", table.len());
        table.clear().unwrap();
        assert!(is_empty(), "{form}: {:?}", table.len());
        put_all();
        assert_eq!((table.len().unwrap(), table.check().unwrap().items), (100, 100), "{form}");
        drop(table);
        let table = open::<Turbo, _>(region.clone(), opening.boot, &Inline).unwrap();
        let mut value = Vec::new();
        for (key, expected) in (0..100).map(|number| pair(form, number)) {
            assert!(table.get(&key, &mut value).unwrap() && value == expected, "{form}");
        }
        Box::new(table).close().unwrap();
        assert_eq!(Turbo::check(&region, opening.boot, &mut |_, _| {}).unwrap().items, 100);
    }
}

#[test]
fn a_killed_table_with_a_damaged_bucket_has_figures_and_can_be_closed() {
    // Fails if the count, for which nobody asked, keeps a table from being closed or described; or
    // if a table that was closed without one takes another number for it.
    let region = Region::new(Image::<Std>::new(0, 1 << 20));
    let settings = TurboSettings { shards: 4, ..TurboSettings::tiny() };
    let opening = Opening::default();
    let make = || create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let again = || open::<Turbo, _>(region.clone(), opening.boot, &Inline).unwrap();
    let table = make();
    (0..50).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
    // A number of pairs that must not pass for that of the next close.
    Box::new(table).close().unwrap();
    let table = again();
    (50..100).for_each(|key| assert!(table.words().unwrap().insert_word(key, key).unwrap()));
    let TurboTable::Words(inner) = &table else { panic!("8/8 has words") };
    let place = inner.directory.of(inner.hashed(7).hash).place();
    drop(table);
    let meta = place.bucket(0).plus(Bucket::META as u64);
    let pm = region.access();
    let whole = pm.load(meta).unwrap();
    pm.store(meta, whole ^ 1 << 3).unwrap();
    for _ in 0..2 {
        let table = again();
        // It is no other number when it is asked for again.
        (0..2).for_each(|_| assert!(matches!(table.len(), Err(Error::Corrupt { .. }))));
        let items = table.stats().unwrap().items;
        assert!((97..100).contains(&items), "{items}: without those of one bucket");
        Box::new(table).close().unwrap();
        let status = Pool::status(&region, opening.boot).unwrap();
        assert_eq!(status.previous, Shutdown::Clean);
    }
    pm.store(meta, whole).unwrap();
    assert_eq!(again().len().unwrap(), 100);
}
