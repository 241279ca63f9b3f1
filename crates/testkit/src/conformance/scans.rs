//! What a scan visits.

use std::collections::BTreeSet;

use everhash_index::{Cursor, Design, Form, Table};
use everhash_pmem::Image;

use super::{load, roomy};
use crate::Failure;
use crate::failure::{ensure, show};
use crate::model::{Pairs, scan_all};
use crate::workload::Shape;

/// Keys that are there throughout.
const KEPT: u16 = 40;

pub(super) fn a_scan_visits_every_pair(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    for (from, to) in [(0, 0), (0, 1), (1, 20), (20, 300)] {
        load(table, &shape, from..to, 0)?;
        let found = scan_all(table)?;
        ensure!(found.len() == usize::from(to), "a scan of {to} pairs visited {}", found.len());
        for number in 0..to {
            let value = found.get(&shape.key(number));
            let right = value == Some(&shape.value(u32::from(number)));
            ensure!(right, "a scan showed another value than was put");
        }
    }
    Ok(())
}

pub(super) fn a_cursor_can_be_used_again(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let pairs = load(table, &shape, 0..200, 0)?;
    let mut cursors = vec![];
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursors.push(from);
        ensure!(cursors.len() < 1_000_000, "the scan did not end after a million calls");
        cursor = table.scan(from, &mut |_, _| {})?;
    }
    // From every eighth cursor, and from the last: what was seen before it and what is seen from
    // it on are together everything.
    let mut before = Pairs::new();
    let mut last = Cursor::default();
    for (position, from) in cursors.iter().enumerate() {
        if position > 0 {
            let next = table.scan(last, &mut |key, value| {
                before.insert(key.to_vec(), value.to_vec());
            })?;
            ensure!(next == Some(*from), "the same scan led to another cursor the second time");
        }
        last = *from;
        if position % 8 != 0 && position + 1 != cursors.len() {
            continue;
        }
        let mut all = before.clone();
        let mut cursor = Some(*from);
        while let Some(from) = cursor {
            cursor = table.scan(from, &mut |key, value| {
                all.insert(key.to_vec(), value.to_vec());
            })?;
        }
        ensure!(all == pairs, "a scan that went on from cursor {position} lost a pair");
    }
    Ok(())
}

pub(super) fn a_scan_sees_what_is_there_throughout(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let table = session.table();
    let kept = load(table, &shape, 0..KEPT, 0)?;
    for round in 0..4 {
        let mut seen = BTreeSet::new();
        let mut wrong = None;
        let mut cursor = Some(Cursor::default());
        let mut calls = 0u16;
        while let Some(from) = cursor {
            cursor = table.scan(from, &mut |key, value| {
                if kept.get(key).is_some_and(|kept| kept != value) {
                    wrong = Some(key.to_vec());
                }
                seen.insert(key.to_vec());
            })?;
            calls = calls.saturating_add(1);
            // Writes end after a while, so that the scan can.
            if calls < 60 {
                disturb(table, &shape, calls, round % 2 == 0)?;
            }
        }
        if let Some(key) = wrong {
            let key = show(&key);
            return Err(Failure::new(format!("a scan showed {key} with a wrong value")));
        }
        if let Some(key) = kept.keys().find(|key| !seen.contains(*key)) {
            let key = show(key);
            return Err(Failure::new(format!("a scan missed {key}, which is there throughout")));
        }
    }
    Ok(())
}

/// Lets the table grow, or removes what made it grow.
fn disturb(table: &dyn Table, shape: &Shape, call: u16, grow: bool) -> Result<(), Failure> {
    let first = KEPT + (call - 1) * 12;
    for number in first..first + 12 {
        let key = shape.key(number);
        if grow {
            table.put(&key, &shape.value(u32::from(number)))?;
        } else {
            table.remove(&key)?;
        }
    }
    // One of those that stay is written again, with the value it has.
    let kept = call % KEPT;
    table.put(&shape.key(kept), &shape.value(u32::from(kept)))?;
    Ok(())
}
