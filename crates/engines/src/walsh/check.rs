//! A judge of pools at rest: from the words on the medium to the pairs, or to what is broken.
//!
//! Shares the ruler with the code that serves the table, and nothing else. It replays every
//! object of every log, keeps heads of chains of its own, and demands that each object leads
//! where it must and that the counts in the heads of logs are true.

use std::collections::{BTreeMap, HashMap};

use everhash_index::{Checked, Error, Form, Result, pass_over};
use everhash_pmem::{Access, Addr, Boot, LINE, Media, Pool, Region, Shutdown, Span, WORD, pool};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{
    self, AreaRecord, Checkpoint, DIRECTORY_HASH, Directory, INFO_ESTIMATED, Info, Kind, LOG_AREA,
    LOG_SEQUENCE, Link, LogHead, MOST_LEVEL, ObjectHead, PART_WORDS, RECORD_HASH, RECORD_OFFSET,
    ROOT, Root, Tag, Tail, mix,
};
use crate::common::hash::KeyedHash;

/// Everything that the judge knows of a pool.
struct Judge<'a, M: Media> {
    pm: Access<'a, M>,
    form: Form,
    hasher: KeyedHash,
    seed: u64,
    /// Words behind each object.
    seal_words: u64,
    /// Directories of a block in a checkpoint.
    block_directories: u64,
    /// Whether the pool was closed: only then checkpoints count.
    is_closed: bool,
    /// What is in use.
    spans: Vec<Span>,
}

/// A log: where it lies, its head, its objects.
struct Log {
    at: Addr,
    head: [u64; LogHead::WORDS],
    count: u64,
}

/// The newest value of each key, `None` for a tombstone.
type Newest = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// One generation of an area: its chains and its keys.
#[derive(Default)]
struct Generation {
    level: u64,
    /// Whether there may be blind writes, which pass over nothing.
    is_estimated: bool,
    heads: BTreeMap<u64, Head>,
    newest: Newest,
}

/// The head of a chain.
struct Head {
    at: Addr,
    /// The object behind it.
    behind: Addr,
    key: Vec<u8>,
    hash: u64,
    /// Older versions of the key that led to the same object.
    passed: Vec<Addr>,
    /// Those of the keys behind it.
    others: Vec<u64>,
}

impl Head {
    /// Returns whether a directory says where a search begins in this chain.
    fn is_named_by(&self, directory: Directory) -> bool {
        let leads = |start: Addr| start == self.behind || self.passed.contains(&start);
        directory.start(self.hash) == self.at
            && leads(directory.behind())
            && self.others.iter().all(|hash| !directory.start(*hash).is_null())
    }
}

/// What came of reading a log's objects.
struct Replayed {
    /// The change of live pairs.
    changes: i64,
    /// Where the next object would begin. Unit: words from the start of the log.
    fill: u64,
    /// The sum of the directory log.
    sum: u64,
}

struct Object {
    link: Link,
    key: Vec<u8>,
    value: Vec<u8>,
    words: u64,
}

/// Visits every pair once.
///
/// # Errors
/// [`Error::Corrupt`] with the invariant that is broken.
pub fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
    let (mut judge, root) = begin(region)?;
    let mut items = 0;
    for area in 0..root.areas {
        judge.durable(root.record(area), root.epoch)?;
        items += judge.area(area, root.areas, root.record(area), visit)?;
    }
    Ok(Checked { items, reachable_bytes: judge.reachable_bytes()? })
}

/// As [`check`], but passes over the areas that are damaged.
pub fn salvage<M: Media>(
    region: &Region<M>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
    report: &mut dyn FnMut(Error),
) -> Result<()> {
    let (mut judge, root) = begin(region)?;
    (0..root.areas).try_for_each(|area| {
        pass_over(judge.area(area, root.areas, root.record(area), visit), report)
    })
}

/// What the root says.
struct RootWords {
    table: Addr,
    areas: u64,
    epoch: u64,
}

impl RootWords {
    fn record(&self, area: u64) -> Addr {
        layout::area_record(self.table, area)
    }
}

/// Reads the root.
fn begin<M: Media>(region: &Region<M>) -> Result<(Judge<'_, M>, RootWords)> {
    let identity = Pool::inspect(region)?;
    let mut judge = Judge {
        pm: region.access(),
        form: Form::from_code(identity.form),
        hasher: KeyedHash::of(&identity)?,
        seed: layout::seed(identity.database),
        seal_words: 0,
        block_directories: 0,
        is_closed: Pool::status(region, Boot::default())?.previous == Shutdown::Clean,
        spans: Vec::new(),
    };
    let is_of_this_engine = matches!(judge.form, Form::WORDS | Form::DOUBLE_WORDS | Form::Variable);
    if !is_of_this_engine {
        return corrupt(Addr::NULL, "pairs have one of the forms of the engine");
    }
    let mut root = [0; Root::CHECKSUM + 1];
    judge.pm.read_words(ROOT, &mut root)?;
    if layout::sum(&root[..Root::CHECKSUM], ROOT.byte()) != root[Root::CHECKSUM] {
        return corrupt(ROOT, "the checksum of the root matches");
    }
    let Some(epoch) = layout::decode_epoch(judge.pm.load(layout::EPOCH)?) else {
        return corrupt(layout::EPOCH, "the check of an epoch matches");
    };
    let table = Addr::from_medium(root[Root::AREA_TABLE]);
    let Some(table) = table else { return corrupt(ROOT, "an address is a multiple of eight") };
    let areas = root[Root::AREAS];
    if !areas.is_power_of_two() || areas > 1 << 16 {
        return corrupt(ROOT, "the number of areas is a power of two");
    }
    judge.seal_words = layout::seal_words(root[Root::DURABILITY]);
    judge.block_directories = root[Root::BLOCK_DIRECTORIES];
    if !judge.block_directories.is_power_of_two() || judge.block_directories > 1024 {
        return corrupt(ROOT, "a block has up to 1024 directories, a power of two");
    }
    judge.spans.push(layout::area_table(table, areas));
    Ok((judge, RootWords { table, areas, epoch }))
}

impl<M: Media> Judge<'_, M> {
    fn area(
        &mut self,
        number: u64,
        areas: u64,
        record: Addr,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        let info = self.info(record)?;
        let live = record.plus(AreaRecord::VISIBLE_TAIL as u64);
        let tail = Tail::decode(self.pm.load(live)?, live);
        let Some(tail) = tail else { return corrupt(live, "the check of a visible tail matches") };
        let logs = self.logs(number, tail, &info)?;
        // Blind writes know nothing of what they replace.
        let is_estimated = INFO_ESTIMATED.get(info[Info::FLAGS]) == 1;
        let generation = |level| Generation { level, is_estimated, ..Generation::default() };
        let [mut old, mut new] = [info[Info::OLD], info[Info::LEVEL]].map(generation);
        let mut items = 0;
        let mut last = Replayed { changes: 0, fill: 0, sum: 0 };
        for (position, log) in logs.iter().enumerate() {
            if position == 0 {
                items = log.head[LogHead::ITEMS];
            } else if !is_estimated && items != log.head[LogHead::ITEMS] {
                return corrupt(log.at, "the count of live pairs in a log's head is true");
            }
            let is_old = log.head[LogHead::NUMBER] <= info[Info::END];
            let after = logs.get(position + 1);
            let generation = if is_old { &mut old } else { &mut new };
            last = self.replay((number, areas), log, after, generation)?;
            items = items.wrapping_add_signed(last.changes);
        }
        if self.is_closed
            && let Some((at, head)) = self.checkpoint(record, tail, &info)?
        {
            let said = [Checkpoint::ITEMS, Checkpoint::FILL, Checkpoint::RECORDS_SUM];
            let items = if is_estimated { head[Checkpoint::ITEMS] } else { items };
            if said.map(|place| head[place]) != [items, last.fill, last.sum] {
                return corrupt(at, "a checkpoint says of an area what its logs say");
            }
            self.saved(at, &head, &logs, [&new, &old])?;
        }
        // What is newer hides what is older, tombstones too.
        old.newest.extend(new.newest);
        let mut found = 0;
        for (key, value) in &old.newest {
            if let Some(value) = value {
                visit(key, value);
                found += 1;
            }
        }
        match found == items || is_estimated {
            true => Ok(found),
            false => corrupt(record, "as many pairs are found as an area counts"),
        }
    }

    /// Demands that what a power loss would leave of an area can be read.
    fn durable(&self, record: Addr, epoch: u64) -> Result<()> {
        let (mut at, mut info) = (record.plus(AreaRecord::DURABLE_TAIL as u64), [0; Info::WORDS]);
        if epoch > 0 {
            let place = [AreaRecord::EPOCH_B, AreaRecord::EPOCH_A][(epoch % 2) as usize];
            let cut = record.plus(place as u64);
            self.pm.read_words(cut, &mut info)?;
            if !layout::is_sealed(&info, cut, self.seed) {
                return corrupt(cut, "the checksum of an epoch's info matches");
            }
            at = cut.plus(Info::TAIL as u64);
        }
        match Tail::decode(self.pm.load(at)?, at) {
            Some(_) => Ok(()),
            None => corrupt(at, "the check of a tail matches"),
        }
    }

    fn info(&self, record: Addr) -> Result<[u64; Info::WORDS]> {
        let mut newest = [0; Info::WORDS];
        for place in [AreaRecord::INFO_A, AreaRecord::INFO_B] {
            let at = record.plus(place as u64);
            let mut info = [0; Info::WORDS];
            self.pm.read_words(at, &mut info)?;
            if layout::is_sealed(&info, at, self.seed)
                && info[Info::SEQUENCE] > newest[Info::SEQUENCE]
            {
                newest = info;
            }
        }
        if newest[Info::SEQUENCE] == 0 {
            return corrupt(record, "one of two infos is whole");
        }
        match newest[Info::LEVEL].max(newest[Info::OLD]) > u64::from(MOST_LEVEL) {
            true => corrupt(record, "an area has at most 2^32 directories"),
            false => Ok(newest),
        }
    }

    /// Returns the logs of an area, oldest first.
    fn logs(&mut self, area: u64, tail: Tail, info: &[u64; Info::WORDS]) -> Result<Vec<Log>> {
        let start = info[Info::START];
        let mut logs: Vec<Log> = Vec::new();
        let mut next = tail;
        while !next.at.is_null() {
            let mut head = [0; LogHead::WORDS];
            self.pm.read_words(next.at, &mut head)?;
            let owner = LOG_AREA.get(head[LogHead::OWNER]);
            if !layout::is_sealed(&head, next.at, self.seed) || owner != area {
                return corrupt(next.at, "the checksum of a log's head matches");
            }
            if LOG_SEQUENCE.get(head[LogHead::OWNER]) > info[Info::SEQUENCE] {
                return corrupt(next.at, "no log is newer than the info of its area");
            }
            let number = head[LogHead::NUMBER];
            let after = logs.last().map(|log| log.head[LogHead::NUMBER]);
            if after.is_none() && number < start {
                // The area was cleared after its last write.
                return Ok(logs);
            }
            if number < start || after.is_some_and(|after| after != number.wrapping_add(1)) {
                return corrupt(next.at, "the logs of an area have successive numbers");
            }
            let lines = head[LogHead::SIZE] >> 32;
            self.spans.push(Span::of_bytes(next.at, lines.saturating_mul(LINE)));
            let (at, previous) = (next.at, head[LogHead::PREVIOUS]);
            logs.push(Log { at, head, count: next.count });
            if number == start {
                logs.reverse();
                return Ok(logs);
            }
            let Some(before) = Tail::decode(previous, at) else {
                return corrupt(at, "the logs of an area begin at the oldest");
            };
            next = before;
        }
        match logs.is_empty() {
            true => Ok(logs),
            false => corrupt(tail.at, "the logs of an area begin at the oldest"),
        }
    }

    /// Returns where the checkpoint of an area of a closed pool lies, and its head.
    fn checkpoint(
        &self,
        record: Addr,
        tail: Tail,
        info: &[u64; Info::WORDS],
    ) -> Result<Option<(Addr, [u64; Checkpoint::WORDS])>> {
        let place = record.plus(AreaRecord::CHECKPOINT as u64);
        let Some(Tail { at, .. }) = Tail::decode(self.pm.load(place)?, place) else {
            return corrupt(place, "the check of a checkpoint's place matches");
        };
        if at.is_null() {
            return Ok(None);
        }
        let mut head = [0; Checkpoint::WORDS];
        self.pm.read_words(at, &mut head)?;
        if !layout::is_sealed(&head, at, self.seed) {
            return corrupt(at, "the checksum of a checkpoint's head matches");
        }
        let names_end = head[Checkpoint::TAIL] == tail.encode(at)
            && head[Checkpoint::SEQUENCE] == info[Info::SEQUENCE];
        match names_end {
            true => Ok(Some((at, head))),
            false => corrupt(at, "a closed pool keeps no checkpoint of another moment"),
        }
    }

    /// Demands of what is saved of an area that it is what follows from the logs.
    fn saved(
        &mut self,
        at: Addr,
        head: &[u64; Checkpoint::WORDS],
        logs: &[Log],
        generations: [&Generation; 2],
    ) -> Result<()> {
        let broken = "a checkpoint says of an area what its logs say";
        let words = self.saved_words(at, head)?;
        let older = &logs[..logs.len().saturating_sub(1)];
        if head[Checkpoint::LOGS] != older.len() as u64 {
            return corrupt(at, broken);
        }
        let (of_logs, mut words) = words.split_at(2 * older.len());
        for (log, pair) in older.iter().zip(of_logs.chunks_exact(2)) {
            let tail = Tail { at: log.at, count: log.count };
            if pair != [tail.encode(at), log.head[LogHead::SIZE] >> 32] {
                return corrupt(at, broken);
            }
        }
        let block_words = 2 * self.block_directories as usize;
        let counts = [head[Checkpoint::BLOCKS], head[Checkpoint::OLD_BLOCKS]];
        for (count, generation) in counts.into_iter().zip(generations) {
            let mut found = 0;
            for _ in 0..count {
                let (block, rest) = words.split_at(1 + block_words);
                words = rest;
                for (index, slot) in block[1..].chunks_exact(2).enumerate() {
                    let first = block[0].saturating_mul(self.block_directories);
                    let directory = first.saturating_add(index as u64);
                    let expected = generation.heads.get(&directory);
                    let saved = Directory { newer: slot[0], older: slot[1] };
                    let is_said = match expected {
                        Some(head) => head.is_named_by(saved),
                        None => saved == Directory::default(),
                    };
                    if !is_said {
                        return corrupt(at, broken);
                    }
                    found += usize::from(expected.is_some());
                }
            }
            if found != generation.heads.len() {
                return corrupt(at, broken);
            }
        }
        Ok(())
    }

    /// Returns the words behind the head of a checkpoint, without the sums of its parts.
    fn saved_words(&mut self, at: Addr, head: &[u64; Checkpoint::WORDS]) -> Result<Vec<u64>> {
        let blocks = head[Checkpoint::BLOCKS].saturating_add(head[Checkpoint::OLD_BLOCKS]);
        let block_words = self.block_directories.saturating_mul(2).saturating_add(1);
        let logs = head[Checkpoint::LOGS].saturating_mul(2);
        let count = blocks.saturating_mul(block_words).saturating_add(logs);
        let span = Span::of_bytes(at, layout::checkpoint_bytes(count));
        if span.end_byte() > self.pm.media().bytes() {
            return corrupt(at, "a checkpoint lies inside the medium");
        }
        self.spans.push(span);
        let mut words = Vec::new();
        let mut next = at.plus(Checkpoint::WORDS as u64);
        while (words.len() as u64) < count {
            let left = (count - words.len() as u64).min(PART_WORDS - 1);
            let mut part = vec![0; left as usize + 1];
            self.pm.read_words(next, &mut part)?;
            if layout::sum(&part[..left as usize], layout::part_seed(head, next))
                != part[left as usize]
            {
                return corrupt(next, "the checksum of a part of a checkpoint matches");
            }
            words.extend_from_slice(&part[..left as usize]);
            next = next.plus(left + 1);
        }
        Ok(words)
    }

    /// Reads a log's objects in the order of their writes.
    fn replay(
        &self,
        (area, areas): (u64, u64),
        log: &Log,
        after: Option<&Log>,
        generation: &mut Generation,
    ) -> Result<Replayed> {
        let entries = log.head[LogHead::SIZE] & u64::from(u32::MAX);
        if log.count > entries {
            return corrupt(log.at, "a log has no more objects than it has room for");
        }
        let mut records = vec![0; log.count as usize];
        self.pm.read_words(log.at.plus(LogHead::WORDS as u64), &mut records)?;
        let sum = layout::sum(&records, self.seed);
        if after.is_some_and(|after| after.head[LogHead::PREVIOUS_SUM] != sum) {
            return corrupt(log.at, "the checksum of a directory log matches");
        }
        let mut fill = LogHead::WORDS as u64 + entries;
        let mut changes = 0;
        for record in records {
            let at = log.at.plus(fill);
            let object = self.object(at)?;
            let hash = self.hasher.bytes(&object.key);
            if record != RECORD_OFFSET.set(RECORD_HASH.get(hash), fill) {
                return corrupt(at, "a directory record says where its object is");
            }
            if layout::AREA_HASH.get(hash) & (areas - 1) != area {
                return corrupt(at, "a key lies in its area");
            }
            if object.link.tag != Tag::of(hash) {
                return corrupt(at, "an object has the tag of its key");
            }
            self.seal(at, &object, log.head[LogHead::CHECKSUM])?;
            fill += object.words + self.seal_words;
            changes += object.link.kind.items();
            chain(generation, at, hash, &object)?;
            let value = (object.link.kind != Kind::Removed).then_some(object.value);
            generation.newest.insert(object.key, value);
        }
        match log.at.plus(fill).byte() > log.at.byte() + (log.head[LogHead::SIZE] >> 32) * LINE {
            true => corrupt(log.at, "the objects of a log lie inside it"),
            false => Ok(Replayed { changes, fill, sum }),
        }
    }

    /// Demands that an object's seal matches, if there is one.
    fn seal(&self, at: Addr, object: &Object, log: u64) -> Result<()> {
        let covered = match self.form {
            Form::Variable => ObjectHead::WORDS as u64,
            Form::Fixed { .. } => object.words,
        };
        let mut words = vec![0; covered as usize];
        self.pm.read_words(at, &mut words)?;
        let seal = at.plus(object.words);
        let is_whole =
            self.seal_words == 0 || self.pm.load(seal)? == layout::seal_object(log, at, &words);
        match is_whole {
            true => Ok(()),
            false => corrupt(seal, "the seal of an object matches"),
        }
    }

    fn object(&self, at: Addr) -> Result<Object> {
        let broken = "the check of an object matches";
        let (head_words, lengths) = match self.form {
            Form::Fixed { key_bytes, value_bytes } => (
                1 + (key_bytes as usize + value_bytes as usize) / 8,
                (key_bytes.into(), value_bytes.into()),
            ),
            Form::Variable => {
                let word = self.pm.load(at.plus(ObjectHead::LENGTHS as u64))?;
                (ObjectHead::WORDS, (word & u64::from(u32::MAX), word >> 32))
            }
        };
        let mut head = vec![0; head_words];
        self.pm.read_words(at, &mut head)?;
        let place = mix(self.seed, at.byte());
        let bound = head[1..].iter().fold(place, |bound, word| mix(bound, *word));
        let Some(link) = Link::decode(head[ObjectHead::LINK], bound) else {
            return corrupt(at, broken);
        };
        let (key_bytes, value_bytes) = lengths;
        let is_variable = self.form == Form::Variable;
        let key_at = at.plus(if is_variable { ObjectHead::WORDS as u64 } else { 1 });
        let value_at = key_at.plus(key_bytes.div_ceil(WORD));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.pm.read_bytes(key_at, key_bytes, &mut key)?;
        self.pm.read_bytes(value_at, value_bytes, &mut value)?;
        if is_variable {
            let whole = [key.as_slice(), value.as_slice()].concat();
            let seed = mix(place, value_bytes << 32 | key_bytes);
            if xxh3_64_with_seed(&whole, seed) != head[ObjectHead::CHECKSUM] {
                return corrupt(at, broken);
            }
        }
        let words = value_at.plus(value_bytes.div_ceil(WORD)).word() - at.word();
        Ok(Object { link, key, value, words })
    }

    /// Returns how much is in use; no two spans share a byte.
    fn reachable_bytes(&mut self) -> Result<u64> {
        self.spans.sort_unstable_by_key(|span| span.start);
        let mut bytes = pool::DATA.byte();
        for pair in self.spans.windows(2) {
            if pair[0].overlaps(pair[1]) {
                return corrupt(pair[1].start, "no line is in use twice");
            }
        }
        for span in &self.spans {
            if span.start < pool::DATA || span.end_byte() > self.pm.media().bytes() {
                return corrupt(span.start, "what is in use lies inside the medium");
            }
            bytes += span.bytes();
        }
        Ok(bytes)
    }
}

/// Makes an object the head of its chain, and checks where it leads: to the head before it, or, if
/// that is of the same key, to the one behind that.
fn chain(generation: &mut Generation, at: Addr, hash: u64, object: &Object) -> Result<()> {
    let directory = DIRECTORY_HASH.get(hash) >> (u64::from(MOST_LEVEL) - generation.level);
    let before = generation.heads.remove(&directory);
    let is_blind =
        generation.is_estimated && before.as_ref().is_some_and(|head| head.at == object.link.next);
    let mut head = Head {
        at,
        hash,
        key: object.key.clone(),
        behind: object.link.next,
        passed: Vec::new(),
        others: Vec::new(),
    };
    let expected = match before {
        None => Addr::NULL,
        Some(before) if before.key == object.key && !is_blind => {
            head.others = before.others;
            head.passed = before.passed;
            head.passed.push(before.at);
            before.behind
        }
        Some(before) => {
            head.others = before.others;
            head.others.push(before.hash);
            before.at
        }
    };
    if object.link.next != expected {
        return corrupt(at, "an object leads to the head of its chain before it");
    }
    generation.heads.insert(directory, head);
    Ok(())
}

fn corrupt<T>(at: Addr, broken: &'static str) -> Result<T> {
    Err(Error::Corrupt { at: at.byte(), broken })
}
