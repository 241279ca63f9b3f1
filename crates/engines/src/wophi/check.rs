//! Verifies a pool at rest: reads its pairs, or reports the invariant that is broken.
//!
//! Shares the ruler with the code that serves the table, and nothing else.

use std::collections::BTreeSet;

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, LINE, Media, Pool, Region, Span, WORD, pool};

use super::layout::{
    self, DoubleBucket, EXTENTS, KeyedHash, Kind, MOST_BUCKETS, NEXT, ROOT, Root, TOKEN, Token,
    VERSION, WordBucket,
};
use crate::common::check::{
    Budget, corrupt, reachable_bytes, read_record, record_span, verify_root,
};

/// What was read of a pool.
struct Checker<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    bucket_words: u64,
    /// Main buckets of extent 0.
    initial: u64,
    /// Where the extents of the main buckets lie.
    main: Vec<Addr>,
    /// The arrays of pre-allocated buckets.
    arrays: Vec<Span>,
    /// Chained buckets that were reached.
    chained: BTreeSet<Addr>,
    /// What is in use, apart from buckets in the arrays.
    spans: Vec<Span>,
    /// What may still be read of records.
    budget: Budget,
    /// Pairs of a lower half that must be in its upper half.
    moved: Vec<Found>,
}

/// A pair that was found, and where.
struct Found {
    key: Vec<u8>,
    value: Vec<u8>,
    token: u64,
    at: Addr,
    record: Option<Span>,
}

impl Found {
    fn by_key(&self, other: &Found) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Visits every pair once, and skips what a crash may leave to recovery.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let mut checker = Checker::new(region)?;
    let (level, lower) = (checker.level(), checker.lower());
    let mut items = 0;
    for index in 0..lower {
        let depth = checker.lower_depth(index)?;
        items += checker.chain(index, (depth, level), visit, &mut Err)?;
        if depth == level && level > 0 {
            items += checker.upper_chain(index + lower, visit, &mut Err)?;
        }
    }
    let reachable_bytes = reachable_bytes(checker.spans, region.media().bytes())?;
    Ok(Checked { items, reachable_bytes })
}

/// As [`check`], but skips pairs that are damaged, and of a chain what lies behind a damaged bucket
/// or link.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut checker = Checker::new(region)?;
    let (level, lower) = (checker.level(), checker.lower());
    for index in 0..lower {
        let depth = checker.lower_depth(index);
        // Where the lower half does not say whether it was split, the upper half may.
        let is_split = level > 0 && depth.as_ref().ok().is_none_or(|depth| *depth == level);
        let mut pass = |error| pass_over(Err::<(), _>(error), report);
        let chain = depth.and_then(|depth| {
            let depths = (depth, level);
            checker.chain(index, depths, visit, &mut pass)
        });
        chain.map(drop).or_else(&mut pass)?;
        checker.moved.clear();
        if is_split {
            let chain = checker.upper_chain(index + lower, visit, &mut pass);
            chain.map(drop).or_else(&mut pass)?;
        }
    }
    Ok(())
}

impl<'a, M: Media> Checker<'a, M> {
    fn new(region: &'a Region<M>) -> Result<Self> {
        let identity = Pool::inspect(region)?;
        let form = Form::from_code(identity.form);
        let bucket_bytes =
            if form == Form::DOUBLE_WORDS { DoubleBucket::BYTES } else { WordBucket::BYTES };
        let mut checker = Checker {
            pm: region.access(),
            form,
            hasher: KeyedHash::of(&identity)?,
            bucket_words: bucket_bytes as u64 / WORD,
            initial: 0,
            main: Vec::new(),
            arrays: Vec::new(),
            chained: BTreeSet::new(),
            spans: vec![Span::of_bytes(Addr::NULL, pool::DATA.byte())],
            budget: Budget::of(region.media().bytes()),
            moved: Vec::new(),
        };
        checker.root()?;
        Ok(checker)
    }

    /// Returns how often the main array has doubled, the last time perhaps not for all buckets.
    fn level(&self) -> u64 {
        self.main.len() as u64 - 1
    }

    /// Returns the number of lower buckets.
    fn lower(&self) -> u64 {
        self.initial << self.level().saturating_sub(1)
    }

    /// Returns how often a lower bucket was split.
    fn lower_depth(&self, index: u64) -> Result<u64> {
        match (self.depth(index)?, self.level()) {
            (depth, level) if depth == level || depth + 1 == level => Ok(depth),
            _ => Err(corrupt(self.main_at(index), "a bucket was split as often as the others")),
        }
    }

    /// As [`Checker::chain`], for the upper half of a bucket that was split.
    fn upper_chain(
        &mut self,
        index: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        pass: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<u64> {
        let level = self.level();
        match self.depth(index)? == level {
            true => self.chain(index, (level, level), visit, pass),
            false => Err(corrupt(self.main_at(index), "both halves of a split have one depth")),
        }
    }

    /// Reads the settings and the list of extents.
    fn root(&mut self) -> Result<()> {
        let mut root = [0; Root::REST];
        self.pm.read_words(ROOT, &mut root)?;
        verify_root(&root[..=Root::CHECKSUM], "wophi", VERSION)?;
        let (initial, divisor) = (root[Root::INITIAL_BUCKETS], root[Root::PAB_DIVISOR]);
        if !initial.is_power_of_two() || initial > MOST_BUCKETS || divisor == 0 {
            return Err(corrupt(ROOT, "the settings of a table are in range"));
        }
        self.initial = initial;
        for extent in 0..EXTENTS {
            let place = layout::extent_link(extent);
            let Some(at) = link(root[Root::EXTENT + extent], place)? else { continue };
            let buckets = layout::extent_buckets(initial, extent);
            if self.main.len() != extent || buckets > MOST_BUCKETS / 2 {
                return Err(corrupt(place, "extents follow one another"));
            }
            let counts = [buckets, layout::pab_buckets(initial, divisor, extent)];
            let [main, pab] = layout::extent_spans(at, counts, self.bucket_words * WORD);
            self.main.push(main.start);
            self.spans.push(main);
            self.arrays.push(pab);
        }
        self.spans.extend(&self.arrays);
        let end = self.spans.iter().map(|span| span.end_byte()).max();
        if self.main.is_empty() || end > Some(self.pm.media().bytes()) {
            return Err(corrupt(layout::extent_link(0), "the extents lie inside the pool"));
        }
        Ok(())
    }

    fn main_at(&self, index: u64) -> Addr {
        let extent = if index < self.initial { 0 } else { (index / self.initial).ilog2() + 1 };
        let first = layout::extent_start(self.initial, extent as usize);
        self.main[extent as usize].plus((index - first) * self.bucket_words)
    }

    fn depth(&self, index: u64) -> Result<u64> {
        let at = self.main_at(index);
        let slots = layout::slots(self.form) as usize;
        match Token::decode(self.pm.load(at.plus(TOKEN as u64))?, at, Kind::Main, slots) {
            Some(token) => Ok(token.home()),
            None => Err(corrupt(at, "a token word matches its check")),
        }
    }

    /// Checks the chain of a main bucket, and visits its pairs; returns how many there are. Asks
    /// `pass` whether to go on past a damaged pair, and with what lies before a damaged bucket.
    fn chain(
        &mut self,
        index: u64,
        (depth, level): (u64, u64),
        visit: &mut dyn FnMut(&[u8], &[u8]),
        pass: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<u64> {
        let count = self.initial << depth;
        let (upper, splits) = (index + count / 2, depth == level && level > 0 && index < count / 2);
        let mut pairs = Vec::new();
        let mut next = Some(self.main_at(index));
        let mut kind = Kind::Main;
        // Ends: a bucket that is reached twice is an error.
        while let Some(at) = next {
            let (words, token) = match self.bucket(at, kind, index) {
                Ok(read) => read,
                Err(damage) => {
                    pass(damage)?;
                    break;
                }
            };
            for slot in token.live_slots() {
                let pair = match self.pair(&words, at, slot, token.slot(slot)) {
                    Ok(pair) => pair,
                    Err(damage) => {
                        pass(damage)?;
                        continue;
                    }
                };
                let home = self.hasher.bytes(&pair.key) & (count - 1);
                if home == index {
                    pairs.push(pair);
                } else if splits && kind == Kind::Chained && home == upper {
                    self.moved.push(pair);
                } else {
                    pass(corrupt(at, "a key lies in the bucket it hashes to"))?;
                }
            }
            next = match link(words[NEXT], at.plus(NEXT as u64)) {
                Ok(next) => next,
                Err(damage) => {
                    pass(damage)?;
                    break;
                }
            };
            kind = Kind::Chained;
        }
        let pairs = self.newest(pairs)?;
        if !splits {
            let held: BTreeSet<&[u8]> = pairs.iter().map(|pair| pair.key.as_slice()).collect();
            if self.moved.drain(..).any(|moved| !held.contains(moved.key.as_slice())) {
                return Err(corrupt(self.main_at(index), "what moved is in the upper half"));
            }
        }
        self.spans.extend(pairs.iter().filter_map(|pair| pair.record));
        pairs.iter().for_each(|pair| visit(&pair.key, &pair.value));
        Ok(pairs.len() as u64)
    }

    /// Reads a bucket of the chain of main bucket `index`: its words, and its token word.
    fn bucket(
        &mut self,
        at: Addr,
        kind: Kind,
        index: u64,
    ) -> Result<([u64; DoubleBucket::WORDS], Token)> {
        let mut words = [0; DoubleBucket::WORDS];
        self.pm.read_words(at, &mut words[..self.bucket_words as usize])?;
        let token = Token::decode(words[TOKEN], at, kind, layout::slots(self.form) as usize)
            .ok_or(corrupt(at, "a token word matches its check"))?;
        if kind == Kind::Chained {
            if token.home() != index {
                return Err(corrupt(at, "a chained bucket belongs to its chain"));
            }
            self.reach(at)?;
        }
        Ok((words, token))
    }

    /// Notes that a link leads to the bucket at `at`.
    fn reach(&mut self, at: Addr) -> Result<()> {
        if !self.chained.insert(at) {
            return Err(corrupt(at, "one link leads to a chained bucket"));
        }
        let bucket = Span::new(at, self.bucket_words);
        match self.arrays.iter().find(|array| array.overlaps(bucket)) {
            None => self.spans.push(bucket),
            Some(array) => {
                let offset = at.byte().wrapping_sub(array.start.byte());
                if offset % bucket.bytes() != 0 || bucket.end_byte() > array.end_byte() {
                    return Err(corrupt(at, "a chained bucket is one of its array"));
                }
            }
        }
        Ok(())
    }

    /// Reads a slot, and the record that it leads to.
    fn pair(&mut self, words: &[u64], at: Addr, slot: usize, token: u64) -> Result<Found> {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if self.form == Form::DOUBLE_WORDS {
            let first = if slot == 0 { DoubleBucket::SLOT_0 } else { 4 * slot + 4 };
            let (key, value) = (&words[first..first + 2], &words[first + 2..first + 4]);
            let (key, value): (Vec<u8>, Vec<u8>) = (bytes(key), bytes(value));
            if slot > 0 {
                let (word, shift) = layout::print_place(slot);
                let print = words[word] >> shift & u64::from(u32::MAX);
                if print != layout::encode_print(self.hasher.bytes(&key), at, slot) {
                    return Err(corrupt(at, "a fingerprint is that of its key"));
                }
            }
            return Ok(Found { key, value, token, at, record: None });
        }
        let first = WordBucket::SLOTS + 2 * slot;
        let (hash, word) = (words[first], words[first + 1]);
        if self.form == Form::WORDS {
            let (key, value) = (bytes(&[hash]), bytes(&[word]));
            return Ok(Found { key, value, token, at, record: None });
        }
        let at = at.plus(first as u64 + 1);
        self.budget.take(record_span([hash, word], at)?)?;
        let (key, value, span) = read_record(&self.pm, &self.hasher, [hash, word], at)?;
        Ok(Found { key, value, token, at, record: Some(span) })
    }

    /// Leaves out the older one of two equal keys, where an update was interrupted.
    fn newest(&self, mut pairs: Vec<Found>) -> Result<Vec<Found>> {
        pairs.sort_by(Found::by_key);
        let mut newest: Vec<Found> = Vec::with_capacity(pairs.len());
        let mut before = None;
        for pair in pairs {
            let equal = newest.last().is_some_and(|last| last.key == pair.key);
            if !equal {
                before = None;
                newest.push(pair);
                continue;
            }
            let last = newest.last_mut().expect("an equal one is there");
            let follows = |new: u64, old: u64| new == layout::successor(old);
            let two_slots = self.form == Form::DOUBLE_WORDS && before.is_none();
            match (follows(pair.token, last.token), follows(last.token, pair.token)) {
                (true, _) if two_slots => before = Some(core::mem::replace(last, pair).at),
                (_, true) if two_slots => before = Some(pair.at),
                _ => return Err(corrupt(pair.at, "a key is there once")),
            }
        }
        Ok(newest)
    }
}

/// Returns where a link leads to.
fn link(word: u64, at: Addr) -> Result<Option<Addr>> {
    match layout::decode_link(word, at) {
        Some(target) => Ok((!target.is_null()).then_some(target)),
        None => Err(corrupt(at, "a link matches its check")),
    }
}

const _: () = assert!(LINE == 64 && DoubleBucket::SLOT_1 == 8 && DoubleBucket::SLOT_3 == 16);
