//! A small engine with a switch: sound, or with one of the planted bugs.
//!
//! Buckets of seven slots in one array that is rebuilt twice as large when one overflows. A pair
//! becomes true by a bit of its bucket's first word; a value is replaced in place under a journal
//! of one entry; the root is one word. Readers take no lock: a sequence in DRAM is odd from before
//! the first store of a change until it is durable.

use everhash_index::{
    Capabilities, Checked, Durability, Engine, Executor, Form, Result, Setting, Settings,
};
use everhash_pmem::{Boot, LINE, Media, Pool, Region, Site, Space, Span, pool};

use super::bug::Planted;
use super::check;
use super::layout::{Bucket, Home, ROOT, Root};
use super::table::SlotsTable;

/// The places where the engine persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The root and the buckets of an empty pool.
        FORMAT = "slots/format/all";
        /// A pair and its tag, before their bit.
        PAIR = "slots/insert/pair";
        /// The bit that makes a pair true.
        BIT = "slots/insert/bit";
        /// The old value, in the journal.
        OLD = "slots/update/old";
        /// The journal's word that makes it count.
        JOURNAL = "slots/update/journal";
        /// The new value.
        VALUE = "slots/update/value";
        /// The journal's word that ends it.
        DONE = "slots/update/done";
        /// The bits without the one of a removed pair.
        REMOVE = "slots/remove/bit";
        /// New buckets, before the root names them.
        BUCKETS = "slots/grow/buckets";
        /// The root that names them.
        ROOT = "slots/grow/root";
        /// The number of pairs, before a clean close.
        COUNT = "slots/close/count";
        /// The value that recovery restores.
        RESTORE = "slots/open/restore";
        /// Everything that recovery found.
        RECOVERED = "slots/open/recovered";
        /// The lock that only a bug has.
        LOCK = "slots/bug/lock";
    }
}

/// The engine.
pub struct Slots;

/// Its settings: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSettings;

impl Settings for NoSettings {
    const ALL: &'static [Setting] = &[];

    fn get(&self, _name: &str) -> Option<u64> {
        None
    }

    fn set(&mut self, name: &str, _value: u64) -> Result<()> {
        Err(Self::unknown(name))
    }
}

impl Engine for Slots {
    const NAME: &'static str = "slots";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: false,
        durability: &[Durability::Immediate],
        bare: false,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] = &[sites::ALL];

    type Settings = NoSettings;

    type Table<M: Media> = SlotsTable<M>;

    fn tiny(_form: Form) -> NoSettings {
        NoSettings
    }

    fn sized_for(_form: Form, _items: u64) -> NoSettings {
        NoSettings
    }

    fn format<M: Media>(pool: &Pool<M>, _settings: &NoSettings) -> Result<()> {
        let space = Space::fresh(pool.region().clone(), pool::DATA);
        let taken = space.take(2 * Bucket::BYTES as u64, Bucket::BYTES as u64)?;
        let home = Home { start: taken.span.start, log2: 1 };
        let pm = pool.access();
        pm.write_words(home.start, &[0; 2 * Bucket::WORDS])?;
        let mut root = [0; Root::WORDS];
        root[Root::TABLE] = home.word();
        root[Root::LOG2] = 1;
        pm.write_words(ROOT, &root)?;
        pm.flush(taken.span, sites::FORMAT);
        pm.persist(Span::new(ROOT, Root::BYTES as u64 / LINE * 8), sites::FORMAT)?;
        Ok(())
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<SlotsTable<M>> {
        SlotsTable::open(pool, Planted::now())
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        check::check(region, Planted::now(), visit)
    }
}
