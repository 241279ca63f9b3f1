//! Objects: each is told apart from all that is nearly the same.

use everhash_index::Form;
use everhash_pmem::{Addr, Image, Region, Std};

use crate::reef::layout::Kind;
use crate::reef::objects::{Look, Objects};

/// Returns so many bytes that differ from one another.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| place as u8 ^ 0x5a).collect()
}

/// Looks at an object by its own key, by keys that differ in one byte, and when it is a tombstone.
fn told_apart(form: Form, (key_bytes, value_bytes): (usize, usize)) {
    let region = Region::new(Image::<Std>::new(8 << 10, 8 << 10));
    let (pm, objects, place) = (region.access(), Objects::new(form), (Addr::new(1024), 77));
    let (key, value) = (bytes(key_bytes), bytes(value_bytes));
    let store = |kind: Kind, value: &[u8]| {
        objects.write(&pm, place, (kind, kind.code()), &key, value).unwrap();
    };
    let look = |key: &[u8]| {
        let mut found = Vec::new();
        let looks = [None, Some(&mut found)].map(|it| objects.look(&pm, place, key, it).unwrap());
        assert_eq!(looks[0], looks[1], "with and without the value");
        (looks[0], found)
    };
    store(Kind::Put, &value);
    let words = objects.words(Kind::Put, &key, &value);
    assert_eq!(look(&key), (Look::Equal(words), value.clone()), "{form}, {key_bytes} bytes");
    for byte in 0..key_bytes {
        let mut other = key.clone();
        other[byte] ^= 0x80;
        assert_eq!(look(&other).0, Look::Other, "{form}, byte {byte} of {key_bytes}");
    }
    store(Kind::Removed, &[]);
    assert_eq!(look(&key).0, Look::Unsound, "{form}, {key_bytes} bytes");
}

#[test]
fn a_key_that_differs_anywhere_is_another_one() {
    // Fails if a part of a key is compared only, or if a tombstone passes for a pair: tags of the
    // directory may be alike, so that nobody else compares.
    told_apart(Form::WORDS, (8, 8));
    told_apart(Form::DOUBLE_WORDS, (16, 16));
    for key_bytes in [1, 7, 8, 63, 64, 65, 130, 300] {
        [0, 5, 300].into_iter().for_each(|value| told_apart(Form::Variable, (key_bytes, value)));
    }
}

#[test]
fn a_word_is_that_of_its_key_alone() {
    // Fails if one of the ways to a word takes the pair of another key for it.
    let region = Region::new(Image::<Std>::new(8 << 10, 8 << 10));
    let (pm, objects, place) = (region.access(), Objects::new(Form::WORDS), (Addr::new(1024), 77));
    let [key, value] = [5u64, 6].map(u64::to_le_bytes);
    objects.write(&pm, place, (Kind::Put, Kind::Put.code()), &key, &value).unwrap();
    assert_eq!(objects.word_of(&pm, place, 5), Some(6));
    assert_eq!(objects.word_of(&pm, place, 4), None);
    assert_eq!(objects.look_word(&pm, place, 5).unwrap(), (Look::Equal(3), 6));
    assert_eq!(objects.look_word(&pm, place, 4).unwrap().0, Look::Other);
    let elsewhere = (place.0, 78);
    assert_eq!(objects.word_of(&pm, elsewhere, 5), None, "of another segment");
    assert_eq!(objects.look_word(&pm, elsewhere, 5).unwrap().0, Look::Unsound);
}
