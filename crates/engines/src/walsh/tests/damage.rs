//! Damaged and hostile pools: an error or the right answers, and never a panic.

use everhash_index::{Design, Error, Form, Result, Table, WordTable};
use everhash_pmem::{Image, Std};
use everhash_testkit::damage::{Effort, judge};
use everhash_testkit::session::Session;

use crate::walsh::layout::{Link, mix};
use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// Keys of one chain, each with an older object behind its newest.
const KEYS: u64 = 5;

#[test]
fn p06_p07_damage_is_noticed_or_harmless_and_never_a_panic() {
    // Fails if one flipped bit or a lost end changes an answer, or if a number from the medium is
    // used before it is bounded. In the records of the areas, damage looks like a crash while one
    // was written.
    for form in super::FORMS {
        let effort = Effort { flip_every: 13, ..Effort::default() };
        let report = judge(&Design::of::<Walsh>(), form, &effort).unwrap();
        println!("{form}: {report}");
        assert!(report.noticed > 1000, "{form}: {report}");
        assert!(report.by_check_alone == 0, "{form}: {report}");
        assert!((100..4000).contains(&report.opened), "{form}: {report}");
    }
}

/// The bytes of a key of a form, or of a value.
fn bytes_of(form: Form, number: u64) -> Vec<u8> {
    match form {
        Form::Variable => format!("number {number}").into_bytes(),
        Form::Fixed { key_bytes, .. } => number.to_le_bytes().repeat(key_bytes as usize / 8),
    }
}

/// What a look-up says of the value of a key; an error is a look-up that noticed damage.
type Answer = Result<Option<Vec<u8>>>;

/// Asks for a key in each way that leads to its value.
fn answers(table: &WalshTable<Image<Std>>, form: Form, key: u64) -> Vec<Answer> {
    let bytes = bytes_of(form, key);
    let mut value = Vec::new();
    let found = table.get(&bytes, &mut value);
    let mut together = None;
    let mut keep = |_: usize, value: Option<&[u8]>| together = value.map(<[u8]>::to_vec);
    let done = table.get_many(&[&bytes], &mut keep);
    let mut answers = vec![found.map(|found| found.then_some(value)), done.map(|()| together)];
    if form == Form::WORDS {
        let bytes = |value: u64| value.to_le_bytes().to_vec();
        let mut values = [None];
        let done = table.get_words(&[key], &mut values);
        answers.push(table.get_word(key).map(|value| value.map(bytes)));
        answers.push(done.map(|()| values[0].map(bytes)));
    }
    answers
}

#[test]
fn p06_damage_to_the_newest_object_of_a_key_does_not_uncover_an_older_one() {
    // Fails if a look-up passes over a damaged object, although it may be the newest of the key
    // that it looks for: an older value, or that the key is absent, would be an answer of the past.
    // Of each object in turn every bit is flipped under an open table, whose chain holds all keys
    // twice, and every key is asked for in every way.
    let settings = WalshSettings { areas: 1, directories: 1, resize: 0, ..WalshSettings::tiny() };
    for form in super::FORMS {
        let image = Image::<Std>::new(0, 1 << 20);
        let session: Session<Walsh> = Session::create(image, form, &settings).unwrap();
        let table = session.table();
        for number in 0..2 * KEYS {
            let (key, value) = (bytes_of(form, number % KEYS), bytes_of(form, number));
            table.put(&key, &value).unwrap();
        }
        let area = &table.areas[0];
        let head = {
            let state = table.lock(area).unwrap();
            table.blocks.read(&area.sides[state.view.side()], 0).head()
        };
        let pm = table.pool.access();
        let (mut at, mut objects, mut noticed) = (head, 0, 0);
        let (mut key_there, mut value_there) = (Vec::new(), Vec::new());
        while !at.is_null() {
            let found = table.objects.read(&pm, at, &mut key_there, &mut value_there).unwrap();
            for bit in 0..found.words * 64 {
                let word = at.plus(bit / 64);
                let before = pm.load(word).unwrap();
                pm.store(word, before ^ 1 << (bit % 64)).unwrap();
                for key in 0..KEYS {
                    let newest = bytes_of(form, KEYS + key);
                    for answer in answers(table, form, key) {
                        match answer {
                            Ok(there) => assert_eq!(there.as_ref(), Some(&newest), "bit {bit}"),
                            Err(_) => noticed += 1,
                        }
                    }
                }
                pm.store(word, before).unwrap();
            }
            (at, objects) = (found.link.next, objects + 1);
        }
        assert_eq!(objects, 2 * KEYS);
        assert!(noticed > 1000, "{form}: {noticed}");
    }
}

#[test]
fn a_chain_that_leads_back_into_itself_is_damage() {
    // Fails if a search walks in a circle for ever, or says after as many objects as there can be
    // that the key is absent.
    let settings = WalshSettings { areas: 1, directories: 1, resize: 0, ..WalshSettings::tiny() };
    let image = Image::<Std>::new(0, 1 << 16);
    let session: Session<Walsh> = Session::create(image, Form::WORDS, &settings).unwrap();
    let table = session.table();
    (0..3).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let area = &table.areas[0];
    let at = {
        let state = table.lock(area).unwrap();
        table.blocks.read(&area.sides[state.view.side()], 0).behind()
    };
    let pm = table.pool.access();
    let pair = [1, 2].map(|word| pm.load(at.plus(word)).unwrap());
    assert_eq!(pair, [1, 1], "the object behind the newest");
    let bound = pair.iter().fold(mix(table.seed, at.byte()), |bound, word| mix(bound, *word));
    let link = Link::decode(pm.load(at).unwrap(), bound).unwrap();
    pm.store(at, Link { next: at, ..link }.encode(bound)).unwrap();
    let is_noticed = |answer: &Answer| matches!(answer, Err(Error::Corrupt { .. }));
    let answers = answers(table, Form::WORDS, 0);
    assert!(answers.iter().all(is_noticed), "{answers:?}");
    assert_eq!(table.get_word(1).unwrap(), Some(1));
}
