//! Growing, reusing, and running out of room.

use core::time::Duration;

use everhash_index::{Change, Design, Form, Table};
use everhash_pmem::{Image, Media};

use super::{holds, load, roomy};
use crate::Failure;
use crate::OpenTable;
use crate::failure::ensure;
use crate::model::{Pairs, check_pool};
use crate::settle;
use crate::workload::Shape;

/// To what length the medium can grow that shall become full. Unit: bytes.
const SMALL_BYTES: u64 = 128 << 10;

/// The same of a medium on which many writes are refused. Unit: bytes. Source: ours; hundreds of
/// tiny segments or logs.
const REFUSING_BYTES: u64 = 512 << 10;

/// So many writes in a row are refused there. Source: ours; each may take some of the room that is
/// kept for removals.
const REFUSED: u32 = 1000;

/// How often a table is filled and emptied in every way.
const ROUNDS: usize = 24;

pub(super) fn a_growing_table_keeps_every_pair(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    // What does not grow says so, and is judged up to that.
    let limit = if design.capabilities.grows { 1500 } else { 100 };
    let mut pairs = Pairs::new();
    let mut now = Duration::ZERO;
    for first in (0..limit).step_by(100) {
        pairs.extend(load(session.table(), &shape, first..first + 100, 0)?);
        match first / 100 % 4 {
            1 => session.kill()?,
            2 => now = settle(session.table(), now, 64)?,
            3 => session.reopen()?,
            _ => {}
        }
        holds(&session, &shape, &pairs)?;
    }
    let steps = session.table().stats()?;
    ensure!(
        steps.items == pairs.len() as u64 || !design.capabilities.exact_len,
        "items: {steps:?}"
    );
    Ok(())
}

pub(super) fn space_is_used_again(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut now = Duration::ZERO;
    let mut lengths = Vec::new();
    for round in 0..32u32 {
        load(session.table(), &shape, 0..80, round * 100)?;
        // At first with restarts, after which all is free that is not reached; then without.
        if round % 3 == 2 && round < 8 {
            session.kill()?;
        }
        load(session.table(), &shape, 0..80, round * 100 + 50)?;
        for number in 0..80 {
            session.table().remove(&shape.key(number))?;
        }
        now = settle(session.table(), now, 64)?;
        lengths.push(session.region().media().bytes());
    }
    holds(&session, &shape, &Pairs::new())?;
    let (settled, last) = (lengths[11], lengths[31]);
    ensure!(last <= settled, "the same pairs again and again: {settled} bytes, then {last}");
    Ok(())
}

pub(super) fn no_operation_keeps_what_it_took(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let (mut now, mut settled) = (Duration::ZERO, Vec::new());
    for round in 0..ROUNDS {
        let value = |number: u32| shape.value(round as u32 * 100 + number);
        for (number, times) in (0..60u16).zip(0u32..) {
            let (key, first, second) = (shape.key(number), value(times), value(times + 50));
            match number % 4 {
                0 => drop(table.insert(&key, &first)?),
                1 => table.modify(&key, &mut |_| Change::Put(first.clone()))?,
                2 => drop(table.insert_many(&[(&key, &first)])?),
                _ => drop(table.put_many(&[(&key, &first)])?),
            }
            table.modify(&shape.key(number + 100), &mut |_| Change::Keep)?;
            table.modify(&shape.key(number + 100), &mut |_| Change::Remove)?;
            ensure!(!table.update(&shape.key(number + 100), &first)?, "an absent key was updated");
            ensure!(!table.insert(&key, &second)?, "a present key was inserted");
            match number % 3 {
                0 => drop(table.update(&key, &second)?),
                1 => table.modify(&key, &mut |_| Change::Put(second.clone()))?,
                _ => drop(table.put(&key, &second)?),
            }
        }
        let keys: Vec<_> = (0..60).map(|number| shape.key(number)).collect();
        match round % 4 {
            0 => table.clear()?,
            1 => drop(table.remove_many(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())?),
            2 => keys.iter().try_for_each(|key| table.modify(key, &mut |_| Change::Remove))?,
            _ => keys.iter().try_for_each(|key| table.remove(key).map(drop))?,
        }
        now = settle(table, now, 64)?;
        table.sync()?;
        now = settle(table, now, 64)?;
        let stats = table.stats()?;
        settled.push((stats.used_bytes, stats.live_bytes));
    }
    holds(&session, &shape, &Pairs::new())?;
    // By then a table has the size that these pairs need.
    let (first, last) = settled.split_at(ROUNDS / 2);
    let most = |of: fn(&(u64, u64)) -> u64, part: &[(u64, u64)]| part.iter().map(of).max();
    ensure!(most(|it| it.0, last) <= most(|it| it.0, first), "space is lost: {settled:?}");
    ensure!(most(|it| it.1, last) <= most(|it| it.1, first), "bytes stay alive: {settled:?}");
    Ok(())
}

pub(super) fn a_full_medium_is_an_error_and_no_end(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let mut session = OpenTable::tiny(design, form, SMALL_BYTES)?;
    // Pairs of one length: what one removal frees, one insert may need.
    let shape = Shape { longest_key: 8, longest_value: 40, ..Shape::tiny(form) };
    let key = |number: u32| even_key(&shape, number);
    let value = shape.value(12);
    let numbers = fill(session.table(), &shape, &value, 1)?;
    let full = numbers.len() as u32;
    let mut pairs: Pairs = numbers.into_iter().map(|number| (key(number), value.clone())).collect();
    ensure!(!pairs.is_empty(), "a medium of {SMALL_BYTES} bytes is too small for one pair");
    ensure!(!session.table().contains(&key(full))?, "a pair that met a full medium is there");
    holds(&session, &shape, &pairs)?;
    // A write that meets a full medium leaves its key as it was.
    for number in 0..full.min(60) {
        let (key, other) = (key(number), shape.value(25 + number * 130));
        match session.table().put(&key, &other) {
            Ok(true) => drop(pairs.insert(key, other)),
            Ok(false) => return Err(Failure::new("put of a present key said no")),
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error.into()),
        }
    }
    holds(&session, &shape, &pairs)?;
    // Recovery of a full medium must not need room that is not there.
    session.kill()?;
    holds(&session, &shape, &pairs)?;
    session.reopen()?;
    holds(&session, &shape, &pairs)?;
    let removed = full.div_ceil(2);
    for number in 0..removed {
        ensure!(session.table().remove(&key(number))?, "a full table does not remove");
        pairs.remove(&key(number));
    }
    settle(session.table(), Duration::ZERO, 64)?;
    holds(&session, &shape, &pairs)?;
    for number in 0..removed.div_ceil(4) {
        let added = session.table().insert(&key(number), &value)?;
        ensure!(added, "after {removed} removes, insert {number} said no");
        pairs.insert(key(number), value.clone());
    }
    holds(&session, &shape, &pairs)?;
    session.close()?;
    ensure!(check_pool(design, session.region())? == pairs, "the check found other pairs");
    Ok(())
}

pub(super) fn a_table_that_refused_many_writes_is_emptied(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (OpenTable::tiny(design, form, REFUSING_BYTES)?, Shape::tiny(form));
    // Short pairs: a segment or a log has many of them, and their tombstones are as long.
    let value = match form {
        Form::Variable => Vec::new(),
        Form::Fixed { .. } => shape.value(12),
    };
    let mut first = None;
    for _ in 0..2 {
        let numbers = fill(session.table(), &shape, &value, REFUSED)?;
        let (count, all) = (numbers.len(), *first.get_or_insert(numbers.len()));
        ensure!(count >= all / 4 * 3, "of {all} pairs that were removed {count} fit again");
        for number in numbers {
            let removed = session.table().remove(&even_key(&shape, number))?;
            ensure!(removed, "remove of a present key said no");
        }
        holds(&session, &shape, &Pairs::new())?;
    }
    Ok(())
}

/// Inserts pairs with one value and the keys of numbers from 0 on until so many in a row are
/// refused; returns the numbers of those that were not.
fn fill(
    table: &dyn Table,
    shape: &Shape,
    value: &[u8],
    refusals: u32,
) -> Result<Vec<u32>, Failure> {
    let (mut numbers, mut refused) = (Vec::new(), 0);
    for number in 0..1_000_000 {
        match table.insert(&even_key(shape, number), value) {
            Ok(true) => {
                numbers.push(number);
                refused = 0;
            }
            Ok(false) => return Err(Failure::new("insert of an absent key said no")),
            Err(error) if error.is_full() => refused += 1,
            Err(error) => return Err(error.into()),
        }
        if refused == refusals {
            return Ok(numbers);
        }
    }
    Err(Failure::new("a small medium holds a million pairs"))
}

/// Returns a key of a length that all keys here share, from more numbers than a shape has.
fn even_key(shape: &Shape, number: u32) -> Vec<u8> {
    match shape.form {
        Form::Fixed { key_bytes, .. } => {
            let mut key = vec![0; key_bytes as usize];
            let count = key.len().min(4);
            key[..count].copy_from_slice(&number.to_be_bytes()[4 - count..]);
            key
        }
        Form::Variable => format!("{number:08}").into_bytes(),
    }
}
