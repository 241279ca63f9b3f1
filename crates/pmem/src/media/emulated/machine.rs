//! The processor side: caches, flushes and fences of the logical threads, in front of the modules.

use super::super::random::Random;
use super::super::simulated::Device;
use super::super::virtual_time::{Clocks, Timing};
use super::cache::{Cache, LINE_WORDS};
use super::counters::Counters;
use super::modules::Modules;
use super::thread::{Flight, Thread};
use super::times::Times;
use crate::profile::{Flushing, MemoryDevice, Model, Survives};
use crate::{LINE, Span, WORD};

/// The state of an [`Emulated`](super::Emulated) device: processor, modules and contents.
#[derive(Debug)]
pub struct Machine {
    clocks: Clocks,
    pub(super) counters: Counters,
    /// What is visible, by word.
    words: Vec<u64>,
    cache: Cache,
    threads: Vec<Thread>,
    near_lines: u64,
    /// None in the flat model, which has no device behind the cache.
    modules: Option<Modules>,
    /// Writes of each line to the modules.
    line_wear: Vec<u32>,
    random: Random,
    times: Times,
    survives: Survives,
    flushing: Flushing,
    keeps: bool,
    outstanding: usize,
}

impl Device for Machine {
    fn load(&mut self, thread: u32, word: u64) -> u64 {
        self.counters.bytes_loaded += WORD;
        let ready = self.load_line(thread, word / LINE_WORDS as u64);
        self.clocks.wait_until(thread, ready);
        self.words[word as usize]
    }

    fn load_all(&mut self, thread: u32, word: u64, out: &mut [u64]) {
        self.counters.bytes_loaded += out.len() as u64 * WORD;
        let mut ready = 0;
        for (line, _) in pieces(word, out.len()) {
            ready = ready.max(self.load_line(thread, line));
        }
        self.clocks.wait_until(thread, ready);
        out.copy_from_slice(&self.words[word as usize..][..out.len()]);
    }

    fn store(&mut self, thread: u32, word: u64, values: &[u64]) {
        self.counters.bytes_stored += values.len() as u64 * WORD;
        for (line, _) in pieces(word, values.len()) {
            self.own_line(thread, line);
        }
        self.words[word as usize..][..values.len()].copy_from_slice(values);
    }

    fn store_past(&mut self, thread: u32, word: u64, values: &[u64]) {
        self.counters.bytes_stored += values.len() as u64 * WORD;
        let horizon = self.clocks.horizon();
        for (line, mask) in pieces(word, values.len()) {
            self.clocks.spend(thread, self.times.flat_flush);
            let now = self.clocks.now(thread);
            if let Some(slot) = self.cache.find(line) {
                let dropped = self.cache.remove(slot);
                // The rest of the line must not be lost with its cached copy.
                if mask != u8::MAX && dropped.is_some_and(|dropped| dropped.dirty) {
                    self.write_line(line, now, horizon);
                }
            }
            let (first, count) = content(line, self.words.len());
            let content = &self.words[first..first + count];
            let sent = self.threads[thread as usize].combine(line, mask, content);
            if let Some(line) = sent {
                let start = self.write_line(line, now, horizon);
                self.threads[thread as usize].accept(start + self.times.stream_store);
            }
        }
        self.words[word as usize..][..values.len()].copy_from_slice(values);
    }

    fn exchange(&mut self, thread: u32, word: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.counters.bytes_loaded += WORD;
        let line = word / LINE_WORDS as u64;
        let ready = self.load_line(thread, line);
        self.clocks.wait_until(thread, ready);
        self.own_line(thread, line);
        let found = self.words[word as usize];
        if found != current {
            return Err(found);
        }
        self.counters.bytes_stored += WORD;
        self.words[word as usize] = new;
        Ok(found)
    }

    fn flush(&mut self, thread: u32, span: Span) {
        // Under eADR this is nothing: the caches are as durable as the media.
        if self.survives == Survives::Eadr {
            return;
        }
        self.write_back(thread, span);
    }

    fn write_back(&mut self, thread: u32, span: Span) {
        for line in span.lines() {
            self.flush_line(thread, line);
        }
    }

    fn fence(&mut self, thread: u32) {
        self.counters.fences += 1;
        self.settle(thread);
    }

    fn sync(&mut self, thread: u32) {
        self.counters.fences += 1;
        for other in 0..self.threads.len() as u32 {
            self.settle(other);
        }
        if self.survives == Survives::Eadr {
            return;
        }
        let dirty: Vec<(usize, u64)> = self.cache.dirty().collect();
        for (slot, line) in dirty {
            let (now, horizon) = (self.clocks.now(thread), self.clocks.horizon());
            let start = self.write_line(line, now, horizon);
            self.threads[thread as usize].accept(start + self.times.flush);
            self.cache.set_clean(slot);
        }
        self.settle(thread);
    }

    fn prefetch(&mut self, thread: u32, word: u64) {
        self.load_line(thread, word / LINE_WORDS as u64);
    }

    fn clocks(&mut self) -> &mut Clocks {
        &mut self.clocks
    }

    fn computing(&self) -> (u64, u64) {
        (self.times.dram_line, self.times.operation)
    }

    fn begin(&mut self, threads: u32, writers: u32) -> u64 {
        for thread in 0..self.threads.len() as u32 {
            self.settle(thread);
        }
        self.threads.clear();
        self.threads.resize_with(threads.max(1) as usize, || Thread::new(self.near_lines));
        self.set_writers(u64::from(writers));
        self.clocks.begin(threads)
    }

    fn visible(&self, count: usize) -> Vec<u64> {
        self.words[..count].to_vec()
    }

    fn crash(&self, count: usize, seed: Option<u64>) -> Vec<u64> {
        let mut left = match self.survives {
            Survives::None => return vec![0; count],
            Survives::Eadr | Survives::Adr => self.visible(count),
        };
        let mut random = seed.map(Random::new);
        let mut restore = |line: u64, held: &[u64]| {
            if random.as_mut().is_some_and(|random| random.below(2) == 0) {
                return;
            }
            let first = (line as usize * LINE_WORDS).min(count);
            let end = (first + held.len()).min(count);
            left[first..end].copy_from_slice(&held[..end - first]);
        };
        for (line, held) in self.threads.iter().flat_map(Thread::combining) {
            restore(line, held);
        }
        if self.survives == Survives::Adr {
            for (slot, line) in self.cache.dirty() {
                restore(line, self.cache.clean_content(slot));
            }
        }
        left
    }
}

impl Machine {
    pub(super) fn new(
        device: &MemoryDevice,
        timing: Timing,
        words: Vec<u64>,
        seed: u64,
    ) -> Machine {
        let capacity = words.len() as u64 * WORD;
        let timed = timing == Timing::Virtual;
        let buffered = device.model == Model::Buffered;
        let counters =
            Counters { media_unit_bytes: device.media_unit_bytes, ..Counters::default() };
        Machine {
            clocks: Clocks::new(),
            counters,
            words,
            cache: Cache::new(device.cache_bytes, device.cache_ways),
            threads: vec![Thread::new(device.near_lines)],
            near_lines: device.near_lines,
            modules: buffered.then(|| Modules::new(device, timed, capacity, seed)),
            line_wear: vec![0; capacity.div_ceil(LINE) as usize],
            random: Random::new(seed),
            times: Times::new(device, timing),
            survives: device.survives,
            flushing: device.flush,
            keeps: device.flush_keeps_line(),
            outstanding: device.outstanding_misses as usize,
        }
    }

    /// Brings a line into the cache for a load, and returns when it is there.
    fn load_line(&mut self, thread: u32, line: u64) -> u64 {
        if self.near(thread, line).is_some() {
            self.clocks.spend(thread, self.times.near_hit);
            return self.threads[thread as usize].flight_ready(line);
        }
        if let Some(slot) = self.cache.find(line) {
            self.threads[thread as usize].approach(line, slot);
            self.clocks.spend(thread, self.times.cache_hit);
            return self.threads[thread as usize].flight_ready(line);
        }
        self.counters.load_misses += 1;
        let sequential = self.threads[thread as usize].follows_last_miss(line);
        let latency = if sequential { self.times.read_sequential } else { self.times.read_random };
        self.fetch(thread, line, latency, false).1
    }

    /// Makes a line dirty in the cache, which it enters first if it is not there.
    fn own_line(&mut self, thread: u32, line: u64) {
        let slot = match self.near(thread, line).or_else(|| self.cache.find(line)) {
            Some(slot) => slot,
            None => {
                self.counters.store_misses += 1;
                self.threads[thread as usize].follows_last_miss(line);
                self.fetch(thread, line, self.times.ownership, true).0
            }
        };
        self.threads[thread as usize].approach(line, slot);
        self.clocks.spend(thread, self.times.near_hit);
        if !self.cache.is_dirty(slot) {
            let (first, count) = content(line, self.words.len());
            self.cache.set_dirty(slot, &self.words[first..first + count]);
        }
    }

    #[inline]
    fn near(&self, thread: u32, line: u64) -> Option<usize> {
        let slot = self.threads[thread as usize].near(line)?;
        self.cache.holds(slot, line).then_some(slot)
    }

    /// Reads a line into the cache; returns its slot and when it is there.
    fn fetch(&mut self, thread: u32, line: u64, latency: u64, owned: bool) -> (usize, u64) {
        self.counters.host_reads += 1;
        let (now, horizon) = (self.clocks.now(thread), self.clocks.horizon());
        let mut ready = now + latency;
        if let Some(modules) = &mut self.modules {
            let read = modules.read(line, now, horizon, &mut self.counters);
            let latency = if read.just_written { self.times.reread } else { latency };
            ready = read.start + latency;
        }
        let (slot, evicted) = self.cache.insert(line, &mut self.random);
        if let Some(evicted) = evicted.filter(|evicted| evicted.dirty) {
            self.counters.dirty_evictions += 1;
            // The line cannot come in before the module has taken the one that makes room.
            ready = ready.max(self.write_line(evicted.line, now, horizon));
        }
        let state = &mut self.threads[thread as usize];
        state.approach(line, slot);
        let free = state.take_off(Flight { line, ready, owned }, now, self.outstanding);
        self.clocks.wait_until(thread, free);
        (slot, ready)
    }

    /// Sends a line to the modules at `at`; returns when they have taken it.
    fn write_line(&mut self, line: u64, at: u64, horizon: u64) -> u64 {
        self.counters.host_writes += 1;
        self.line_wear[line as usize] += 1;
        match &mut self.modules {
            Some(modules) => modules.write(line, at, horizon, &mut self.counters),
            None => at,
        }
    }

    /// Writes a line back, and lets it go where the instruction does.
    fn flush_line(&mut self, thread: u32, line: u64) {
        self.counters.lines_flushed += 1;
        self.clocks.spend(thread, self.times.flat_flush);
        let Some(slot) = self.near(thread, line).or_else(|| self.cache.find(line)) else { return };
        if self.cache.is_dirty(slot) {
            let state = &self.threads[thread as usize];
            let mut at = self.clocks.now(thread).max(state.flight_ready(line));
            if self.flushing == Flushing::Clflush {
                at = at.max(state.accepted());
            }
            let again = self.modules.as_ref().is_some_and(|m| m.was_just_written(line));
            let start = self.write_line(line, at, self.clocks.horizon());
            let cost = if again && self.keeps { self.times.reflush } else { self.times.flush };
            self.threads[thread as usize].accept(start + cost);
        }
        if self.keeps {
            self.cache.set_clean(slot);
        } else {
            self.cache.remove(slot);
        }
    }

    fn settle(&mut self, thread: u32) {
        let (now, horizon) = (self.clocks.now(thread), self.clocks.horizon());
        while let Some(line) = self.threads[thread as usize].next_combined() {
            let start = self.write_line(line, now, horizon);
            self.threads[thread as usize].accept(start + self.times.stream_store);
        }
        let done = self.threads[thread as usize].all_done();
        self.clocks.wait_until(thread, done);
    }

    /// Sets how many threads write.
    pub(super) fn set_writers(&mut self, writers: u64) {
        if let Some(modules) = &mut self.modules {
            modules.set_writers(writers, &mut self.counters);
        }
    }

    /// Empties every buffer between the caches and the media.
    pub(super) fn drain(&mut self) {
        for thread in 0..self.threads.len() as u32 {
            self.settle(thread);
        }
        let (at, horizon) = (self.clocks.now(0), self.clocks.horizon());
        if let Some(modules) = &mut self.modules {
            modules.drain(at, horizon, &mut self.counters);
        }
    }

    /// Returns the writes of each line to the modules, and of each unit to the media.
    pub(super) fn wear(&self) -> (&[u32], &[u32]) {
        (&self.line_wear, self.modules.as_ref().map_or(&[], Modules::unit_wear))
    }
}

/// Returns where the words of a line lie, and how many of them the device has.
fn content(line: u64, words: usize) -> (usize, usize) {
    let first = line as usize * LINE_WORDS;
    (first, LINE_WORDS.min(words - first))
}

/// Cuts `count` words from `word` on into lines: the line and a bit for each word of it.
fn pieces(word: u64, count: usize) -> impl Iterator<Item = (u64, u8)> {
    let words = LINE_WORDS as u64;
    let end = word + count as u64;
    let lines = if count == 0 { 0..0 } else { word / words..end.div_ceil(words) };
    lines.map(move |line| {
        let from = word.saturating_sub(line * words);
        let to = (end - line * words).min(words);
        (line, (u8::MAX << from) & (u8::MAX >> (words - to)))
    })
}
