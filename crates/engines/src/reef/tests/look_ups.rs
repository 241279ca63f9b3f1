//! Look-ups alone and in batches, of keys that are there and of such that are not.

use everhash_index::{Form, Inline, Opening, Table, WordTable, create};
use everhash_pmem::{Addr, Image, Region, Std};

use crate::reef::{Reef, ReefSettings, ReefTable};

fn table(form: Form) -> ReefTable<Image<Std>> {
    let opening = Opening { form, ..Opening::default() };
    let region = Region::new(Image::<Std>::new(1 << 16, 64 << 20));
    create::<Reef, _>(region, &opening, &ReefSettings::default(), &Inline).unwrap()
}

/// Returns bytes that belong to a number and a length.
fn bytes(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (number * 31 + length * 7 + place * 13) as u8).collect()
}

#[test]
fn byte_strings_of_every_length_are_read_alone_and_in_batches() {
    // Fails if an object that is just short enough to be read at once, or just not, loses bytes; or
    // if a batch gives a key the value of another one.
    let table = table(Form::Variable);
    let value_of = |key: &[u8], value: usize| bytes(key.len() + 1, value);
    let mut pairs = Vec::new();
    for value in 0..300 {
        for key in [2, 7, 8, 9, 16, 40, 200] {
            let mut key = bytes(value, key);
            key[..2].copy_from_slice(&(value as u16).to_le_bytes());
            assert!(table.insert(&key, &value_of(&key, value)).unwrap());
            pairs.push((key.clone(), Some(value_of(&key, value))));
            key[1] ^= 0x80;
            pairs.push((key, None));
        }
    }
    let mut found = vec![1, 2, 3];
    for (key, value) in &pairs {
        assert_eq!(table.get(key, &mut found).unwrap(), value.is_some());
        assert_eq!(found, value.as_deref().unwrap_or_default());
    }
    for length in [1, 2, 31, 32, 33, 100] {
        for pairs in pairs.chunks(length) {
            let keys: Vec<&[u8]> = pairs.iter().map(|(key, _)| key.as_slice()).collect();
            let mut answers = 0;
            let mut answer = |place: usize, value: Option<&[u8]>| {
                assert_eq!(value, pairs[place].1.as_deref());
                answers += 1;
            };
            table.get_many(&keys, &mut answer).unwrap();
            assert_eq!(answers, pairs.len());
        }
    }
}

#[test]
fn words_are_read_alone_and_in_batches() {
    // Fails if a batch leaves the answer of the batch before, or asks for the wrong key again where
    // a home does not know the answer: of one hash in forty, in a table that has grown.
    let table = table(Form::WORDS);
    (0..50_000).for_each(|key| assert!(table.insert_word(2 * key, key).unwrap()));
    let expected = |key: u64| (key.is_multiple_of(2) && key < 100_000).then_some(key / 2);
    let keys: Vec<u64> = (0..110_000).collect();
    assert!(keys.iter().all(|key| table.get_word(*key).unwrap() == expected(*key)));
    for length in [1, 31, 32, 33, 1000] {
        for keys in keys.chunks(length) {
            let mut values = vec![Some(1); keys.len()];
            table.get_words(keys, &mut values).unwrap();
            assert!(keys.iter().zip(values).all(|(key, value)| value == expected(*key)));
        }
    }
}

#[test]
fn a_key_of_another_length_is_absent_whatever_its_hash_is() {
    // Fails if a key that no pair of the form can have is looked for: its hash may be that of a
    // pair, and it has no words to compare.
    let table = table(Form::WORDS);
    (0..20_000).for_each(|key| assert!(table.insert_word(key, key).unwrap()));
    let fits = |key: &[u8]| {
        let hash = table.hash(key);
        let found = table.shard(hash).0.search_home(hash, None);
        found.flatten().is_some_and(|word| word.place() != Addr::NULL)
    };
    let key = (0u32..).map(u32::to_le_bytes).find(|key| fits(key)).unwrap();
    assert!(!table.get(&key, &mut Vec::new()).unwrap() && !table.contains(&key).unwrap());
    table.get_many(&[&key], &mut |_, value| assert!(value.is_none())).unwrap();
    assert!(!table.remove(&key).unwrap());
    assert_eq!(table.remove_many(&[&key]).unwrap(), 0);
    table.atomic().unwrap().write_all(&[(&key, None)]).unwrap();
    assert_eq!(table.len().unwrap(), 20_000);
}

#[test]
fn a_key_of_another_length_has_no_value() {
    // Fails if the value of the last look-up stays where the caller expects that of this one.
    let (table, mut value) = (table(Form::WORDS), vec![7; 8]);
    assert!(!Table::get(&table, b"short", &mut value).unwrap() && value.is_empty());
}
