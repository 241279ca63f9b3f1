//! Damaged and hostile pools: an error or the right answers, and never a panic.

use std::collections::BTreeMap;

use everhash_index::{Design, Form, Inline, Opening, Table, WordTable};
use everhash_pmem::crash::Model;
use everhash_pmem::pool::DATA;
use everhash_pmem::{AllocationMeter, Image, Region, Std};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::elimda::layout::LINE_WORDS;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable, check};

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, other than a key or a value of a
    // fixed form, or if a number from the medium is used before it is bounded.
    // With durable caches, a pool has collecting logs, too.
    for model in [Model::Adr, Model::Eadr] {
        let effort = Effort { bare_pairs: true, flip_every: 7, model, ..Effort::default() };
        for form in super::FORMS {
            let report = judge(&Design::of::<ElimDa>(), form, &effort).unwrap();
            println!("{form}, {model}: {report}");
            assert!(report.noticed > 700, "{form}: {report}");
            assert!((30..4000).contains(&report.opened), "{form}: {report}");
        }
    }
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table, with its pairs: some were updated, some removed.
fn mixed(form: Form, model: Model) -> (Pairs, Session<ElimDa>) {
    let shape = Shape::tiny(form);
    let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
    let image = Image::<Std>::new(0, 1 << 20).with_guarantees(model.guarantees());
    let session = Session::<ElimDa>::create(image, form, &settings).unwrap();
    let (table, mut pairs) = (session.table(), Pairs::new());
    for number in 0..300u16 {
        let key = shape.key(number);
        assert!(table.insert(&key, &shape.value(1)).unwrap());
        pairs.insert(key, shape.value(1));
        let older = shape.key(number / 2);
        match number % 5 {
            0 => assert_eq!(table.remove(&older).unwrap(), pairs.remove(&older).is_some()),
            1 | 2 if table.update(&older, &shape.value(number.into())).unwrap() => {
                pairs.insert(older, shape.value(number.into()));
            }
            _ => {}
        }
    }
    (pairs, session)
}

/// Returns how many pairs a salvage of these words does not give back; it may give no others, and
/// reports damage if it loses any.
fn lost_by_salvage(words: &[u64], pairs: &Pairs, told: &str) -> usize {
    let region = Region::new(Image::<Std>::of(words, words.len() as u64 * 8, 1 << 20));
    let (mut found, mut reports) = (0, 0);
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(pairs.get(key).map(Vec::as_slice), Some(value), "{told}");
        found += 1;
    };
    check::salvage(&region, &mut visit, &mut |_| reports += 1).unwrap();
    let lost = pairs.len() - found;
    assert!(lost == 0 || reports > 0, "{told}: {lost} lost without a word");
    lost
}

#[test]
fn salvage_loses_little_by_one_damaged_word_and_nothing_comes_back() {
    // Fails if a damaged line, unit, watermark, head or link costs more than what it says something
    // of, or if what is left of it brings back a removed pair or an older value.
    for (form, model) in [(Form::Variable, Model::Adr), (Form::Variable, Model::Eadr)] {
        let (pairs, session) = mixed(form, model);
        let words = session.region().media().words();
        let (mut most, mut all, mut count) = (0, 0, 0);
        let used = (DATA.word() as usize..words.len()).filter(|index| words[*index] != 0);
        for index in used.step_by(3) {
            let mut damaged = words.clone();
            damaged[index] ^= 1 << 50;
            let lost = lost_by_salvage(&damaged, &pairs, &format!("{form}, {index}"));
            (most, all, count) = (lost.max(most), all + lost, count + 1);
        }
        println!("{form}, {model}: {most} of {} lost at most, {all} by {count}", pairs.len());
        assert!(most <= 40 && all <= 2 * count, "{form}, {model}: {most} lost, {all} by {count}");
    }
}

/// Returns the words of a medium on which a table of 300 pairs was made and closed.
fn closed(medium: Image<Std>, form: Form, settings: &ElimDaSettings) -> Vec<u64> {
    let shape = Shape::tiny(form);
    let mut session = Session::<ElimDa>::create(medium, form, settings).unwrap();
    for number in 0..300 {
        assert!(session.table().insert(&shape.key(number), &shape.value(1)).unwrap());
    }
    let region = session.region().clone();
    session.close().unwrap();
    region.media().words()
}

/// Returns for each line behind the header where it begins, and the words with zeros there.
fn with_a_hole(words: &[u64]) -> impl Iterator<Item = (usize, Vec<u64>)> {
    with_holes_of(LINE_WORDS as usize, words)
}

/// As [`with_a_hole`], for each piece of so many words.
fn with_holes_of(length: usize, words: &[u64]) -> impl Iterator<Item = (usize, Vec<u64>)> {
    (DATA.word() as usize..words.len()).step_by(length).map(move |first| {
        let mut holed = words.to_vec();
        holed[first..].iter_mut().take(length).for_each(|word| *word = 0);
        (first, holed)
    })
}

#[test]
fn p06_a_hole_in_a_closed_pool_is_noticed() {
    // Fails if a page of zeros, which a lost or a sparsely copied block leaves, is taken for units,
    // or for lines of the log, that were never used: their pairs are gone without a word.
    for form in super::FORMS {
        let settings = ElimDaSettings { initial_segments: 4, ..ElimDaSettings::tiny() };
        let words = closed(Image::new(0, 1 << 20), form, &settings);
        let bytes = words.len() as u64 * 8;
        let (mut noticed, mut harmless) = (0, 0);
        for (first, holed) in with_a_hole(&words) {
            let open = || Session::<ElimDa>::open(Image::<Std>::of(&holed, bytes, 1 << 20), form);
            let region = Region::new(Image::<Std>::of(&holed, bytes, 1 << 20));
            let checked = check::check(&region, &mut |_, _| {}).map(|found| found.items);
            let opened = open().and_then(|session| session.table().len());
            for items in [&checked, &opened].into_iter().flatten() {
                assert_eq!(*items, 300, "{form}: {first}");
            }
            match checked {
                Ok(_) => harmless += 1,
                Err(_) => noticed += 1,
            }
        }
        println!("{form}: {noticed} noticed, {harmless} harmless");
        assert!(noticed > 100, "{form}: {noticed} noticed, {harmless} harmless");
    }
}

#[test]
fn p06_a_hole_in_a_unit_brings_no_old_value_back() {
    // Fails if the pairs of a unit that is lost are taken from the log again, where they are dead
    // only by the unit's watermark: an older value, and a pair that was removed, with as many pairs
    // as there were.
    let image = Image::<Std>::new(0, 1 << 20);
    let mut session =
        Session::<ElimDa>::create(image, Form::WORDS, &ElimDaSettings::tiny()).unwrap();
    let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
    let of_first = |key: &u64| table.geometry.bucket_of(table.hasher.word(*key)) == 0;
    let keys: Vec<u64> = (1..).filter(of_first).take(4).collect();
    // The fourth one moves the others to a unit. One is updated there.
    keys.iter().for_each(|key| assert!(table.insert_word(*key, 1).unwrap()));
    assert!(table.remove_word(keys[3]).unwrap() && table.update_word(keys[0], 2).unwrap());
    let region = session.region().clone();
    session.close().unwrap();
    let words = region.media().words();
    let bytes = words.len() as u64 * 8;
    let sound = |key, value| key != keys[3] && value == 1 + u64::from(key == keys[0]);
    let (mut noticed, mut harmless) = (0, 0);
    for (first, holed) in with_a_hole(&words) {
        let image = || Image::<Std>::of(&holed, bytes, 1 << 20);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let (mut all_sound, mut reports) = (true, 0);
        let mut visit = |key: &[u8], value: &[u8]| all_sound &= sound(word(key), word(value));
        let checked = check::check(&Region::new(image()), &mut visit);
        assert!(all_sound || checked.is_err(), "a hole at {first}");
        all_sound = true;
        let mut visit = |key: &[u8], value: &[u8]| all_sound &= sound(word(key), word(value));
        check::salvage(&Region::new(image()), &mut visit, &mut |_| reports += 1).unwrap();
        assert!(all_sound, "a salvage with a hole at {first}");
        assert_eq!(checked.is_err(), reports > 0, "a hole at {first}");
        match Session::<ElimDa>::open(image(), Form::WORDS) {
            Ok(session) => {
                let ElimDaTable::Words(table) = session.table() else { panic!("8/8 has words") };
                for (key, value) in keys.iter().zip([Some(2), Some(1), Some(1), None]) {
                    assert_eq!(table.get_word(*key).unwrap(), value, "a hole at {first}");
                }
                harmless += 1;
            }
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 3 && harmless > 3, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn salvage_of_a_closed_pool_with_a_hole_brings_nothing_back() {
    // Fails if what a lost unit had absorbed is taken from the log, where a removed pair and an
    // older value still stand.
    for (form, model) in [(Form::WORDS, Model::Adr), (Form::Variable, Model::Eadr)] {
        let (mut pairs, mut session) = mixed(form, model);
        // Of what was absorbed last, the log still has copies.
        let shape = Shape::tiny(form);
        for key in (200..300).map(|number| shape.key(number)) {
            if pairs.contains_key(&key) && session.table().update(&key, &shape.value(9)).unwrap() {
                pairs.insert(key, shape.value(9));
            }
        }
        let region = session.region().clone();
        session.close().unwrap();
        let words = region.media().words();
        let (mut all, mut count) = (0, 0);
        // A line, and a page.
        let holed = [LINE_WORDS as usize, 512].map(|length| with_holes_of(length, &words));
        for (first, holed) in holed.into_iter().flatten() {
            let lost = lost_by_salvage(&holed, &pairs, &format!("{form}, {first}"));
            (all, count) = (all + lost, count + 1);
        }
        println!("{form}, {model}: {} pairs, {all} lost by {count} holes", pairs.len());
    }
}

#[test]
fn p08_a_refused_pool_with_collecting_logs_is_left_as_it_was() {
    // Fails if an open tidies the logs of a closed pool up, or drops, ends or makes anything,
    // before it has checked all of it.
    for form in super::FORMS {
        let guarantees = Model::Eadr.guarantees();
        let medium = Image::new(0, 1 << 20).with_guarantees(guarantees);
        let words = closed(medium, form, &ElimDaSettings::tiny());
        let bytes = words.len() as u64 * 8;
        let mut refused = 0;
        for (first, holed) in with_a_hole(&words) {
            let medium = Image::<Std>::of(&holed, bytes, 1 << 20).with_guarantees(guarantees);
            let region = Region::new(medium);
            let boot = Opening::default().boot;
            if everhash_index::open::<ElimDa, _>(region.clone(), boot, &Inline).is_err() {
                assert!(region.media().words() == holed, "{form}: the hole at {first} was hidden");
                refused += 1;
            }
        }
        println!("{form}: {refused} refused");
        assert!(refused > 50, "{form}: {refused}");
    }
}

#[test]
fn a_check_keeps_no_values() {
    // Fails if it holds the values of a whole segment: thousands of pairs by default, each of which
    // may have 16 MiB.
    const VALUE: usize = 256 << 10;
    let session = Session::<ElimDa>::tiny(Form::Variable, 16 << 20).unwrap();
    for key in 0..20u8 {
        assert!(session.table().insert(&[key], &[1; VALUE]).unwrap());
    }
    let region = session.region();
    let (checked, peak_bytes) =
        AllocationMeter::measure(|| check::check(region, &mut |_, _| {}).map(|found| found.items));
    assert_eq!(checked.unwrap(), 20);
    assert!(peak_bytes < 4 * VALUE as u64, "{peak_bytes}");
}
