//! Verifies a pool at rest: reads its pairs, or reports the invariant that is broken.
//!
//! Shares the rulers with the code that serves the table, and nothing else.

use std::collections::BTreeMap;

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, LINE, Media, Pool, Region, Span, WORD, pool};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{
    self, Head, KeyedHash, LINE_WORDS, Line, Listed, MOST_LAYERS, PLACES, Place, ROOT, Root, SLOTS,
    VERSION, is_deleted, is_readable, is_second, is_shadow,
};
use crate::common::check::{
    Budget, corrupt, reachable_bytes, read_record, record_span, verify_root,
};

/// What was read of a pool.
struct Checker<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    layers: Vec<Place>,
    line_slots: usize,
    /// Logarithm of the number of parts in which the pool is read.
    parts_log: u32,
    /// What is in use, and bit i: a slot of layer i leads there. A record is there once, however
    /// many copies lead to it.
    spans: BTreeMap<Span, u64>,
    budget: Budget,
}

/// A copy of a key.
struct Copy {
    rank: usize,
    at: Addr,
    state: u16,
    /// The checksum of the value.
    sum: u64,
}

/// The copies of a key, the topmost first.
struct Column {
    /// The value of the topmost copy.
    value: Vec<u8>,
    copies: Vec<Copy>,
}

/// The copies of every key of a part of the pool.
type Columns = BTreeMap<Vec<u8>, Column>;

/// Visits every pair once. What a crash may leave to be cleaned up later is passed over.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let mut checker = Checker::new(region, &mut Err)?;
    let mut items = 0;
    for part in 0..1 << checker.parts_log {
        let columns = checker.part(part, &mut Err)?;
        for (key, column) in &columns {
            agree(&column.copies)?;
            items += u64::from(column.visit(key, visit));
        }
    }
    let spans = checker.spans.into_keys().collect();
    let reachable_bytes = reachable_bytes(spans, region.media().bytes())?;
    Ok(Checked { items, reachable_bytes })
}

/// As [`check`], but passes over what is damaged in the list of layers, and over lines and slots. A
/// damaged place of a layer costs that layer, and a damaged link the overflow lines behind it; of a
/// key whose newest copy is damaged, an older one may be visited.
/// Copies that contradict one another are reported, and the topmost one is visited: it is what the
/// table would answer.
///
/// # Errors
/// [`Error::Corrupt`] if the root is damaged.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut checker = Checker::new(region, &mut |error| pass_over(Err::<(), _>(error), report))?;
    for part in 0..1 << checker.parts_log {
        let columns = checker.part(part, &mut |error| pass_over(Err::<(), _>(error), report))?;
        for (key, column) in &columns {
            pass_over(agree(&column.copies), report)?;
            column.visit(key, visit);
        }
    }
    Ok(())
}

impl<'a, M: Media> Checker<'a, M> {
    /// Reads the root and the list of layers. `damaged` decides whether damage to that ends it.
    fn new(region: &'a Region<M>, damaged: &mut dyn FnMut(Error) -> Result<()>) -> Result<Self> {
        let identity = Pool::inspect(region)?;
        let pm = region.access();
        let mut root = [0; Root::CHECKSUM + 1];
        pm.read_words(ROOT, &mut root)?;
        verify_root(&root, "tiered", VERSION)?;
        let (layers, line_slots) = (root[Root::LAYERS], root[Root::LINE_SLOTS]);
        let in_range = (2..=MOST_LAYERS as u64).contains(&layers)
            && (1..=SLOTS as u64).contains(&line_slots)
            && root[Root::TOP_PAGES].is_power_of_two();
        if !in_range {
            return Err(corrupt(ROOT, "the settings of a table are in range"));
        }
        let mut checker = Checker {
            pm,
            form: Form::from_code(identity.form),
            hasher: KeyedHash::of(&identity)?,
            layers: Vec::new(),
            line_slots: line_slots as usize,
            parts_log: layout::groups_log(root[Root::TOP_PAGES]),
            spans: BTreeMap::from([(Span::of_bytes(Addr::NULL, pool::DATA.byte()), 0)]),
            budget: Budget::behind_header(region.media().bytes()),
        };
        checker.read_layers(layers as usize, damaged)?;
        Ok(checker)
    }

    fn read_layers(
        &mut self,
        usual: usize,
        damaged: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        let mut has_ended = false;
        for index in 0..PLACES {
            let at = layout::place_at(index);
            let Some(listed) = Listed::decode(self.pm.load(at)?, at) else {
                damaged(corrupt(at, "the place of a layer matches its check"))?;
                continue;
            };
            let is_unused = listed == Listed::Unused;
            if core::mem::replace(&mut has_ended, is_unused) && !is_unused {
                damaged(corrupt(at, "layers follow one another"))?;
            }
            if let Err(error) = self.read_place(listed, at) {
                damaged(error)?;
            }
        }
        match (usual..=usual + 1).contains(&self.layers.len()) {
            true => Ok(()),
            false => damaged(corrupt(ROOT, "there are as many layers as settings say")),
        }
    }

    /// Takes a place of the list of layers.
    fn read_place(&mut self, listed: Listed, at: Addr) -> Result<()> {
        match listed {
            Listed::Unused => {}
            Listed::Dropped if self.layers.is_empty() => {}
            Listed::Dropped => return Err(corrupt(at, "the top layer is dropped first")),
            Listed::Live(place) => {
                let is_lower = self.layers.last().is_none_or(|above| above.log() < place.log());
                if !is_lower || place.log() < self.parts_log {
                    return Err(corrupt(at, "each layer is larger than the one above"));
                }
                self.reach(Span::of_bytes(place.start(), place.bytes()))?;
                self.layers.push(place);
            }
        }
        Ok(())
    }

    /// Notes that a span is in use, which lies inside the pool; returns whether that is new. No
    /// more is in use than the pool has room for: a forged one may lead to one place, and to others
    /// inside it, from everywhere.
    fn reach(&mut self, span: Span) -> Result<bool> {
        if span.end_byte() > self.pm.media().bytes() {
            return Err(corrupt(span.start, "everything lies inside the pool"));
        }
        let is_new = !self.spans.contains_key(&span);
        if is_new {
            self.budget.take(span)?;
            self.spans.insert(span, 0);
        }
        Ok(is_new)
    }

    /// Notes that a slot of layer `rank` leads to a record, before that is read: in a forged pool,
    /// one long record may be that of many slots.
    fn reach_record(&mut self, rank: usize, span: Span, at: Addr) -> Result<()> {
        self.reach(span)?;
        let ranks = self.spans.entry(span).or_default();
        match core::mem::replace(ranks, *ranks | 1 << rank) >> rank & 1 {
            0 => Ok(()),
            _ => Err(corrupt(at, "a key is in a layer once")),
        }
    }

    /// Reads the buckets of a part of all layers. `damaged` decides whether damage ends it.
    fn part(&mut self, part: u64, damaged: &mut dyn FnMut(Error) -> Result<()>) -> Result<Columns> {
        let mut columns = Columns::new();
        for rank in 0..self.layers.len() {
            let place = self.layers[rank];
            let shift = place.log() - self.parts_log;
            for index in part << shift..(part + 1) << shift {
                let mut at = place.bucket(index);
                let mut number = 0u64;
                loop {
                    let next = match self.line((rank, index), at, number, &mut columns, damaged) {
                        Ok(next) => next,
                        Err(error) => {
                            damaged(error)?;
                            None
                        }
                    };
                    number += 1;
                    at = match (number, next) {
                        (1, _) => at.plus(LINE / WORD),
                        (_, Some(next)) => next,
                        (_, None) => break,
                    };
                }
            }
        }
        Ok(columns)
    }

    /// Reads a line; returns where its link leads.
    fn line(
        &mut self,
        (rank, index): (usize, u64),
        at: Addr,
        number: u64,
        columns: &mut Columns,
        damaged: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Option<Addr>> {
        let span = Span::new(at, LINE_WORDS as u64);
        if number > 1 && !self.reach(span)? {
            return Err(corrupt(at, "one link leads to an overflow line"));
        }
        let mut words = [0; LINE_WORDS];
        self.pm.read_words(at, &mut words)?;
        match Head::decode(words[Line::HEAD], at) {
            Some(head) if head.is_plausible(self.line_slots) => {
                for slot in (0..SLOTS).filter(|slot| is_readable(head.state(*slot))) {
                    let read =
                        self.slot((rank, index), (&words, at), (slot, head.state(slot)), columns);
                    if let Err(error) = read {
                        damaged(error)?;
                    }
                }
            }
            _ => damaged(corrupt(at, "the flags of a line match their check"))?,
        }
        let target = layout::open_link(words[Line::LINK], at)
            .ok_or(corrupt(at, "a link matches its check"))?;
        Ok((!target.is_null()).then_some(target))
    }

    fn slot(
        &mut self,
        (rank, index): (usize, u64),
        (words, at): (&[u64; LINE_WORDS], Addr),
        (slot, state): (usize, u16),
        columns: &mut Columns,
    ) -> Result<()> {
        let first = layout::slot_word(slot);
        let pair = [words[first], words[first + 1]];
        let (key, value) = match self.form {
            Form::WORDS => (pair[0].to_le_bytes().to_vec(), pair[1].to_le_bytes().to_vec()),
            _ => {
                let at = layout::slot_at(at, slot);
                self.reach_record(rank, record_span(pair, at)?, at)?;
                let (key, value, _) = read_record(&self.pm, &self.hasher, pair, at)?;
                (key, value)
            }
        };
        let hash = self.hasher.bytes(&key);
        if layout::print_of(hash) != layout::print(state) {
            return Err(corrupt(at, "a fingerprint is that of its key"));
        }
        let position = layout::position(hash, is_second(state));
        if layout::bucket_of(position, self.layers[rank].log()) != index {
            return Err(corrupt(at, "a key lies in the bucket it hashes to"));
        }
        let copy = Copy { rank, at, state, sum: xxh3_64(&value) };
        let column = columns.entry(key).or_insert(Column { value, copies: Vec::new() });
        // Before it is kept: a forged pool may lead to one record from everywhere.
        if column.copies.last().is_some_and(|above| above.rank == rank) {
            return Err(corrupt(at, "a key is in a layer once"));
        }
        column.copies.push(copy);
        Ok(())
    }
}

impl Column {
    /// Visits the pair of a key; returns whether it is there.
    fn visit(&self, key: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let is_there = !is_deleted(self.copies[0].state);
        if is_there {
            visit(key, &self.value);
        }
        is_there
    }
}

/// Demands that the copies of a key do not contradict one another.
fn agree(copies: &[Copy]) -> Result<()> {
    for pair in copies.windows(2) {
        if is_second(pair[0].state) != is_second(pair[1].state) {
            return Err(corrupt(pair[1].at, "the copies of a key lie in one column"));
        }
    }
    // Another pair may be written over a shadow at any time: the next copy must equal it.
    for (index, shadow) in copies.iter().enumerate().take_while(|(_, c)| is_shadow(c.state)) {
        let is_safe = match copies.get(index + 1) {
            Some(next) if is_deleted(shadow.state) => is_deleted(next.state),
            Some(next) => !is_deleted(next.state) && next.sum == shadow.sum,
            None => is_deleted(shadow.state),
        };
        if !is_safe {
            return Err(corrupt(shadow.at, "a shadow equals the next copy of its key"));
        }
    }
    Ok(())
}
