//! The state of a flash device: its cache, its translation layer and its only server.

use super::super::random::Random;
use super::super::simulated::Device;
use super::super::virtual_time::{Clocks, Server, Timing, picoseconds};
use super::super::{StreamClass, StreamSupport};
use super::counters::FlashCounters;
use super::ftl::Ftl;
use super::page_cache::PageCache;
use crate::profile::FlashDevice;
use crate::{LINE, Span, WORD};

/// Words in a line.
const LINE_WORDS: u64 = LINE / WORD;

/// The state of a [`Flash`](super::Flash) device.
#[derive(Debug)]
pub struct Disk {
    clocks: Clocks,
    counters: FlashCounters,
    /// What is visible, by word.
    words: Vec<u64>,
    page_words: u64,
    cache: PageCache,
    ftl: Ftl,
    /// The stream of each logical page.
    streams: Vec<u8>,
    stream_count: u8,
    /// The line that each thread touched last, plus one.
    last_lines: Vec<u64>,
    die: Server,
    times: Times,
}

/// The profile's times. Unit: picoseconds, all zero in counting runs.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    page_read: u64,
    page_write: u64,
    erase: u64,
    line_read: u64,
    line_write: u64,
    dram_line: u64,
    operation: u64,
}

impl Times {
    fn new(device: &FlashDevice, timing: Timing) -> Times {
        let microseconds = |time: f64| picoseconds(time * 1000.0);
        match timing {
            Timing::Counting => Times::default(),
            Timing::Virtual => Times {
                page_read: microseconds(device.page_read_us),
                page_write: microseconds(device.page_write_us),
                erase: microseconds(device.erase_us),
                line_read: microseconds(device.line_read_us),
                line_write: microseconds(device.line_write_us),
                dram_line: picoseconds(device.dram_random_ns),
                operation: picoseconds(device.operation_ns),
            },
        }
    }
}

/// What is done to a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Load,
    Store,
}

impl Device for Disk {
    fn load(&mut self, thread: u32, word: u64) -> u64 {
        self.counters.bytes_loaded += WORD;
        self.touch(thread, word / LINE_WORDS, Use::Load);
        self.words[word as usize]
    }

    fn load_all(&mut self, thread: u32, word: u64, out: &mut [u64]) {
        self.counters.bytes_loaded += out.len() as u64 * WORD;
        for line in lines(word, out.len()) {
            self.touch(thread, line, Use::Load);
        }
        out.copy_from_slice(&self.words[word as usize..][..out.len()]);
    }

    fn store(&mut self, thread: u32, word: u64, values: &[u64]) {
        self.counters.bytes_stored += values.len() as u64 * WORD;
        for line in lines(word, values.len()) {
            self.touch(thread, line, Use::Store);
            // Line by line: a miss further on may push this page out, which then holds this store.
            let from = word.max(line * LINE_WORDS);
            let to = (word + values.len() as u64).min((line + 1) * LINE_WORDS);
            let piece = &values[(from - word) as usize..(to - word) as usize];
            self.words[from as usize..to as usize].copy_from_slice(piece);
        }
    }

    fn store_past(&mut self, thread: u32, word: u64, values: &[u64]) {
        self.store(thread, word, values);
        let bytes = values.len() as u64 * WORD;
        self.flush(thread, Span::of_bytes(crate::Addr::new(word * WORD), bytes));
    }

    fn exchange(&mut self, thread: u32, word: u64, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(thread, word);
        if found != current {
            return Err(found);
        }
        self.store(thread, word, &[new]);
        Ok(found)
    }

    fn flush(&mut self, thread: u32, span: Span) {
        let bytes = self.page_words * WORD;
        if span.words == 0 {
            return;
        }
        for page in span.start.byte() / bytes..span.end_byte().div_ceil(bytes) {
            self.counters.pages_flushed += 1;
            if self.cache.set_clean(page) {
                self.write_page(thread, page);
            }
        }
    }

    fn fence(&mut self, _thread: u32) {
        self.counters.fences += 1;
    }

    fn sync(&mut self, thread: u32) {
        self.counters.fences += 1;
        let dirty: Vec<u64> = self.cache.dirty().map(|(page, _)| page).collect();
        for page in dirty {
            self.cache.set_clean(page);
            self.write_page(thread, page);
        }
    }

    fn release(&mut self, span: Span) {
        let bytes = self.page_words * WORD;
        let whole = span.start.byte().div_ceil(bytes)..span.end_byte() / bytes;
        for page in whole {
            self.cache.set_clean(page);
            self.ftl.trim(page);
        }
    }

    fn stream(&mut self, span: Span, class: StreamClass) -> StreamSupport {
        if class.0 >= self.stream_count {
            return StreamSupport::NotSupported;
        }
        let bytes = self.page_words * WORD;
        let pages = (span.start.byte() / bytes) as usize..span.end_byte().div_ceil(bytes) as usize;
        if span.words > 0 {
            self.streams[pages].fill(class.0);
        }
        StreamSupport::Passed
    }

    fn clocks(&mut self) -> &mut Clocks {
        &mut self.clocks
    }

    fn computing(&self) -> (u64, u64) {
        (self.times.dram_line, self.times.operation)
    }

    fn begin(&mut self, threads: u32, _writers: u32) -> u64 {
        self.last_lines = vec![0; threads.max(1) as usize];
        self.clocks.begin(threads)
    }

    fn visible(&self, count: usize) -> Vec<u64> {
        self.words[..count].to_vec()
    }

    fn crash(&self, count: usize, seed: Option<u64>) -> Vec<u64> {
        let mut left = self.visible(count);
        let mut random = seed.map(Random::new);
        for (page, held) in self.cache.dirty() {
            if random.as_mut().is_some_and(|random| random.below(2) == 0) {
                continue;
            }
            let first = ((page * self.page_words) as usize).min(count);
            let end = (first + held.len()).min(count);
            left[first..end].copy_from_slice(&held[..end - first]);
        }
        left
    }
}

impl Disk {
    pub(super) fn new(device: &FlashDevice, timing: Timing, words: Vec<u64>, seed: u64) -> Disk {
        let ftl = Ftl::new(device, seed);
        Disk {
            clocks: Clocks::new(),
            counters: FlashCounters { page_bytes: device.page_bytes, ..FlashCounters::default() },
            words,
            page_words: device.page_bytes / WORD,
            cache: PageCache::new(device.cache_pages()),
            streams: vec![0; ftl.logical_pages() as usize],
            ftl,
            stream_count: device.streams as u8,
            last_lines: vec![0],
            die: Server::default(),
            times: Times::new(device, timing),
        }
    }

    pub(super) fn counters(&self) -> FlashCounters {
        FlashCounters { ftl: self.ftl.counters(), ..self.counters }
    }

    pub(super) fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// Brings a line's page into the cache and lets the access take its time.
    fn touch(&mut self, thread: u32, line: u64, what: Use) {
        let page = line * LINE_WORDS / self.page_words;
        if self.cache.touch(page) {
            if self.last_lines[thread as usize] != line + 1 {
                self.counters.cache_hits += 1;
                let Times { line_read, line_write, .. } = self.times;
                let time = if what == Use::Load { line_read } else { line_write };
                self.clocks.spend(thread, time);
            }
        } else {
            self.counters.cache_misses += 1;
            self.work(thread, self.times.page_read);
            if let Some(evicted) = self.cache.insert(page).filter(|evicted| evicted.dirty) {
                self.counters.dirty_evictions += 1;
                self.write_page(thread, evicted.page);
            }
        }
        self.last_lines[thread as usize] = line + 1;
        if what == Use::Store {
            let (words, first) = (&self.words, (page * self.page_words) as usize);
            self.cache.set_dirty(page, || &words[first..first + self.page_words as usize]);
        }
    }

    fn write_page(&mut self, thread: u32, page: u64) {
        let outcome = self.ftl.write(page, self.streams[page as usize]);
        let Times { page_read, page_write, erase, .. } = self.times;
        let moved = outcome.moved * (page_read + page_write);
        self.work(thread, page_write + moved + outcome.erased * erase);
    }

    /// Keeps the die busy; the thread waits for it.
    fn work(&mut self, thread: u32, service: u64) {
        let (now, horizon) = (self.clocks.now(thread), self.clocks.horizon());
        let start = self.die.book(now, service, horizon);
        self.clocks.wait_until(thread, start + service);
    }
}

/// Returns the lines that `count` words from `word` on touch.
fn lines(word: u64, count: usize) -> core::ops::Range<u64> {
    if count == 0 {
        return 0..0;
    }
    word / LINE_WORDS..(word + count as u64).div_ceil(LINE_WORDS)
}
