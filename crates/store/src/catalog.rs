//! The catalog: engines by name, one row each.

use everhash_index::{
    Capabilities, Checked, Durability as Mode, Engine, Executor, Opening, Result, Setting,
    Settings, Table,
};
use everhash_pmem::{Boot, FileMedium, Region};

use crate::Error;

/// A medium of the store.
pub(crate) type File = Region<FileMedium>;

/// An engine, as the store and its faces see it.
pub struct EngineInfo {
    /// Its name, which lies in every database.
    pub name: &'static str,
    /// Its idea in one sentence.
    pub idea: &'static str,
    /// What it promises.
    pub capabilities: Capabilities,
    /// What can be chosen for a new database.
    pub settings: &'static [Setting],
    pub(crate) create: Create,
    pub(crate) open: Open,
    pub(crate) open_read_only: OpenReadOnly,
    pub(crate) check: Check,
}

type Create = fn(File, &Opening, &Chosen<'_>, &dyn Executor) -> Result<Box<dyn Table>>;
type Open = fn(File, Boot, &dyn Executor) -> Result<Box<dyn Table>>;
type OpenReadOnly = fn(File, &dyn Executor) -> Result<Box<dyn Table>>;
type Check = fn(&File, &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked>;

/// What was chosen for a new database.
pub(crate) struct Chosen<'a> {
    pub(crate) expected_items: Option<u64>,
    /// Whether a write shall be durable when it returns.
    pub(crate) immediate: bool,
    pub(crate) settings: &'a [(String, u64)],
}

/// Every engine; the first is the default.
static ENGINES: &[EngineInfo] = &[
    row::<everhash_engines::walsh::Walsh>(
        "chains in logs, their heads in DRAM; writes are collected and made durable together",
    ),
    row::<everhash_engines::wophi::Wophi>(
        "chained buckets, pre-allocated; log-free commits of eight bytes",
    ),
    row::<everhash_engines::turbo::Turbo>(
        "sharded linear probing in buckets of 256 bytes; recovery apart from the number of pairs",
    ),
];

const fn row<E: Engine>(idea: &'static str) -> EngineInfo {
    EngineInfo {
        name: E::NAME,
        idea,
        capabilities: E::CAPABILITIES,
        settings: E::Settings::ALL,
        create: create::<E>,
        open: |region, boot, executor| {
            Ok(Box::new(everhash_index::open::<E, _>(region, boot, executor)?))
        },
        open_read_only: |region, executor| {
            Ok(Box::new(everhash_index::open_read_only::<E, _>(region, executor)?))
        },
        check: |region, visit| E::check(region, visit),
    }
}

fn create<E: Engine>(
    region: File,
    opening: &Opening,
    chosen: &Chosen<'_>,
    executor: &dyn Executor,
) -> Result<Box<dyn Table>> {
    let sized = |items| E::sized_for(opening.form, items);
    let mut settings = chosen.expected_items.map_or_else(E::Settings::default, sized);
    let modes = E::CAPABILITIES.durability;
    if modes.len() > 1 {
        settings.set("durability", u64::from((modes[0] == Mode::Immediate) != chosen.immediate))?;
    }
    for (name, value) in chosen.settings {
        settings.set(name, *value)?;
    }
    Ok(Box::new(everhash_index::create::<E, _>(region, opening, &settings, executor)?))
}

/// Returns every engine; the first is the default.
///
/// ```
/// let names: Vec<_> = everhash_store::engines().iter().map(|engine| engine.name).collect();
/// assert!(names.contains(&"wophi"));
/// ```
pub fn engines() -> &'static [EngineInfo] {
    ENGINES
}

/// Returns the engine `name`.
///
/// # Errors
/// [`Error::UnknownEngine`], which lists those there are.
pub fn engine(name: &str) -> crate::Result<&'static EngineInfo> {
    ENGINES.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
        Error::UnknownEngine { name: name.to_owned(), known: names.join(", ") }
    })
}

impl core::fmt::Debug for EngineInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EngineInfo")
            .field("name", &self.name)
            .field("idea", &self.idea)
            .field("capabilities", &self.capabilities)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
