//! Every flipped bit of a small pool is noticed, or makes no difference.

use std::collections::BTreeMap;

use everhash_index::{Cursor, Error, Form, Inline, Opening, Table, create, open};
use everhash_pmem::{Addr, Boot, Image, Media, Region, Std};

use crate::turbo::{Turbo, TurboSettings};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes a pool of some pairs, deleted slots and moved shards, closed cleanly.
fn pool(form: Form) -> (Vec<u64>, Pairs) {
    let region = Region::new(Image::<Std>::new(0, 256 << 10));
    let opening = Opening { form, ..Opening::default() };
    let settings = TurboSettings { lanes: 1, ..TurboSettings::tiny() };
    let table = create::<Turbo, _>(region.clone(), &opening, &settings, &Inline).unwrap();
    let mut pairs = Pairs::new();
    for i in 0..24u64 {
        let (key, value) = pair(form, i);
        table.put(&key, &value).unwrap();
        pairs.insert(key, value);
    }
    for i in (0..24).step_by(5) {
        let (key, _) = pair(form, i);
        assert!(table.remove(&key).unwrap());
        pairs.remove(&key);
    }
    Box::new(table).close().unwrap();
    let mut words = vec![0; (region.media().bytes() / 8) as usize];
    region.access().read_words(Addr::NULL, &mut words).unwrap();
    (words, pairs)
}

fn pair(form: Form, i: u64) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = ((i * 77).to_le_bytes().to_vec(), (i << 20).to_le_bytes().to_vec());
    match form {
        Form::WORDS => (key, value),
        Form::DOUBLE_WORDS => (key.repeat(2), value.repeat(2)),
        _ => (key, value.repeat(1 + i as usize % 5)),
    }
}

/// Reads everything out in every way there is.
fn read_out(image: Image<Std>, pairs: &Pairs) -> everhash_index::Result<Pairs> {
    let region = Region::new(image);
    let table = open::<Turbo, _>(region, Boot([9, 9]), &Inline)?;
    let mut found = Pairs::new();
    let mut cursor = Some(Cursor::default());
    while let Some(at) = cursor {
        cursor = table.scan(at, &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
        })?;
    }
    let mut value = Vec::new();
    for (key, expected) in pairs {
        assert!(table.get(key, &mut value)?, "a key is lost without a word");
        assert_eq!(&value, expected, "a wrong value");
    }
    assert!(!table.get(&vec![7; pairs.first_key_value().unwrap().0.len()], &mut value)?);
    assert_eq!(table.len()?, pairs.len() as u64);
    let grown = (0..24).try_for_each(|i| {
        let mut key = pairs.first_key_value().unwrap().0.clone();
        key[7] = 100 + i;
        table.put(&key, &value_like(pairs)).map(drop)
    });
    grown?;
    assert_eq!(table.check()?.items, pairs.len() as u64 + 24);
    Ok(found)
}

fn value_like(pairs: &Pairs) -> Vec<u8> {
    pairs.first_key_value().unwrap().1.clone()
}

#[test]
fn p07_every_flipped_bit_is_noticed_or_makes_no_difference() {
    // Fails if a flipped bit makes a wrong answer, a panic or an endless loop.
    for form in super::FORMS {
        let (words, pairs) = pool(form);
        let bytes = words.len() as u64 * 8;
        let whole = |words: &[u64]| read_out(Image::of(words, bytes, 256 << 10), &pairs);
        assert_eq!(whole(&words).unwrap(), pairs);
        let (mut noticed, mut harmless) = (0, 0);
        for bit in 0..words.len() * 64 {
            // Most words of the pool are zero, and no word of ours: one bit of each is enough.
            if words[bit / 64] == 0 && bit % 64 != bit / 64 % 64 {
                continue;
            }
            let mut damaged = words.clone();
            damaged[bit / 64] ^= 1 << (bit % 64);
            match whole(&damaged) {
                Ok(found) => {
                    assert_eq!(found, pairs, "{form}: bit {} of word {}", bit % 64, bit / 64);
                    harmless += 1;
                }
                Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => noticed += 1,
                Err(other) => panic!("{form}: bit {bit}: {other}"),
            }
        }
        println!("{form}: {noticed} flips noticed, {harmless} without effect");
        assert!(noticed > 5_000 && harmless > 1_000);
    }
}
