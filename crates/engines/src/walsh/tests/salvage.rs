//! What a salvage gives back of a damaged pool, and what an open and a check say of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use everhash_index::{Engine, Error, Form, Table};
use everhash_pmem::pool::DATA;
use everhash_pmem::{Boot, Domain, Guarantees, Image, Region, Std};
use everhash_testkit::session::Session;
use everhash_testkit::workload::Shape;

use crate::walsh::layout::{AreaRecord, Info, Tail, WordObject};
use crate::walsh::{Walsh, WalshSettings};

/// Several logs for each area, and few logs.
const SETTINGS: [WalshSettings; 2] = [
    WalshSettings::tiny(),
    WalshSettings { log_entries: 64, log_bytes: 6144, resize: 0, ..WalshSettings::tiny() },
];

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table with new values, removed pairs, and some that came back; and what it holds.
fn filled(form: Form, settings: &WalshSettings) -> (Session<Walsh>, Pairs) {
    let (shape, mut pairs) = (Shape::tiny(form), Pairs::new());
    let session = Session::<Walsh>::create(Image::new(0, 1 << 20), form, settings).unwrap();
    for step in 0..60 {
        let (key, value) = (shape.key((step * 7 % 24) as u16), shape.value(step));
        if step % 5 == 4 {
            session.table().remove(&key).unwrap();
            pairs.remove(&key);
        } else {
            session.table().put(&key, &value).unwrap();
            pairs.insert(key, value);
        }
    }
    (session, pairs)
}

/// Returns where the older info of the first area begins, in words.
fn older_info(session: &Session<Walsh>, words: &[u64]) -> usize {
    let record = session.table().areas[0].record.word() as usize;
    let infos = [AreaRecord::INFO_A, AreaRecord::INFO_B].map(|place| record + place);
    infos.into_iter().min_by_key(|at| words[at + Info::SEQUENCE]).expect("there are two")
}

fn image_of(words: &[u64]) -> Arc<Image> {
    let bytes = words.len() as u64 * 8;
    Arc::new(Image::<Std>::of(words, bytes, bytes + (64 << 10)))
}

/// What a salvage gives back if power may have failed, and the damages that it reports.
fn salvaged(words: &[u64]) -> (Pairs, Vec<String>) {
    salvaged_in(words, Boot::default())
}

/// The same in a boot of the machine.
fn salvaged_in(words: &[u64], boot: Boot) -> (Pairs, Vec<String>) {
    let (mut pairs, mut damages) = (Pairs::new(), Vec::new());
    let visit = &mut |key: &[u8], value: &[u8]| {
        assert!(pairs.insert(key.to_vec(), value.to_vec()).is_none(), "a key twice");
    };
    let report = &mut |damage: Error| damages.push(damage.to_string());
    Walsh::salvage(&Region::<Image>::new(image_of(words)), boot, visit, report).unwrap();
    (pairs, damages)
}

/// Calls `judge` with a pool of which one bit is flipped, for every so many bits from `first` on.
fn each_flip(words: &mut [u64], first: u64, mut judge: impl FnMut(u64, &[u64])) {
    for bit in (first * 64..words.len() as u64 * 64).step_by(97) {
        let (word, mask) = ((bit / 64) as usize, 1 << (bit % 64));
        words[word] ^= mask;
        judge(bit, words);
        words[word] ^= mask;
    }
}

#[test]
fn p06_a_salvage_gives_back_what_look_ups_still_answer_and_nothing_old() {
    // Fails if one damaged object costs others, if an older value of its key comes back, or if
    // pairs are missing and no damage is reported. Fails if the older info of an area, of which a
    // closed pool demands that it is whole, costs anything. And fails if a check accepts a pool
    // that an open refuses.
    for (form, settings) in super::FORMS.into_iter().flat_map(|it| SETTINGS.map(|of| (it, of))) {
        let (mut session, pairs) = filled(form, &settings);
        let region = session.region().clone();
        let older = older_info(&session, &region.media().words());
        session.close().unwrap();
        let mut words = region.media().words();
        assert_eq!(salvaged(&words), (pairs.clone(), Vec::new()));
        words[older + Info::START] ^= 1 << 40;
        let (found, damages) = salvaged(&words);
        assert_eq!((found == pairs, damages.len()), (true, 1), "{form}: {damages:?}");
        words[older + Info::START] ^= 1 << 40;
        let (mut one_lost, mut refused) = (0, 0);
        each_flip(&mut words, DATA.word(), |bit, words| {
            let (found, damages) = salvaged(words);
            let is_true = |it: &(&Vec<u8>, &Vec<u8>)| pairs.get(it.0) == Some(it.1);
            let wrong = found.iter().find(|it| !is_true(it));
            assert_eq!(wrong, None, "{form}, bit {bit}");
            assert!(!damages.is_empty() || found == pairs, "{form}, bit {bit}");
            let checked = Walsh::check(
                &Region::<Image>::new(image_of(words)),
                Boot::default(),
                &mut |_, _| {},
            );
            let Ok(opened) = Session::<Walsh>::open(image_of(words), form) else {
                assert!(checked.is_err(), "{form}, bit {bit}");
                refused += 1;
                return;
            };
            // A closed pool is opened without the heads of older logs, and a salvage needs them.
            if damages.iter().any(|damage| damage.contains("the checksum of a log's head")) {
                return;
            }
            for key in pairs.keys() {
                let answer = opened.table().get(key, &mut Vec::new());
                assert!(
                    answer.is_err() || found.contains_key(key),
                    "{form}, bit {bit}, {damages:?}"
                );
            }
            one_lost += usize::from(found.len() + 1 == pairs.len());
        });
        println!("{form}: one pair lost {one_lost}, refused {refused}");
        assert!(one_lost > 20 && refused > 20, "{form}: {one_lost}, {refused}");
    }
}

#[test]
fn p06_a_salvage_of_a_pool_that_was_not_closed_gives_nothing_old_back() {
    // Fails if a damaged object uncovers an older one of its key. The records of the areas are left
    // out: damage there looks like a crash while one was written.
    for (form, settings) in super::FORMS.into_iter().flat_map(|it| SETTINGS.map(|of| (it, of))) {
        let (session, pairs) = filled(form, &settings);
        session.table().sync().unwrap();
        let mut words = session.region().media().words();
        let behind = DATA.word() + settings.areas * AreaRecord::WORDS as u64;
        let mut kept = 0;
        each_flip(&mut words, behind, |bit, words| {
            let (found, damages) = salvaged(words);
            let is_true = |it: &(&Vec<u8>, &Vec<u8>)| pairs.get(it.0) == Some(it.1);
            let wrong = found.iter().find(|it| !is_true(it));
            assert_eq!(wrong, None, "{form}, bit {bit}");
            assert!(!damages.is_empty() || found == pairs, "{form}, bit {bit}");
            kept += usize::from(!damages.is_empty() && found.len() + 1 == pairs.len());
        });
        println!("{form}: {kept}");
        assert!(kept > 10, "{form}: {kept}");
    }
}

#[test]
fn p06_what_a_killed_process_wrote_last_is_checked_and_salvaged_too() {
    // Fails if damage in what no epoch has made durable is taken for the trace of power loss: a
    // check would find the pool sound, and a salvage would give back less, or old values.
    let durable = WalshSettings { durability: 1, ..WalshSettings::tiny() };
    let each = || SETTINGS.into_iter().chain([durable]);
    for (form, settings) in super::FORMS.into_iter().flat_map(|it| each().map(move |of| (it, of))) {
        let (session, pairs) = filled(form, &settings);
        let boot = session.opening().boot;
        let mut words = session.region().media().words();
        assert_eq!(salvaged_in(&words, boot), (pairs.clone(), Vec::new()));
        let behind = DATA.word() + settings.areas * AreaRecord::WORDS as u64;
        let (mut one_lost, mut refused) = (0, 0);
        each_flip(&mut words, behind, |bit, words| {
            let region = Region::<Image>::new(image_of(words));
            let checked = Walsh::check(&region, boot, &mut |_, _| {});
            let (found, damages) = salvaged_in(words, boot);
            let is_true = |it: &(&Vec<u8>, &Vec<u8>)| pairs.get(it.0) == Some(it.1);
            let wrong = found.iter().find(|it| !is_true(it));
            assert_eq!(wrong, None, "{form}, bit {bit}");
            assert!(!damages.is_empty() || found == pairs, "{form}, bit {bit}");
            assert_eq!(checked.is_err(), !damages.is_empty(), "{form}, bit {bit}: {checked:?}");
            refused += usize::from(checked.is_err());
            one_lost += usize::from(found.len() + 1 == pairs.len());
        });
        println!("{form}: one pair lost {one_lost}, damage found {refused}");
        assert!(one_lost > 20 && refused > 40, "{form}: {one_lost}, {refused}");
    }
}

#[test]
fn p08_a_damaged_pool_that_an_open_refuses_stays_as_it_was() {
    // Fails if recovery writes the record of one area anew before it has read the next one.
    for form in super::FORMS {
        let (session, _) = filled(form, &WalshSettings::tiny());
        session.table().sync().unwrap();
        let mut words = session.region().media().words();
        // As a crash leaves it while an info is written.
        let older = older_info(&session, &words);
        words[older + Info::START] ^= 1 << 40;
        let recovered = image_of(&words);
        Session::<Walsh>::open(Arc::clone(&recovered), form).unwrap();
        assert_ne!(recovered.words(), words, "recovery had nothing to write");
        let tail = session.table().areas[1].record.plus(AreaRecord::DURABLE_TAIL as u64);
        let tail = Tail::decode(words[tail.word() as usize], tail).unwrap();
        words[tail.at.word() as usize] ^= 1 << 20;
        let refused = image_of(&words);
        assert!(Session::<Walsh>::open(Arc::clone(&refused), form).is_err());
        assert_eq!(refused.words(), words, "{form}");
    }
}

#[test]
fn each_area_of_a_closed_pool_is_read_as_that_of_a_closed_pool() {
    // Fails if the areas behind one whose older info is damaged are read as if the pool had not
    // been closed: damage to the checkpoint of the next one would not be reported.
    let (mut session, pairs) = filled(Form::WORDS, &WalshSettings::tiny());
    let region = session.region().clone();
    let place = session.table().areas[1].record.plus(AreaRecord::CHECKPOINT as u64);
    let older = older_info(&session, &region.media().words());
    session.close().unwrap();
    let mut words = region.media().words();
    let saved = Tail::decode(words[place.word() as usize], place).unwrap();
    assert!(!saved.at.is_null(), "nothing was saved");
    words[saved.at.word() as usize] ^= 1;
    words[older + Info::START] ^= 1 << 40;
    let (found, damages) = salvaged(&words);
    assert_eq!((found, damages.len()), (pairs, 2), "{damages:?}");
}

#[test]
fn damage_in_a_relaxed_pool_that_was_not_closed_costs_its_area() {
    // Fails if a check goes back to what a sync made durable, or if a salvage reads on behind a
    // damaged object: where fences do not reach the device, nothing says what was durable.
    let relaxed =
        Guarantees { domain: Domain::Process, same_line_order: true, access_unit_bytes: 4096 };
    let settings = WalshSettings { areas: 1, resize: 0, ..WalshSettings::tiny() };
    let image = Image::<Std>::new(0, 1 << 20).with_guarantees(relaxed);
    let session = Session::<Walsh>::create(image, Form::WORDS, &settings).unwrap();
    let (table, shape) = (session.table(), Shape::tiny(Form::WORDS));
    for key in 0..3 {
        table.put(&shape.key(key), &shape.value(1)).unwrap();
    }
    table.sync().unwrap();
    table.put(&shape.key(3), &shape.value(1)).unwrap();
    let open = table.lock(&table.areas[0]).unwrap().open.unwrap();
    let mut words = session.region().media().words();
    let check = |words: &[u64]| {
        let region = Region::<Image>::new(image_of(words));
        Walsh::check(&region, Boot::default(), &mut |_, _| {}).map(|checked| checked.items)
    };
    assert_eq!((check(&words).unwrap(), salvaged(&words).0.len()), (4, 4));
    // The value of the last object, and then that of the first one.
    words[(open.span.start.word() + open.fill) as usize - 1] ^= 1;
    assert!(check(&words).is_err());
    let object_words = WordObject::WORDS as u64;
    words[(open.span.start.word() + open.fill - 3 * object_words) as usize - 1] ^= 1;
    let (found, damages) = salvaged(&words);
    assert_eq!((found.len(), damages.len()), (0, 1), "{damages:?}");
}

#[test]
fn sealed_objects_behind_a_damaged_one_are_found_or_hide_what_is_older() {
    // Fails if a salvage after power loss does not read on behind the objects that the tail covers,
    // although the next one has a known place; or if it gives back an older value where the length
    // of the damaged object is unknown, and with it where the next one lies.
    let settings = WalshSettings { areas: 1, durability: 1, resize: 0, ..WalshSettings::tiny() };
    for form in super::FORMS {
        let shape = Shape::tiny(form);
        let medium = Image::<Std>::new(0, 1 << 20);
        let mut session = Session::<Walsh>::create(medium, form, &settings).unwrap();
        session.table().put(&shape.key(1), &shape.value(1)).unwrap();
        let fill = {
            let state = session.table().lock(&session.table().areas[0]).unwrap();
            state.open.map(|log| log.span.start.word() + log.fill).unwrap()
        };
        session.table().put(&shape.key(2), &shape.value(2)).unwrap();
        // The tail covers both then, and not what follows.
        session.kill_unsynced().unwrap();
        session.table().put(&shape.key(1), &shape.value(3)).unwrap();
        let mut words = session.region().media().words();
        assert_eq!(salvaged(&words).0.get(&shape.key(1)), Some(&shape.value(3)));
        // The link of the second object.
        words[fill as usize] ^= 1;
        let (found, damages) = salvaged(&words);
        let is_known = form != Form::Variable;
        let expected = is_known.then(|| (shape.key(1), shape.value(3)));
        assert_eq!(found, expected.into_iter().collect(), "{form}: {damages:?}");
        assert_eq!(damages.len(), 1, "{form}: {damages:?}");
    }
}
