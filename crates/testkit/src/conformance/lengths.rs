//! Keys and values of every length.

use everhash_index::{
    Change, Design, Error, Form, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result as IndexResult, Table,
};
use everhash_pmem::Image;

use super::{holds, load, roomy};
use crate::Failure;
use crate::OpenTable;
use crate::failure::ensure;
use crate::model::Pairs;
use crate::workload::Shape;

/// Lengths around words, lines and the limits of one-byte and two-byte lengths. Unit: bytes.
const LENGTHS: [usize; 13] = [0, 1, 7, 8, 9, 15, 16, 63, 64, 65, 255, 256, 1000];

pub(super) fn another_form_is_refused_by_writes_and_absent_to_reads(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let pairs = load(table, &shape, 0..10, 0)?;
    let (key, value) = (shape.key(3), shape.value(50));
    let longer = |bytes: &[u8]| [bytes, &[0]].concat();
    let keys = [vec![], key[1..].to_vec(), longer(&key), key.repeat(2)];
    for bad in &keys {
        refused(table, bad, &value)?;
        ensure!(!table.get(bad, &mut vec![])?, "get found a key of another length");
        ensure!(!table.contains(bad)?, "contains found a key of another length");
        // Whether this is an absent key or a wrong one, the contract leaves open.
        let removed = table.remove(bad);
        ensure!(
            matches!(removed, Ok(false) | Err(Error::WrongForm { .. })),
            "remove of a key of another length returned {removed:?}"
        );
        let mut seen = None;
        table.get_many(&[&key, bad], &mut |n, value| {
            if n == 1 {
                seen = Some(value.is_none());
            }
        })?;
        ensure!(seen == Some(true), "get_many found a key of another length");
    }
    for bad in [vec![], value[1..].to_vec(), longer(&value), value.repeat(2)] {
        refused(table, &key, &bad)?;
        refused(table, &shape.key(30), &bad)?;
    }
    holds(&session, &shape, &pairs)
}

fn refused(table: &dyn Table, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    let modified = table.modify(key, &mut |_| Change::Put(value.to_vec()));
    let answers: [(&str, IndexResult<()>); 5] = [
        ("insert", table.insert(key, value).map(drop)),
        ("put", table.put(key, value).map(drop)),
        ("update", table.update(key, value).map(drop)),
        ("put_many", table.put_many(&[(key, value)]).map(drop)),
        ("modify", modified),
    ];
    for (operation, answer) in answers {
        let refused = matches!(answer, Err(Error::WrongForm { .. }));
        let (key, value) = (key.len(), value.len());
        ensure!(refused, "{operation} of a pair of {key}/{value} bytes returned {answer:?}");
    }
    Ok(())
}

pub(super) fn every_length_comes_back(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut pairs = Pairs::new();
    for round in 0..3 {
        for (number, key_bytes) in LENGTHS.into_iter().enumerate() {
            // Every length of a value with every length of a key, over the rounds and keys.
            for value_bytes in [LENGTHS[(number + round) % 13], LENGTHS[(number + 5 * round) % 13]]
            {
                let key = vec![b'k'; key_bytes];
                let value = vec![(number * 7 + value_bytes) as u8; value_bytes];
                session.table().put(&key, &value)?;
                pairs.insert(key, value);
            }
        }
        holds(&session, &shape, &pairs)?;
        session.kill()?;
        holds(&session, &shape, &pairs)?;
    }
    ensure!(session.table().remove(&[])?, "the empty key could not be removed");
    pairs.remove(&Vec::new());
    holds(&session, &shape, &pairs)
}

pub(super) fn the_longest_pairs_come_back(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let mut session = OpenTable::tiny(design, form, 160 << 20)?;
    let shape = Shape::tiny(form);
    let pattern = |bytes: usize| (0..bytes).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
    let long: Vec<u8> = pattern(MAX_VALUE_BYTES);
    let mut pairs = Pairs::from([
        (pattern(MAX_KEY_BYTES), pattern(9)),
        (pattern(MAX_KEY_BYTES - 1), pattern(0)),
        (pattern(3), long[1..].to_vec()),
    ]);
    for (key, value) in &pairs {
        ensure!(session.table().insert(key, value)?, "insert of a long pair said no");
    }
    holds(&session, &shape, &pairs)?;
    session.table().put(&pattern(3), &long)?;
    pairs.insert(pattern(3), long);
    session.reopen()?;
    holds(&session, &shape, &pairs)?;
    session.table().put(&pattern(3), b"short again")?;
    pairs.insert(pattern(3), b"short again".to_vec());
    session.kill()?;
    holds(&session, &shape, &pairs)
}

pub(super) fn longer_ones_come_back_or_are_refused(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let session = OpenTable::tiny(design, form, 160 << 20)?;
    let (table, shape) = (session.table(), Shape::tiny(form));
    let mut pairs = load(table, &shape, 0..4, 0)?;
    let key = vec![7; MAX_KEY_BYTES + 1];
    ensure!(!table.get(&key, &mut vec![])?, "a key beyond the limit is there");
    ensure!(!table.contains(&key)?, "a key beyond the limit is there");
    match table.put(&key, b"value") {
        Ok(_) => drop(pairs.insert(key, b"value".to_vec())),
        Err(Error::KeyTooLong { bytes, limit }) => {
            let right = bytes == key.len() && (MAX_KEY_BYTES..bytes).contains(&limit);
            ensure!(right, "a key of {} bytes: {bytes} given, {limit} allowed", key.len());
        }
        Err(error) => return Err(error.into()),
    }
    let value = vec![8; MAX_VALUE_BYTES + 1];
    match table.put(b"key", &value) {
        Ok(_) => drop(pairs.insert(b"key".to_vec(), value)),
        Err(Error::ValueTooLong { bytes, limit }) => {
            let right = bytes == value.len() && (MAX_VALUE_BYTES..bytes).contains(&limit);
            ensure!(right, "a value of {} bytes: {bytes} given, {limit} allowed", value.len());
        }
        Err(error) => return Err(error.into()),
    }
    holds(&session, &shape, &pairs)
}

pub(super) fn a_value_may_look_like_anything(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut pairs = load(session.table(), &shape, 0..12, 0)?;
    for round in 0..3u8 {
        // What lies on the medium right now: headers, directories, buckets, other pairs.
        let words = session.region().media().words();
        let medium: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (number, piece) in medium.chunks(1024).take(40).enumerate() {
            let key = vec![round, number as u8];
            session.table().put(&key, piece)?;
            pairs.insert(key, piece.to_vec());
        }
        for (number, byte) in [0, 0xff].into_iter().enumerate() {
            let (key, value) = (vec![byte; 64 + number], vec![byte; 512]);
            session.table().put(&key, &value)?;
            pairs.insert(key, value);
        }
        if round % 2 == 0 {
            session.kill()?;
        } else {
            session.reopen()?;
        }
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}
