//! WALSH with tiny settings and every write durable, for the judges: they take an engine's first
//! durability for the one it has.

use everhash_index::{Capabilities, Checked, Durability, Engine, Executor, Form, Result};
use everhash_pmem::{Media, Pool, Region, Site};

use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// WALSH with `durability = 1`.
pub struct Immediate;

impl Engine for Immediate {
    const NAME: &'static str = Walsh::NAME;

    const CAPABILITIES: Capabilities =
        Capabilities { durability: &[Durability::Immediate], ..Walsh::CAPABILITIES };

    const SITES: &'static [&'static [Site]] = Walsh::SITES;

    type Settings = WalshSettings;
    type Table<M: Media> = WalshTable<M>;

    fn tiny(form: Form) -> WalshSettings {
        WalshSettings { durability: 1, ..Walsh::tiny(form) }
    }

    fn sized_for(form: Form, items: u64) -> WalshSettings {
        WalshSettings { durability: 1, ..Walsh::sized_for(form, items) }
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
        Walsh::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WalshTable<M>> {
        Walsh::open(pool, executor)
    }

    fn check<M: Media>(region: &Region<M>, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked> {
        Walsh::check(region, visit)
    }
}
