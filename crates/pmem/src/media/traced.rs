//! A volatile medium that logs every store, flush and fence, for the crash judges.

mod lazy;
mod mutant;
mod recorder;
mod verbs;

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use lazy::Choice;
use lazy::Undecided;
pub use mutant::{Change, Met, Mutant, UnknownChange, Verb};
use recorder::Recorder;
pub use verbs::TracedBlock;

use super::{Media, out_of_bounds};
use crate::crash::{How, Log, Model, Units, What};
use crate::{Addr, AtomicWord, Primitives, Result, Site, Std, WORD};

/// A volatile medium that logs every verb.
///
/// All threads write one totally ordered [`Log`], which changes atomically with the visible words.
/// The medium has the guarantees of a [`Model`], so that an engine takes the path of such a medium,
/// and it can omit or change the work of one site ([`Mutant`]).
///
/// Every verb first touches an atomic of `P`: each access to the medium is a point where a
/// scheduler may switch threads. The internal lock is the standard library's and is never held
/// across such a point.
///
/// ```
/// use everhash_pmem::crash::{Model, What};
/// use everhash_pmem::media::traced::Traced;
/// use everhash_pmem::{Addr, Region, Site, Span, Std};
///
/// let region = Region::new(Traced::<Std>::new(Model::Adr, 4096, 8192));
/// let pm = region.access();
/// pm.store(Addr::new(64), 7)?;
/// pm.persist(Span::new(Addr::new(64), 1), Site::new("example/store"))?;
/// let log = region.media().take_log();
/// assert_eq!(log.events().len(), 3);
/// assert_eq!(log.events()[1].what, What::Flush { line: 1, count: 1 });
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
pub struct Traced<P: Primitives = Std> {
    words: Box<[AtomicU64]>,
    bytes: AtomicU64,
    /// A bit for each word whose content a lazy run has not chosen yet.
    undecided: Box<[AtomicU64]>,
    recorder: Mutex<Recorder>,
    model: Model,
    with_loads: bool,
    keeps_freed: bool,
    /// Counts the accesses since the last restart.
    accesses: AtomicU32,
    /// Counts the verbs since the last restart.
    steps: P::AtomicU64,
    /// The number of verbs after which a run is stopped.
    step_limit: AtomicU64,
}

/// Who uses a traced medium: a thread, by one of its accesses.
#[derive(Clone, Copy, Debug)]
pub struct TracedContext {
    thread: u32,
    /// Its number in the order in which accesses begin.
    access: u32,
}

impl<P: Primitives> fmt::Debug for Traced<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes.load(Ordering::Relaxed);
        f.debug_struct("Traced").field("model", &self.model).field("bytes", &bytes).finish()
    }
}

impl<P: Primitives> Traced<P> {
    /// Makes a medium of `bytes` zero bytes that can grow to `capacity` bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity`, or if `capacity` exceeds 16 GiB.
    pub fn new(model: Model, bytes: u64, capacity: u64) -> Self {
        assert!(bytes <= capacity, "a medium is at most as long as its capacity");
        let words = capacity / WORD;
        assert!(words < u64::from(u32::MAX), "the log numbers words with 32 bits");
        let zeros = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        Traced {
            words: zeros(words),
            bytes: AtomicU64::new(bytes / WORD * WORD),
            undecided: zeros(words.div_ceil(64)),
            recorder: Mutex::new(Recorder::default()),
            model,
            with_loads: false,
            keeps_freed: false,
            accesses: AtomicU32::new(0),
            steps: P::AtomicU64::new(0),
            step_limit: AtomicU64::new(u64::MAX),
        }
    }

    /// Logs loads as well, for [`debts`](crate::crash::debts).
    pub fn with_loads(mut self) -> Self {
        self.with_loads = true;
        self
    }

    /// Leaves the content of freed spans as it is, see [`Simulation`](crate::Simulation).
    pub fn keep_freed(mut self, keeps: bool) -> Self {
        self.keeps_freed = keeps;
        self
    }

    /// Returns the model whose guarantees the medium has.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Sets the number of verbs after which a run panics, so that a loop ends that waits for a
    /// store which a mutant omits. [`Traced::restart`] resets the count.
    pub fn limit_steps(&self, limit: u64) {
        self.step_limit.store(limit, Ordering::Relaxed);
    }

    /// Omits or changes the work of one site from now on; `None` for a faithful medium.
    pub fn set_mutant(&self, mutant: Option<Mutant>) {
        self.recorder().mutant = mutant;
    }

    /// Returns the first event of the log that the mutant changed or omitted since the last
    /// restart: all earlier events are as on a faithful medium.
    pub fn first_change(&self) -> Option<usize> {
        self.recorder().first_change
    }

    /// Returns the verbs of each site so far, over all restarts: what a mutant can change.
    pub fn met(&self) -> Met {
        self.recorder().met.clone()
    }

    /// Logs that the calling thread begins operation number `operation`.
    pub fn begin(&self, operation: u32) {
        self.recorder().note(P::thread(), None, What::Begin { operation });
    }

    /// Logs that operation number `operation` returned to the calling thread.
    pub fn returned(&self, operation: u32) {
        self.recorder().note(P::thread(), None, What::Return { operation });
    }

    /// Logs that the process was killed, and that another one continues with the visible words.
    pub fn exit(&self) {
        self.recorder().note(P::thread(), None, What::Exit);
    }

    /// Takes the log since the beginning, or since the log was last taken.
    pub fn take_log(&self) -> Log {
        self.recorder().take()
    }

    /// Returns how many events the log holds now.
    pub fn log_length(&self) -> usize {
        self.recorder().length()
    }

    /// Returns a copy of all visible words.
    pub fn visible(&self) -> Vec<u64> {
        let count = (self.bytes() / WORD) as usize;
        self.words[..count].iter().map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Begins a new execution with `words` as the whole content, durable, and an empty log.
    ///
    /// # Panics
    /// If `words` exceeds the capacity.
    pub fn restart(&self, words: &[u64]) {
        let mut recorder = self.recorder();
        if recorder.undecided.take().is_some() {
            self.undecided.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
        }
        recorder.restart();
        let (content, rest) = self.words.split_at(words.len());
        for (target, source) in content.iter().zip(words) {
            target.store(*source, Ordering::Relaxed);
        }
        let longer = (self.bytes() / WORD) as usize;
        for target in &rest[..longer.saturating_sub(words.len())] {
            target.store(0, Ordering::Relaxed);
        }
        self.bytes.store(words.len() as u64 * WORD, Ordering::Release);
        self.accesses.store(0, Ordering::Relaxed);
        self.steps.store(0, Ordering::Relaxed);
    }

    /// Restarts with some places undecided: their content is chosen at the first access, as in
    /// `choices`, and after those as the durable one.
    pub(crate) fn restart_lazily(&self, words: &[u64], units: &Units, choices: &[Choice]) {
        self.restart(words);
        let undecided = Undecided::new(units, choices, words.len());
        for word in undecided.words() {
            self.undecided[word / 64].fetch_or(1 << (word % 64), Ordering::Relaxed);
        }
        self.recorder().undecided = Some(undecided);
    }

    /// Ends a lazy run: returns what was chosen, in the order of choice.
    pub(crate) fn end_lazily(&self) -> Vec<Choice> {
        let undecided = self.recorder().undecided.take();
        self.undecided.iter().for_each(|bits| bits.store(0, Ordering::Relaxed));
        undecided.expect("a lazy run was begun, and the judge did not restart the medium").made()
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        // A judge catches the panics of mutants and then restarts the medium.
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scheduling point; also ends a run without end.
    fn step(&self) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        let limit = self.step_limit.load(Ordering::Relaxed);
        assert!(steps < limit, "no end after {limit} accesses to the medium");
    }

    fn window(&self, at: Addr, count: u64) -> Result<core::ops::Range<usize>> {
        match at.word().checked_add(count) {
            Some(end) if end <= self.bytes() / WORD => Ok(at.word() as usize..end as usize),
            _ => Err(out_of_bounds(at, count)),
        }
    }

    /// Chooses the content of every undecided place among `words`.
    fn decide(&self, words: core::ops::Range<usize>) {
        for word in words {
            let bits = self.undecided[word / 64].load(Ordering::Acquire);
            if bits >> (word % 64) & 1 != 0 {
                self.decide_word(&mut self.recorder(), word);
            }
        }
    }

    #[cold]
    fn decide_word(&self, recorder: &mut Recorder, word: usize) {
        let Some(undecided) = recorder.undecided.as_mut() else { return };
        for (word, value) in undecided.decide(word) {
            let bit = 1 << (word % 64);
            // A word that was overwritten since keeps its value, whatever its line held.
            if self.undecided[word / 64].load(Ordering::Relaxed) & bit != 0 {
                self.words[word].store(value, Ordering::Relaxed);
                self.undecided[word / 64].fetch_and(!bit, Ordering::Release);
            }
        }
    }

    /// Stores `value` to every word of a span, without a log entry for each. What a crash left
    /// there does not matter any more: an undecided word needs no choice.
    fn overwrite(&self, words: core::ops::Range<u64>, value: u64) {
        for word in words {
            self.undecided[word as usize / 64].fetch_and(!(1 << (word % 64)), Ordering::Release);
            self.words[word as usize].store(value, Ordering::Release);
        }
    }

    fn load(&self, cx: TracedContext, word: usize) -> u64 {
        self.step();
        self.decide(word..word + 1);
        if self.with_loads {
            self.recorder().note(cx.thread, None, What::Load { word: word as u32 });
        }
        self.words[word].load(Ordering::Acquire)
    }

    fn store(&self, cx: TracedContext, word: usize, value: u64, how: How, site: Option<Site>) {
        self.step();
        self.decide(word..word + 1);
        let mut recorder = self.recorder();
        if recorder.store(cx, word as u32, value, how, site) {
            self.words[word].store(value, Ordering::Release);
        }
    }

    fn compare_exchange(
        &self,
        cx: TracedContext,
        word: usize,
        exchange: (u64, u64),
        site: Site,
    ) -> core::result::Result<u64, u64> {
        self.step();
        self.decide(word..word + 1);
        let mut recorder = self.recorder();
        if self.with_loads {
            recorder.note(cx.thread, None, What::Load { word: word as u32 });
        }
        let (current, new) = exchange;
        let found = self.words[word].load(Ordering::Acquire);
        if found != current {
            return Err(found);
        }
        if recorder.store(cx, word as u32, new, How::Commit, Some(site)) {
            self.words[word].store(new, Ordering::Release);
        }
        Ok(found)
    }
}
