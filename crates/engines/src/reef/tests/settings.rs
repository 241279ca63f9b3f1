//! Reef with tiny settings of which every write is durable when it returns, for the judges.

use everhash_index::{Capabilities, Checked, Durability, Engine, Executor, Form, Result};
use everhash_pmem::{Boot, Media, Pool, Region, Site};

use crate::reef::{Reef, ReefSettings, ReefTable};

/// Every write is durable when it returns.
pub struct Immediate;

impl Engine for Immediate {
    const NAME: &'static str = Reef::NAME;

    const CAPABILITIES: Capabilities =
        Capabilities { durability: &[Durability::Immediate], ..Reef::CAPABILITIES };

    const SITES: &'static [&'static [Site]] = Reef::SITES;

    type Settings = ReefSettings;
    type Table<M: Media> = ReefTable<M>;

    fn tiny(form: Form) -> ReefSettings {
        ReefSettings { durability: 1, ..Reef::tiny(form) }
    }

    fn sized_for(form: Form, items: u64) -> ReefSettings {
        ReefSettings { durability: 1, ..Reef::sized_for(form, items) }
    }

    fn format<M: Media>(pool: &Pool<M>, settings: &ReefSettings) -> Result<()> {
        Reef::format(pool, settings)
    }

    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<ReefTable<M>> {
        Reef::open(pool, executor)
    }

    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        Reef::check(region, boot, visit)
    }
}
