//! Damaged and hostile pools: an error or the right answers, and never a panic.

use std::collections::BTreeMap;
use std::time::Duration;

use everhash_index::{Cursor, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::{Boot, Image, Region, Std};

use crate::turbo::{Turbo, TurboSettings};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Space for growth in a pool that is damaged.
///
/// Unit: bytes. Source: ours; enough for all shards at twice their size.
const MORE_BYTES: u64 = 256 << 10;

/// Makes a pool of some pairs, deleted slots and moved shards.
fn pool(form: Form, close: bool) -> (Vec<u64>, Pairs) {
    let region = Region::new(Image::<Std>::new(0, MORE_BYTES));
    let opening = Opening { form, ..Opening::default() };
    let settings = TurboSettings::tiny();
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
    if close {
        Box::new(table).close().unwrap();
    }
    (region.media().words(), pairs)
}

fn pair(form: Form, i: u64) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = ((i * 77).to_le_bytes().to_vec(), (i << 20).to_le_bytes().to_vec());
    match form {
        Form::WORDS => (key, value),
        Form::DOUBLE_WORDS => (key.repeat(2), value.repeat(2)),
        _ => (key, value.repeat(1 + i as usize % 5)),
    }
}

fn reopen(words: &[u64]) -> Result<impl Table> {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes + MORE_BYTES));
    open::<Turbo, _>(region, Boot([9, 9]), &Inline)
}

/// Reads everything out in every way there is, and works on.
fn read_out(words: &[u64], form: Form, pairs: &Pairs) -> Result<Pairs> {
    let table = reopen(words)?;
    let mut found = Pairs::new();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
        })?;
    }
    let mut value = Vec::new();
    for (key, expected) in pairs {
        assert!(table.get(key, &mut value)?, "a key is lost without a word");
        assert_eq!(&value, expected, "a wrong value");
    }
    assert!(!table.get(&pair(form, 1000).0, &mut value)?);
    assert_eq!(table.len()?, pairs.len() as u64);
    (100..124).try_for_each(|i| {
        let (key, value) = pair(form, i);
        table.put(&key, &value).map(drop)
    })?;
    assert_eq!(table.check()?.items, pairs.len() as u64 + 24);
    Ok(found)
}

/// Asks a pool that may hold anything for everything: any result or error will do.
fn work_on(words: &[u64], form: Form) -> bool {
    let Ok(table) = reopen(words) else { return false };
    let mut next = Some(Cursor::default());
    // Bounded here as a caller would: a scan that never ends fails the test by its time.
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |_, _| {}).unwrap_or_default();
    }
    for i in 0..48 {
        let (key, value) = pair(form, i);
        let _ = table.get(&key, &mut Vec::new());
        let _ = table.put(&key, &value);
        let _ = table.remove(&pair(form, i / 2).0);
    }
    let _ = table.maintain(Duration::ZERO, 100);
    let _ = table.len();
    let _ = table.check();
    let _ = table.clear();
    Box::new(table).close().is_ok()
}

#[test]
fn p06_every_flipped_bit_is_noticed_or_makes_no_difference() {
    // Fails if a flipped bit makes a wrong answer, a panic or an endless loop; keys and values of
    // fixed forms are not exempt.
    for (form, close) in super::FORMS.into_iter().zip([true, false, true]) {
        let (mut words, pairs) = pool(form, close);
        assert_eq!(read_out(&words, form, &pairs).unwrap(), pairs);
        let (mut noticed, mut harmless) = (0, 0);
        for bit in 0..words.len() * 64 {
            let whole = words[bit / 64];
            // Most words of the pool are zero, and no word of ours: one bit of each is enough.
            if whole == 0 && bit % 64 != bit / 64 % 64 {
                continue;
            }
            words[bit / 64] ^= 1 << (bit % 64);
            match read_out(&words, form, &pairs) {
                Ok(found) => {
                    assert_eq!(found, pairs, "{form}: bit {} of word {}", bit % 64, bit / 64);
                    harmless += 1;
                }
                Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => noticed += 1,
                Err(other) => panic!("{form}: bit {bit}: {other}"),
            }
            words[bit / 64] = whole;
        }
        println!("{form}, closed {close}: {noticed} flips noticed, {harmless} without effect");
        // Less than the structure words and the live slots have bits.
        assert!(noticed > 19 * 128 + 1000 && harmless > 1000);
    }
}

#[test]
fn p07_no_image_makes_it_panic_or_hang() {
    // Fails if a number from the medium is used before it is bounded: words are exchanged for one
    // another, for zero and for random ones, so that many structures stay plausible.
    let mut random = 1u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    for form in super::FORMS {
        let (words, _) = pool(form, false);
        let mut opened = 0;
        for _ in 0..4000 {
            let mut hostile = words.clone();
            for _ in 0..=draw(3) {
                // Behind the header, whose checksum would refuse it.
                let (to, from) = (64 + draw(words.len() as u64 - 64), draw(words.len() as u64));
                hostile[to as usize] = match draw(4) {
                    0 => 0,
                    1 => draw(u32::MAX.into()) << 32 | draw(u32::MAX.into()),
                    _ => hostile[from as usize],
                };
            }
            opened += u32::from(work_on(&hostile, form));
        }
        println!("{form}: {opened} of 4000 images opened");
        assert!((100..4000).contains(&opened), "{opened}: the images are too broken, or too whole");
    }
}

#[test]
fn p07_a_cut_pool_is_an_error() {
    // Fails if a pool that lost its end opens with fewer pairs, or panics.
    for form in super::FORMS {
        let (words, pairs) = pool(form, true);
        for length in (0..words.len()).step_by(8) {
            match read_out(&words[..length], form, &pairs) {
                Err(_) => {}
                // Only free space was cut off.
                Ok(found) => assert_eq!(found, pairs, "{length}"),
            }
        }
    }
}
