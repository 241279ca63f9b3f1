//! The checkpoints of a closed pool: they must say of an area what its logs say.

use everhash_index::Result;
use everhash_pmem::{Addr, Media, Span};

use super::chains::Generation;
use super::judge::{End, Judge, Log};
use super::objects::Replayed;
use crate::common::check::corrupt;
use crate::walsh::layout::{
    self, AreaRecord, Checkpoint, Directory, Info, LogHead, PART_WORDS, Tail,
};

const BROKEN: &str = "a checkpoint says of an area what its logs say";

/// What was found in the logs of an area.
pub struct Found<'f> {
    /// All of them, oldest first.
    pub logs: &'f [Log],
    /// The newest directories, and those that are set aside.
    pub generations: [&'f Generation; 2],
    /// Live pairs.
    pub items: u64,
    /// What came of the newest log.
    pub last: Replayed,
}

impl<M: Media> Judge<'_, M> {
    /// Demands of the checkpoint of an area of a closed pool, if there is one, that it says what
    /// its logs say; returns what it occupies.
    pub fn checkpoint(&mut self, area: u64, end: &End, found: &Found<'_>) -> Result<Option<Span>> {
        let Some((at, head)) = self.checkpoint_head(area, end)? else { return Ok(None) };
        let is_estimated = found.generations[0].is_estimated;
        let items = if is_estimated { head[Checkpoint::ITEMS] } else { found.items };
        let said = [Checkpoint::ITEMS, Checkpoint::FILL, Checkpoint::RECORDS_SUM];
        if said.map(|place| head[place]) != [items, found.last.fill, found.last.sum] {
            return Err(corrupt(at, BROKEN));
        }
        self.saved(at, &head, found).map(Some)
    }

    /// Returns where the checkpoint of an area lies, and its head.
    pub fn checkpoint_head(
        &self,
        area: u64,
        end: &End,
    ) -> Result<Option<(Addr, [u64; Checkpoint::WORDS])>> {
        let place = self.record(area).plus(AreaRecord::CHECKPOINT as u64);
        let Some(Tail { at, .. }) = Tail::decode(self.pm.load(place)?, place) else {
            return Err(corrupt(place, "the check of a checkpoint's place matches"));
        };
        if at.is_null() {
            return Ok(None);
        }
        let mut head = [0; Checkpoint::WORDS];
        self.pm.read_words(at, &mut head)?;
        if !layout::is_sealed(&head, at, self.seed) {
            return Err(corrupt(at, "the checksum of a checkpoint's head matches"));
        }
        let names_end = head[Checkpoint::TAIL] == end.tail.encode(at)
            && head[Checkpoint::SEQUENCE] == end.info[Info::SEQUENCE];
        match names_end {
            true => Ok(Some((at, head))),
            false => Err(corrupt(at, "a closed pool keeps no checkpoint of another moment")),
        }
    }

    /// Demands of what is saved of an area that it is what follows from the logs.
    fn saved(
        &mut self,
        at: Addr,
        head: &[u64; Checkpoint::WORDS],
        found: &Found<'_>,
    ) -> Result<Span> {
        let (words, span) = self.saved_words(at, head)?;
        let logs = found.logs;
        let older = &logs[..logs.len().saturating_sub(1)];
        if head[Checkpoint::LOGS] != older.len() as u64 {
            return Err(corrupt(at, BROKEN));
        }
        let (of_logs, mut words) = words.split_at(2 * older.len());
        for (log, pair) in older.iter().zip(of_logs.chunks_exact(2)) {
            let tail = Tail { at: log.at, count: log.count };
            if pair != [tail.encode(at), log.head[LogHead::SIZE] >> 32] {
                return Err(corrupt(at, BROKEN));
            }
        }
        let block_words = 2 * self.block_directories as usize;
        let counts = [head[Checkpoint::BLOCKS], head[Checkpoint::OLD_BLOCKS]];
        for (count, generation) in counts.into_iter().zip(found.generations) {
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
                        return Err(corrupt(at, BROKEN));
                    }
                    found += usize::from(expected.is_some());
                }
            }
            if found != generation.heads.len() {
                return Err(corrupt(at, BROKEN));
            }
        }
        Ok(span)
    }

    /// Returns the words behind the head of a checkpoint, without the sums of its parts.
    fn saved_words(
        &mut self,
        at: Addr,
        head: &[u64; Checkpoint::WORDS],
    ) -> Result<(Vec<u64>, Span)> {
        let blocks = head[Checkpoint::BLOCKS].saturating_add(head[Checkpoint::OLD_BLOCKS]);
        let block_words = self.block_directories.saturating_mul(2).saturating_add(1);
        let logs = head[Checkpoint::LOGS].saturating_mul(2);
        let count = blocks.saturating_mul(block_words).saturating_add(logs);
        let span = Span::of_bytes(at, layout::checkpoint_bytes(count));
        self.take(span)?;
        let mut words = Vec::new();
        let mut next = at.plus(Checkpoint::WORDS as u64);
        while (words.len() as u64) < count {
            let left = (count - words.len() as u64).min(PART_WORDS - 1);
            let mut part = vec![0; left as usize + 1];
            self.pm.read_words(next, &mut part)?;
            if layout::sum(&part[..left as usize], layout::part_seed(head, next))
                != part[left as usize]
            {
                return Err(corrupt(next, "the checksum of a part of a checkpoint matches"));
            }
            words.extend_from_slice(&part[..left as usize]);
            next = next.plus(left + 1);
        }
        Ok((words, span))
    }
}
