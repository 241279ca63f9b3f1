//! The reference engine: trivially correct, slow, and the template of an engine.
//!
//! Every write makes a complete new table beside the old one and then switches to it by storing
//! one word, the root. It shows that the judges raise no false alarms, and a newcomer can copy it.
//! Readers take the lock that writers hold until their root is durable: the one thing in which
//! the reference gives less than the contract asks for.
//!
//! | room | holds |
//! |---|---|
//! | `layout` | every byte on the medium |
//! | `table` | the operations, and recovery, which is reading the root |
//! | `check` | the same bytes read by other code |
//!
//! There is no `resize` and no `concurrency`: a table is replaced, and one lock covers all.

mod check;
mod layout;
mod table;
#[cfg(test)]
mod tests;

pub use table::ReferenceTable;

use everhash_index::{
    Capabilities, Checked, Durability, Engine, Executor, Form, Result, Setting, Settings,
};
use everhash_pmem::{Boot, Media, Pool, Region, Site};

use layout::{ROOT, Root};

/// The places where the engine persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A complete table, before the root names it.
        TABLE = "plain/write/table";
        /// The root that makes a table true.
        ROOT = "plain/write/root";
        /// All that recovery found and will serve.
        RECOVERED = "plain/open/recovered";
    }
}

/// The reference engine.
pub struct Reference;

/// The settings of the reference engine: there are none.
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

impl Engine for Reference {
    const NAME: &'static str = "plain";

    const CAPABILITIES: Capabilities = Capabilities {
        forms: &[Form::WORDS, Form::DOUBLE_WORDS],
        byte_strings: true,
        durability: &[Durability::Immediate],
        bare: true,
        atomic_batches: false,
        exact_len: true,
        grows: true,
    };

    const SITES: &'static [&'static [Site]] = &[sites::ALL];

    type Settings = NoSettings;

    type Table<M: Media> = ReferenceTable<M>;

    fn tiny(_form: Form) -> NoSettings {
        NoSettings
    }

    fn sized_for(_form: Form, _items: u64) -> NoSettings {
        NoSettings
    }

    fn format<M: Media>(pool: &Pool<M>, _settings: &NoSettings) -> Result<()> {
        // The pool makes all of this durable before its header says that it exists.
        let root = ROOT.plus(Root::TABLE as u64);
        pool.access().store(root, layout::root_word(everhash_pmem::Addr::NULL))?;
        Ok(())
    }

    fn open<M: Media>(pool: Pool<M>, _executor: &dyn Executor) -> Result<ReferenceTable<M>> {
        ReferenceTable::open(pool)
    }

    fn check<M: Media>(
        region: &Region<M>,
        _boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        check::check(region, visit)
    }
}
