//! The stage of a historic bug: a medium, a protocol, a promise.

use std::ops::ControlFlow;

use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::Traced;
use everhash_pmem::{Access, Addr, Image, Region, Site, Span};

/// Length of the medium. Unit: bytes.
const BYTES: u64 = 8192;

const SITE: Site = Site::new("historic");

/// A protocol with and without its bug.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What a crash may leave.
    pub model: Model,
    /// Makes the state before; all of it is durable.
    pub setup: fn(&Pm<'_>),
    /// The operations, with the bug or without.
    pub run: fn(&Pm<'_>, bug: bool),
    /// What must hold after a crash, when so many operations had returned; may recover and go on.
    pub promise: fn(&Reader<'_>, returned: u32, bug: bool) -> Result<(), String>,
}

impl Case {
    /// Explores every crash; returns the number of states, or what is wrong in one.
    pub fn explore(&self, bug: bool) -> Result<u64, String> {
        let region = Region::new(Traced::new(self.model, BYTES, BYTES));
        let pm = Pm { pm: region.access() };
        (self.setup)(&pm);
        let before = region.media().visible();
        region.media().restart(&before);
        (self.run)(&pm, bug);
        let log = region.media().take_log();
        let mut explorer = Explorer::new(Memory::of(self.model, before), log.events());
        let mut seen = Seen::default();
        let mut broken = None;
        while explorer.next_point().is_some() {
            let flow = explorer.states(&Limits::default(), &mut seen, 0, &mut |state| {
                let image = Region::new(Image::of(state.words(), BYTES, BYTES));
                let reader = Reader { pm: image.access() };
                match (self.promise)(&reader, state.moment().returned, bug) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(wrong) => {
                        broken = Some(format!("state {}: {wrong}", state.name()));
                        ControlFlow::Break(())
                    }
                }
            });
            if flow.is_break() {
                break;
            }
        }
        broken.map_or(Ok(explorer.count().states), Err)
    }
}

/// The medium while the protocol runs.
pub struct Pm<'a> {
    pm: Access<'a, Traced>,
}

impl Pm<'_> {
    /// Loads a word of a line.
    pub fn load(&self, line: u64, word: u64) -> u64 {
        self.pm.load(at(line, word)).expect("cases stay inside the medium")
    }

    /// Stores a word of a line.
    pub fn store(&self, line: u64, word: u64, value: u64) {
        self.pm.store(at(line, word), value).expect("cases stay inside the medium");
    }

    /// Stores words of a line past the caches.
    pub fn stream(&self, line: u64, words: &[u64]) {
        self.pm.write_words_nt(at(line, 0), words, SITE).expect("cases stay inside the medium");
    }

    /// Begins to write a line back.
    pub fn flush(&self, line: u64) {
        self.pm.flush(Span::new(at(line, 0), 8), SITE);
    }

    /// Waits for what was flushed.
    pub fn fence(&self) {
        self.pm.fence(SITE).expect("a traced medium has no failing fence");
    }

    /// Flushes a line and waits.
    pub fn persist(&self, line: u64) {
        self.flush(line);
        self.fence();
    }

    /// Makes everything durable.
    pub fn sync(&self) {
        self.pm.sync(SITE).expect("a traced medium has no failing sync");
    }

    /// Performs operation number `number`, counted from 0.
    pub fn operation(&self, number: u32, work: impl FnOnce()) {
        self.pm.media().begin(number);
        work();
        self.pm.media().returned(number);
    }
}

/// The medium after a crash.
pub struct Reader<'a> {
    pm: Access<'a, Image>,
}

impl Reader<'_> {
    /// Loads a word of a line.
    pub fn load(&self, line: u64, word: u64) -> u64 {
        self.pm.load(at(line, word)).expect("cases stay inside the medium")
    }

    /// Stores a word of a line.
    pub fn store(&self, line: u64, word: u64, value: u64) {
        self.pm.store(at(line, word), value).expect("cases stay inside the medium");
    }
}

fn at(line: u64, word: u64) -> Addr {
    Addr::new(line * 64 + word * 8)
}

/// Returns the promise's answer to a condition.
pub fn holds(condition: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}
