//! Clearing, closing, dropping, and opening again.

use everhash_index::{Change, Design, Error, Form, Inline};
use everhash_pmem::{Image, Media};

use super::{holds, load, roomy};
use crate::failure::ensure;
use crate::model::{Pairs, check_pool, scan_all};
use crate::workload::Shape;
use crate::{Failure, OpenTable};

pub(super) fn clear_leaves_an_empty_table(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    table.clear()?;
    holds(&session, &shape, &Pairs::new())?;
    for round in 0..3 {
        let pairs = load(table, &shape, 0..150, round)?;
        holds(&session, &shape, &pairs)?;
        table.clear()?;
        holds(&session, &shape, &Pairs::new())?;
        ensure!(!table.remove(&shape.key(5))?, "a cleared key was still there to remove");
    }
    Ok(())
}

pub(super) fn a_closed_table_comes_back(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    session.reopen()?;
    holds(&session, &shape, &Pairs::new())?;
    let mut pairs = Pairs::new();
    for round in 0u16..4 {
        pairs.extend(load(session.table(), &shape, round * 30..round * 30 + 60, 0)?);
        session.table().remove(&shape.key(round * 3))?;
        pairs.remove(&shape.key(round * 3));
        session.close()?;
        let found = check_pool(design, session.region())?;
        ensure!(found == pairs, "the check of the closed pool found other pairs");
        session = OpenTable::open(design, session.region().media().clone())?;
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn room_is_used_again_from_open_to_close(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    // Most keys are written seldom and a few again and again, so that some parts of a table are
    // full of what is dead while others hold what nobody touched since an earlier life.
    let mut pairs = load(session.table(), &shape, 100..160, 0)?;
    let (mut used, mut length) = (0, 0);
    for life in 0u32..12 {
        for round in 0..30 {
            pairs.extend(load(session.table(), &shape, 0..6, life * 100 + round)?);
        }
        let seldom = 100 + life as u16;
        pairs.extend(load(session.table(), &shape, seldom..seldom + 2, life)?);
        session.close()?;
        let found = check_pool(design, session.region())?;
        ensure!(found == pairs, "the check of the closed pool found other pairs");
        session = OpenTable::open(design, session.region().media().clone())?;
        let (now, bytes) = (session.table().stats()?.used_bytes, session.region().media().bytes());
        let reachable = session.table().check()?.reachable_bytes;
        ensure!(reachable <= now, "{reachable} bytes are reachable, and only {now} in use");
        if life < 4 {
            (used, length) = (now.max(used), bytes.max(length));
        }
        ensure!(now <= used + used / 2, "{now} bytes are in use in life {life}, before {used}");
        ensure!(bytes <= length + length / 2, "the medium has grown from {length} to {bytes}");
    }
    holds(&session, &shape, &pairs)
}

pub(super) fn a_dropped_table_comes_back(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    session.kill()?;
    let mut pairs = Pairs::new();
    for round in 0u16..6 {
        pairs.extend(load(session.table(), &shape, round * 20..round * 20 + 40, 0)?);
        session.table().remove(&shape.key(round * 3))?;
        pairs.remove(&shape.key(round * 3));
        if round % 2 == 0 {
            session.kill()?;
        } else {
            session.outage()?;
        }
        // Twice: what recovery wrote must itself be recovered.
        session.kill()?;
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn reading_only_changes_nothing(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let pairs = load(session.table(), &shape, 0..70, 0)?;
    let region = session.region().clone();
    let refused = design.open_read_only(region.clone(), &Inline);
    let refused = matches!(refused, Err(Error::Unsupported { .. }));
    ensure!(refused, "a pool that was not closed could be opened for reading only");
    session.close()?;
    let before = region.media().words();
    let table = design.open_read_only(region.clone(), &Inline)?;
    ensure!(scan_all(table.as_ref())? == pairs, "reading only shows other pairs");
    let mut value = Vec::new();
    for (key, expected) in &pairs {
        let found = table.get(key, &mut value)? && value == *expected;
        ensure!(found, "reading only does not find a pair");
    }
    let Some((key, value)) = pairs.first_key_value() else {
        return Err(Failure::new("no pair was loaded"));
    };
    let outcomes = [
        ("insert", table.insert(&shape.key(99), value).map(drop)),
        ("put", table.put(key, value).map(drop)),
        ("update", table.update(key, value).map(drop)),
        ("modify", table.modify(key, &mut |_| Change::Remove)),
        ("remove", table.remove(key).map(drop)),
        ("put_many", table.put_many(&[(key, value)]).map(drop)),
        ("insert_many", table.insert_many(&[(&shape.key(99), value)]).map(drop)),
        ("remove_many", table.remove_many(&[key]).map(drop)),
        ("clear", table.clear()),
    ];
    for (what, outcome) in outcomes {
        let refused = matches!(outcome, Err(Error::Unsupported { .. }));
        ensure!(refused, "reading only does not refuse `{what}`: {outcome:?}");
    }
    table.close()?;
    ensure!(region.media().words() == before, "reading only changed the medium");
    Ok(())
}

pub(super) fn two_tables_are_independent(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (first, second) = (roomy(design, form)?, roomy(design, form)?);
    let shape = Shape::tiny(form);
    let (mut left, mut right) = (Pairs::new(), Pairs::new());
    for round in 0u16..5 {
        left.extend(load(first.table(), &shape, round * 10..round * 10 + 20, 0)?);
        right.extend(load(second.table(), &shape, round * 10 + 5..round * 10 + 15, 1000)?);
        holds(&first, &shape, &left)?;
        holds(&second, &shape, &right)?;
    }
    first.table().clear()?;
    holds(&second, &shape, &right)
}
