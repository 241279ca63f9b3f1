//! The phases of a run: what is done with each key, and what must come back.

use std::time::Instant;

use everhash_index::{Error, Form, Result, Table, WordTable};
use hdrhistogram::Histogram;

use crate::ceilings::Ceiling;
use crate::clock::{Took, timed};
use crate::keys::{Shuffle, key, value};
use crate::report::Latency;

/// One phase of a run, in the order in which they are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Insert every key.
    Load,
    /// Get every key once, in shuffled order.
    Get,
    /// Get as many absent keys.
    GetAbsent,
    /// Get every key once, in batches.
    GetMany,
    /// Update every key once, in shuffled order.
    Update,
    /// Remove every key once, in shuffled order.
    Remove,
    /// Insert every key again, in batches.
    LoadMany,
    /// Update every key once, in shuffled order, in the paper's bare form.
    UpdateBlind,
    /// Remove every key once, in shuffled order, in the paper's bare form.
    RemoveBlind,
    /// Insert every key again, in the paper's bare form.
    LoadBlind,
}

/// Keys of one batched read.
///
/// Unit: keys. Source: ours; many times what one core can keep under way, as programs have them
/// that read in batches at all.
pub(crate) const BATCH: usize = 256;

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Phase; 10] = [
        Phase::Load,
        Phase::Get,
        Phase::GetAbsent,
        Phase::GetMany,
        Phase::Update,
        Phase::Remove,
        Phase::LoadMany,
        Phase::UpdateBlind,
        Phase::RemoveBlind,
        Phase::LoadBlind,
    ];

    /// Returns whether the paper's bare forms are measured, which not every engine has.
    pub fn is_bare(self) -> bool {
        matches!(self, Phase::UpdateBlind | Phase::RemoveBlind | Phase::LoadBlind)
    }

    /// Returns what reports call it.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Load => "insert",
            Phase::Get => "get",
            Phase::GetAbsent => "get absent",
            Phase::GetMany => "get batched",
            Phase::Update => "update",
            Phase::Remove => "remove",
            Phase::LoadMany => "insert batched",
            Phase::UpdateBlind => "update blind",
            Phase::RemoveBlind => "remove blind",
            Phase::LoadBlind => "insert blind",
        }
    }

    /// Returns the ceiling that the phase is compared with: the least that it has to do.
    pub fn ceiling(self) -> Ceiling {
        match self {
            Phase::Load | Phase::LoadMany | Phase::LoadBlind => Ceiling::DoublePersist,
            Phase::Update | Phase::UpdateBlind => Ceiling::DoublePersist,
            Phase::Get | Phase::GetAbsent | Phase::GetMany => Ceiling::Read,
            Phase::Remove | Phase::RemoveBlind => Ceiling::Persist,
        }
    }
}

/// One thread's share of a run: the keys `first..first + count` of `items`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub first: u64,
    pub count: u64,
    pub items: u64,
}

/// What a phase measured on one thread.
pub(crate) struct Measured {
    pub took: Took,
    pub latency: Histogram<u64>,
}

/// One operation in so many is timed on its own. Reading a clock waits for all operations under
/// way, so more of them would slow down those that overlap.
const TIMED_EVERY: u64 = 64;

/// Does one thread's share of a phase.
///
/// # Errors
/// What the table returned; [`Error::Unsupported`] names the phase if an answer was wrong.
pub(crate) fn run_share(table: &dyn Table, phase: Phase, share: Share) -> Result<Measured> {
    let mut latency = Latency::histogram();
    let (done, took) = timed(|| match (phase, table.words()) {
        (Phase::GetMany, Some(words)) => {
            let indices = Shuffle::new(share.count).map(|index| share.first + index);
            batches_of_words(words, indices, BATCH)
        }
        (Phase::GetMany, None) => batches_of_bytes(table, share, get_batch),
        (Phase::LoadMany, _) => batches_of_bytes(table, share, insert_batch),
        (bare, _) if bare.is_bare() => each_blind(table, bare, share, &mut latency),
        (_, Some(words)) => each_word(words, phase, share, &mut latency),
        (_, None) => {
            let mut pair = Pair::new(table.form());
            each(phase, share, &mut latency, |key| pair.one(table, phase, key))
        }
    });
    let wrong = done?;
    if wrong > 0 {
        let what =
            format!("{wrong} wrong answers in phase '{}': the engine is broken", phase.label());
        return Err(Error::Unsupported { what });
    }
    Ok(Measured { took, latency })
}

/// Does `work` for each key of the share and returns how many answers were wrong.
fn each(
    phase: Phase,
    share: Share,
    latency: &mut Histogram<u64>,
    mut work: impl FnMut(u64) -> Result<bool>,
) -> Result<u64> {
    // Absent keys have the numbers behind the last present one.
    let first = share.first + if phase == Phase::GetAbsent { share.items } else { 0 };
    let mut wrong = 0;
    let mut step = 0u64;
    let mut one = |index: u64| -> Result<()> {
        step += 1;
        let key = key(first + index);
        if !step.is_multiple_of(TIMED_EVERY) {
            wrong += u64::from(!work(key)?);
            return Ok(());
        }
        let start = Instant::now();
        wrong += u64::from(!work(key)?);
        latency.saturating_record(start.elapsed().as_nanos() as u64);
        Ok(())
    };
    match phase {
        Phase::Load | Phase::LoadBlind => (0..share.count).try_for_each(&mut one)?,
        _ => Shuffle::new(share.count).try_for_each(&mut one)?,
    }
    Ok(wrong)
}

/// As [`each`], with a loop of its own for each phase: what stands between two gets takes room in
/// the processor's window, and is measured with them.
fn each_word(
    table: &dyn WordTable,
    phase: Phase,
    share: Share,
    latency: &mut Histogram<u64>,
) -> Result<u64> {
    match phase {
        Phase::Load => each(phase, share, latency, |key| table.insert_word(key, value(key, 0))),
        Phase::Get | Phase::GetMany => {
            each(phase, share, latency, |key| Ok(table.get_word(key)? == Some(value(key, 0))))
        }
        Phase::GetAbsent => each(phase, share, latency, |key| Ok(table.get_word(key)?.is_none())),
        Phase::Update => each(phase, share, latency, |key| table.update_word(key, value(key, 1))),
        Phase::Remove => each(phase, share, latency, |key| table.remove_word(key)),
        Phase::LoadMany | Phase::UpdateBlind | Phase::RemoveBlind | Phase::LoadBlind => {
            unreachable!("these have byte strings only")
        }
    }
}

/// As [`each`], of the paper's bare forms, which answer nothing: reading and counting comes after.
fn each_blind(
    table: &dyn Table,
    phase: Phase,
    share: Share,
    latency: &mut Histogram<u64>,
) -> Result<u64> {
    let bare = table.bare().ok_or_else(|| Error::Unsupported {
        what: format!("phase '{}' of an engine without bare forms", phase.label()),
    })?;
    let mut pair = Pair::new(table.form());
    each(phase, share, latency, |key| {
        pair.set(key, u64::from(phase == Phase::UpdateBlind));
        match phase {
            Phase::UpdateBlind => bare.update_blind(&pair.key, &pair.value)?,
            Phase::RemoveBlind => bare.remove_blind(&pair.key)?,
            _ => bare.insert_blind(&pair.key, &pair.value)?,
        }
        Ok(true)
    })
}

/// A pair of byte strings, with its buffers.
pub(crate) struct Pair {
    key: Vec<u8>,
    value: Vec<u8>,
    found: Vec<u8>,
}

impl Pair {
    pub(crate) fn new(form: Form) -> Pair {
        // Byte strings of 16 bytes: comparable with the fixed form of that length.
        let (key, value) = match form {
            Form::Fixed { key_bytes, value_bytes } => (key_bytes as usize, value_bytes as usize),
            Form::Variable => (16, 16),
        };
        Pair { key: vec![0; key], value: vec![0; value], found: Vec::new() }
    }

    pub(crate) fn set(&mut self, number: u64, updates: u64) {
        spread(&mut self.key, number);
        spread(&mut self.value, value(number, updates));
    }

    pub(crate) fn one(&mut self, table: &dyn Table, phase: Phase, key: u64) -> Result<bool> {
        self.set(key, u64::from(phase == Phase::Update));
        self.ask(table, phase)
    }

    /// Does the operation of a phase with the pair that was set.
    pub(crate) fn ask(&mut self, table: &dyn Table, phase: Phase) -> Result<bool> {
        Ok(match phase {
            Phase::Get => table.get(&self.key, &mut self.found)? && self.found == self.value,
            Phase::GetAbsent => !table.get(&self.key, &mut self.found)?,
            Phase::Update => table.update(&self.key, &self.value)?,
            Phase::Remove => table.remove(&self.key)?,
            _ => table.insert(&self.key, &self.value)?,
        })
    }
}

/// Fills `bytes` with copies of `number`.
fn spread(bytes: &mut [u8], number: u64) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
    }
}

/// Reads pairs in calls of `batch` keys; returns how many answers were wrong.
pub(crate) fn batches_of_words(
    table: &dyn WordTable,
    mut indices: impl Iterator<Item = u64>,
    batch: usize,
) -> Result<u64> {
    let mut keys = Vec::with_capacity(batch);
    let mut values = vec![None; batch];
    let mut wrong = 0;
    // Ends: each round takes at least one of the indices.
    loop {
        keys.clear();
        keys.extend(indices.by_ref().take(batch).map(key));
        if keys.is_empty() {
            return Ok(wrong);
        }
        table.get_words(&keys, &mut values[..keys.len()])?;
        for (key, found) in keys.iter().zip(&values) {
            wrong += u64::from(*found != Some(value(*key, 0)));
        }
    }
}

/// Does `work` with all pairs in batches; returns how many answers were wrong.
fn batches_of_bytes(
    table: &dyn Table,
    share: Share,
    work: impl Fn(&dyn Table, &[Pair]) -> Result<u64>,
) -> Result<u64> {
    let mut wrong = 0;
    let mut shuffle = Shuffle::new(share.count);
    let mut pairs: Vec<_> = (0..BATCH).map(|_| Pair::new(table.form())).collect();
    // Ends: each round takes at least one of `count` keys.
    loop {
        let mut taken = 0;
        for (pair, index) in pairs.iter_mut().zip(shuffle.by_ref()) {
            pair.set(key(share.first + index), 0);
            taken += 1;
        }
        if taken == 0 {
            return Ok(wrong);
        }
        wrong += work(table, &pairs[..taken])?;
    }
}

pub(crate) fn get_batch(table: &dyn Table, pairs: &[Pair]) -> Result<u64> {
    let keys: Vec<_> = pairs.iter().map(|pair| pair.key.as_slice()).collect();
    let mut wrong = 0;
    table.get_many(&keys, &mut |position, found| {
        wrong += u64::from(found != Some(pairs[position].value.as_slice()));
    })?;
    Ok(wrong)
}

fn insert_batch(table: &dyn Table, pairs: &[Pair]) -> Result<u64> {
    let slices: Vec<_> = pairs.iter().map(|pair| (&pair.key[..], &pair.value[..])).collect();
    Ok(pairs.len() as u64 - table.insert_many(&slices)?)
}

#[cfg(test)]
mod tests {
    use everhash_testkit::reference::Reference;

    use super::*;
    use crate::medium::make;
    use crate::{Candidate, Plan};

    #[test]
    fn a_phase_does_what_it_is_called_to_its_own_share() {
        // Fails if an update stored the value that was there, which no answer tells, or if a thread
        // worked on the keys of another one, which are not there here.
        for form in [Form::WORDS, Form::DOUBLE_WORDS] {
            let plan = Plan { form, ..Plan::of(200) };
            let table = make(&plan, &Candidate::of::<Reference>().in_memory).unwrap();
            let share = Share { first: 100, count: 100, items: 200 };
            for (phase, updates) in [
                (Phase::Load, Some(0)),
                (Phase::Get, Some(0)),
                (Phase::GetAbsent, Some(0)),
                (Phase::GetMany, Some(0)),
                (Phase::Update, Some(1)),
                (Phase::Remove, None),
                (Phase::LoadMany, Some(0)),
                (Phase::UpdateBlind, Some(1)),
                (Phase::RemoveBlind, None),
                (Phase::LoadBlind, Some(0)),
            ] {
                run_share(table.as_ref(), phase, share).unwrap();
                let mut pair = Pair::new(form);
                for index in 100..200 {
                    pair.set(key(index), updates.unwrap_or(0));
                    let asked = if updates.is_some() { Phase::Get } else { Phase::GetAbsent };
                    assert!(pair.ask(table.as_ref(), asked).unwrap(), "{form}, {phase:?}, {index}");
                }
                let count = if updates.is_some() { 100 } else { 0 };
                assert_eq!(table.len().unwrap(), count, "{form}, {phase:?}");
            }
        }
    }
}
