//! From operations on a table to histories of keys.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use everhash_index::{Cursor, Table};

use super::history::{Answer, Call, Event};
use super::linear::{Verdict, linearize};
use crate::Failure;
use crate::failure::{ensure, show};
use crate::model::{Outcome, perform};
use crate::workload::{Edit, Op, Shape};

/// What a scan showed, in its order.
type Shown = Vec<(Vec<u8>, Vec<u8>)>;

/// The clock of a history.
pub(super) trait Clock {
    /// Says that an operation is called; returns the time.
    fn begin(&self) -> u64;

    /// Says that the operation called at `begin` returned; returns the time.
    fn end(&self, begin: u64) -> u64;
}

/// The histories of some keys, written by several threads.
pub(super) struct Tracker {
    shape: Shape,
    keys: BTreeMap<Vec<u8>, u16>,
    /// Never held while a table works: under a scheduler the holder must not lose its turn.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Equal bytes have equal numbers; which they are depends on what came first.
    values: HashMap<Vec<u8>, u32>,
    events: BTreeMap<u16, Vec<Event>>,
    initial: BTreeMap<u16, u32>,
}

impl Inner {
    fn number(&mut self, value: &[u8]) -> u32 {
        let next = self.values.len() as u32;
        *self.values.entry(value.to_vec()).or_insert(next)
    }
}

impl Tracker {
    /// Makes empty histories of `keys`.
    pub fn new(shape: Shape, keys: impl IntoIterator<Item = u16>) -> Tracker {
        let keys = keys.into_iter().map(|key| (shape.key(key), key)).collect();
        Tracker { shape, keys, inner: Mutex::default() }
    }

    /// Says that a key has a value before the first operation.
    pub fn begins_with(&self, key: u16, value: &[u8]) {
        self.with(|inner| {
            let value = inner.number(value);
            inner.initial.insert(key, value);
        });
    }

    /// Returns the keys, by their bytes.
    pub fn keys(&self) -> &BTreeMap<Vec<u8>, u16> {
        &self.keys
    }

    /// Performs an operation and writes down what it answered for each key.
    pub fn perform(
        &self,
        table: &dyn Table,
        clock: &impl Clock,
        now: &mut Duration,
        op: &Op,
    ) -> Result<(), Failure> {
        let begin = clock.begin();
        if *op == Op::Scan {
            let pairs = scan(table)?;
            return self.note_scan(begin, clock.end(begin), pairs);
        }
        let outcome = perform(table, &self.shape, now, op)?;
        let end = clock.end(begin);
        self.with(|inner| {
            for (key, call, answer) in self.calls(inner, op, outcome) {
                let event = Event { call, answer: Some(answer), begin, end };
                inner.events.entry(key).or_default().push(event);
            }
        });
        Ok(())
    }

    fn calls(&self, inner: &mut Inner, op: &Op, outcome: Outcome) -> Vec<(u16, Call, Answer)> {
        let answer = match &outcome {
            Outcome::Flag(flag) => Answer::Flag(*flag),
            Outcome::Value(value) => Answer::Value(value.as_ref().map(|v| inner.number(v))),
            _ => Answer::Unknown,
        };
        let mut number = |value: u32| inner.number(&self.shape.value(value));
        match (op, outcome) {
            (Op::Insert(key, value), _) => vec![(*key, Call::Insert(number(*value)), answer)],
            (Op::Put(key, value), _) => vec![(*key, Call::Put(number(*value)), answer)],
            (Op::Update(key, value), _) => vec![(*key, Call::Update(number(*value)), answer)],
            (Op::Modify(key, edit), _) => {
                let edit = match *edit {
                    Edit::Set(value) => Edit::Set(number(value)),
                    Edit::Toggle(value) => Edit::Toggle(number(value)),
                    other => other,
                };
                vec![(*key, Call::Modify(edit), answer)]
            }
            (Op::Remove(key), _) => vec![(*key, Call::Remove, answer)],
            (Op::Get(key), _) => vec![(*key, Call::Get, answer)],
            (Op::Contains(key), _) => vec![(*key, Call::Contains, answer)],
            (Op::GetMany(keys), Outcome::Values(values)) => {
                let answers = values.iter().map(|value| value.as_ref().map(|v| inner.number(v)));
                let pairs = keys.iter().zip(answers);
                pairs.map(|(key, value)| (*key, Call::Get, Answer::Value(value))).collect()
            }
            (Op::PutMany(pairs), _) => pairs
                .iter()
                .map(|(key, value)| (*key, Call::Put(number(*value)), Answer::Unknown))
                .collect(),
            // Each removal is a step of its own.
            (Op::Clear, _) => {
                self.keys.values().map(|key| (*key, Call::Remove, Answer::Unknown)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a scan shows was there at some moment of the scan; what it does not show was not there
    /// throughout.
    fn note_scan(&self, begin: u64, end: u64, pairs: Shown) -> Result<(), Failure> {
        let stranger = pairs.iter().find(|(key, _)| !self.keys.contains_key(key));
        let stranger = stranger.map(|(key, _)| show(key)).unwrap_or_default();
        ensure!(stranger.is_empty(), "a scan showed {stranger}, which was never written");
        self.with(|inner| {
            for (bytes, key) in &self.keys {
                let shown = pairs.iter().filter(|(shown, _)| shown == bytes);
                let mut values: Vec<Option<u32>> =
                    shown.map(|(_, value)| Some(inner.number(value))).collect();
                if values.is_empty() {
                    values.push(None);
                }
                for value in values {
                    let answer = Some(Answer::Value(value));
                    let event = Event { call: Call::Get, answer, begin, end };
                    inner.events.entry(*key).or_default().push(event);
                }
            }
        });
        Ok(())
    }

    /// Checks the history of every key; returns how many the checker could not decide.
    pub fn judge(&self) -> Result<u64, Failure> {
        self.with(|inner| {
            let mut undecided = 0;
            for (key, events) in &inner.events {
                match linearize(inner.initial.get(key).copied(), events) {
                    Verdict::Linearizable => {}
                    Verdict::Undecided => undecided += 1,
                    Verdict::Impossible => {
                        let story = story(inner.initial.get(key).copied(), events);
                        let text =
                            format!("no order explains the answers about key {key}: {story}");
                        return Err(Failure::new(text));
                    }
                }
            }
            Ok(undecided)
        })
    }

    /// Returns whether a crash at `time` may leave `found` as the value of a key.
    pub fn may_leave(&self, key: u16, time: u64, found: Option<&[u8]>) -> Result<(), String> {
        self.with(|inner| {
            let found = found.map(|value| inner.number(value));
            let initial = inner.initial.get(&key).copied();
            let events = inner.events.get(&key).map(Vec::as_slice).unwrap_or_default();
            let mut events: Vec<Event> =
                events.iter().filter_map(|event| event.until(time)).collect();
            let answer = Some(Answer::Value(found));
            events.push(Event { call: Call::Get, answer, begin: u64::MAX - 1, end: u64::MAX });
            match linearize(initial, &events) {
                Verdict::Linearizable => Ok(()),
                Verdict::Impossible => Err(story(initial, &events)),
                // In silence it would pass for an answer.
                Verdict::Undecided => Err("there are too many orders to decide".to_owned()),
            }
        })
    }

    /// Takes the history so far; the next begins with the values that the keys have now.
    pub fn restart(&self, values: &crate::model::Pairs) {
        self.with(|inner| *inner = Inner::default());
        for (bytes, key) in &self.keys {
            if let Some(value) = values.get(bytes) {
                self.begins_with(*key, value);
            }
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Scans beside writes: a key may be shown several times.
fn scan(table: &dyn Table) -> Result<Shown, Failure> {
    let mut pairs = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        cursor = table.scan(from, &mut |key, value| pairs.push((key.to_vec(), value.to_vec())))?;
    }
    Ok(pairs)
}

/// Writes the last events of a history, in the order of their begin.
fn story(initial: Option<u32>, events: &[Event]) -> String {
    const SHOWN: usize = 12;
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.begin);
    let skipped = events.len().saturating_sub(SHOWN);
    let mut lines = vec![match skipped {
        0 => format!("at first {initial:?}"),
        n => format!("after {n} calls"),
    }];
    lines.extend(events[skipped..].iter().map(|Event { call, answer, begin, end }| match answer {
        Some(answer) if *end == u64::MAX => format!("after the crash {call:?} -> {answer:?}"),
        Some(answer) => format!("{begin}..{end} {call:?} -> {answer:?}"),
        None => format!("{begin}.. {call:?}, cut off"),
    }));
    lines.join("; ")
}
