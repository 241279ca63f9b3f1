//! Damaged and hostile pools: an error or the right answers, and never a panic.

use std::collections::BTreeMap;
use std::time::Duration;

use everhash_index::{Cursor, Engine, Error, Form, Inline, Opening, Result, Table, create, open};
use everhash_pmem::pool::DATA;
use everhash_pmem::{Image, Region, Std};

use crate::walsh::Walsh;
use crate::walsh::layout::AreaRecord;

/// Every how many bits one is flipped: odd, so that every place in a word has its turn.
const STEP: usize = 7;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pairs of the pool that is damaged: enough for chains, full logs and a rehash.
const PAIRS: u64 = 16;

fn pair(form: Form, i: u64) -> (Vec<u8>, Vec<u8>) {
    let word = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
    match form {
        Form::DOUBLE_WORDS => (word.repeat(2), word.repeat(2)),
        Form::Variable => (word[..3 + i as usize % 5].to_vec(), word.repeat(1 + i as usize % 4)),
        _ => (word.clone(), word),
    }
}

/// Makes a pool; returns its words and what it holds.
fn pool(form: Form, close: bool) -> (Vec<u64>, Pairs) {
    let region = Region::new(Image::<Std>::new(0, 64 << 10));
    let opening = Opening { form, ..Opening::default() };
    let table = create::<Walsh, _>(region.clone(), &opening, &Walsh::tiny(form), &Inline).unwrap();
    let mut pairs = Pairs::new();
    for i in 0..PAIRS {
        let (key, value) = pair(form, i);
        table.insert(&key, &value).unwrap();
        pairs.insert(key, value);
    }
    let (key, _) = pair(form, 3);
    table.remove(&key).unwrap();
    pairs.remove(&key);
    if close {
        Box::new(table).close().unwrap();
    }
    (region.media().words(), pairs)
}

/// Opens a pool, reads all of it, and works on: every answer may be an error.
fn read_and_work(words: &[u64], form: Form) -> Result<Pairs> {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes + (64 << 10)));
    let checked = Walsh::check(&region, &mut |_, _| {});
    let table = open::<Walsh, _>(region, Opening::default().boot, &Inline)?;
    let mut pairs = Pairs::new();
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        next = table.scan(cursor, &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
        })?;
    }
    for i in 0..PAIRS {
        let (key, _) = pair(form, i);
        let mut value = Vec::new();
        let found = table.get(&key, &mut value)?.then_some(value);
        assert_eq!(found.as_ref(), pairs.get(&key), "scan and get agree");
    }
    // The judge is stricter than what serves: it reads the records too.
    let items = checked?.items;
    assert!(items >= pairs.len() as u64);
    Ok(pairs)
}

/// Writes to a pool that may be damaged: any error will do.
fn work_on(words: &[u64], form: Form) {
    let bytes = words.len() as u64 * 8;
    let region = Region::new(Image::<Std>::of(words, bytes, bytes + (64 << 10)));
    let Ok(table) = open::<Walsh, _>(region, Opening::default().boot, &Inline) else { return };
    for i in 0..3 * PAIRS {
        let (key, value) = pair(form, i);
        let _ = table.put(&key, &value);
        let _ = table.remove(&pair(form, i / 2).0);
    }
    let _ = table.maintain(Duration::ZERO, 100);
    let _ = table.check();
    let _ = Box::new(table).close();
}

#[test]
fn p06_every_flipped_bit_is_noticed_or_harmless() {
    // Fails if one flipped bit changes an answer. Of a pool that was not closed, the infos of the
    // areas are left out: damage there looks like a crash while one was written.
    for form in super::FORMS {
        for close in [true, false] {
            let (words, pairs) = pool(form, close);
            let records = DATA.word() as usize..DATA.word() as usize + 2 * AreaRecord::WORDS;
            let (mut noticed, mut harmless) = (0u64, 0u64);
            let mut flipped = words.clone();
            for bit in (0..words.len() * 64).step_by(STEP) {
                if !close && records.contains(&(bit / 64)) {
                    continue;
                }
                flipped[bit / 64] ^= 1 << (bit % 64);
                match read_and_work(&flipped, form) {
                    Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => noticed += 1,
                    Err(other) => panic!("bit {bit}: {other}"),
                    Ok(found) if found == pairs => harmless += 1,
                    Ok(found) => panic!("{form}, closed {close}, bit {bit}: {found:?}"),
                }
                if bit % (16 * STEP) == 0 {
                    work_on(&flipped, form);
                }
                flipped[bit / 64] = words[bit / 64];
            }
            println!("{form}, closed {close}: {noticed} noticed, {harmless} harmless");
            assert!(noticed > 1000, "{noticed}");
        }
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
        for _ in 0..2000 {
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
            opened += u32::from(read_and_work(&hostile, form).is_ok());
            work_on(&hostile, form);
        }
        assert!((50..2000).contains(&opened), "{opened}: the images are too broken, or too whole");
    }
}

#[test]
fn p07_a_cut_pool_is_an_error() {
    // Fails if a pool that lost its end opens with fewer pairs, or panics.
    for form in super::FORMS {
        let (words, pairs) = pool(form, true);
        for length in (0..words.len()).step_by(8) {
            match read_and_work(&words[..length], form) {
                Err(_) => {}
                // Only free space was cut off.
                Ok(found) => assert_eq!(found, pairs, "{length}"),
            }
        }
    }
}
