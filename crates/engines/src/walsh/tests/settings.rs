//! WALSH with tiny settings that the engine itself does not have as its first, for the judges:
//! every write durable, and epochs on every medium.

use everhash_index::{Capabilities, Checked, Durability, Engine, Executor, Form, Result};
use everhash_pmem::{Boot, Media, Pool, Region, Site};

use crate::walsh::{Walsh, WalshSettings, WalshTable};

macro_rules! with_settings {
    ($( #[doc = $about:literal] $name:ident: $durability:expr, $settings:expr; )*) => {$(
        #[doc = $about]
        pub struct $name;

        impl Engine for $name {
            const NAME: &'static str = Walsh::NAME;

            const CAPABILITIES: Capabilities =
                Capabilities { durability: &[$durability], ..Walsh::CAPABILITIES };

            const SITES: &'static [&'static [Site]] = Walsh::SITES;

            type Settings = WalshSettings;
            type Table<M: Media> = WalshTable<M>;

            fn tiny(form: Form) -> WalshSettings {
                $settings(Walsh::tiny(form))
            }

            fn sized_for(form: Form, items: u64) -> WalshSettings {
                $settings(Walsh::sized_for(form, items))
            }

            fn format<M: Media>(pool: &Pool<M>, settings: &WalshSettings) -> Result<()> {
                Walsh::format(pool, settings)
            }

            fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<WalshTable<M>> {
                Walsh::open(pool, executor)
            }

            fn check<M: Media>(
                region: &Region<M>,
                boot: Boot,
                visit: &mut dyn FnMut(&[u8], &[u8]),
            ) -> Result<Checked> {
                Walsh::check(region, boot, visit)
            }
        }
    )*};
}

with_settings! {
    /// Every write is durable when it returns.
    Immediate: Durability::Immediate, |tiny| WalshSettings { durability: 1, ..tiny };
    /// Areas share epochs on every medium.
    Epochal: Durability::Batch, |tiny| WalshSettings { epochs: 1, ..tiny };
}
