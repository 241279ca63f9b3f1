//! Clearing, closing, dropping, and opening again.

use everhash_index::{Engine, Error, Form, Inline, Table};

use super::{holds, load, roomy};
use crate::Complaint;
use crate::complaint::ensure;
use crate::model::{Pairs, check_pool, scan_all};
use crate::workload::Shape;

pub(super) fn clear_leaves_an_empty_table<E: Engine>(form: Form) -> Result<(), Complaint> {
    let (session, shape) = (roomy::<E>(form)?, Shape::tiny(form));
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

pub(super) fn a_closed_table_comes_back<E: Engine>(form: Form) -> Result<(), Complaint> {
    let (mut session, shape) = (roomy::<E>(form)?, Shape::tiny(form));
    session.reopen()?;
    holds(&session, &shape, &Pairs::new())?;
    let mut pairs = Pairs::new();
    for round in 0u16..4 {
        pairs.extend(load(session.table(), &shape, round * 30..round * 30 + 60, 0)?);
        session.table().remove(&shape.key(round * 3))?;
        pairs.remove(&shape.key(round * 3));
        session.close()?;
        let found = check_pool::<E, _>(session.region())?;
        ensure!(found == pairs, "the check of the closed pool found other pairs");
        session = crate::session::Session::open(session.region().media().clone(), form)?;
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn a_dropped_table_comes_back<E: Engine>(form: Form) -> Result<(), Complaint> {
    let (mut session, shape) = (roomy::<E>(form)?, Shape::tiny(form));
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

pub(super) fn reading_only_changes_nothing<E: Engine>(form: Form) -> Result<(), Complaint> {
    let (mut session, shape) = (roomy::<E>(form)?, Shape::tiny(form));
    let pairs = load(session.table(), &shape, 0..70, 0)?;
    let region = session.region().clone();
    let refused = everhash_index::open_read_only::<E, _>(region.clone(), &Inline);
    let refused = matches!(refused, Err(Error::Unsupported { .. }));
    ensure!(refused, "a pool that was not closed could be opened for reading only");
    session.close()?;
    let before = region.media().words();
    let table = Box::new(everhash_index::open_read_only::<E, _>(region.clone(), &Inline)?);
    ensure!(scan_all(table.as_ref())? == pairs, "reading only shows other pairs");
    let mut value = Vec::new();
    for (key, expected) in &pairs {
        let found = table.get(key, &mut value)? && value == *expected;
        ensure!(found, "reading only does not find a pair");
    }
    table.close()?;
    ensure!(region.media().words() == before, "reading only changed the medium");
    Ok(())
}

pub(super) fn two_tables_are_independent<E: Engine>(form: Form) -> Result<(), Complaint> {
    let (first, second) = (roomy::<E>(form)?, roomy::<E>(form)?);
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
