//! The catalog: every engine of the registry, compiled for files.

use std::path::Path;
use std::sync::LazyLock;

use everhash_engines::{ENGINES, ON_FILES};
use everhash_index::{
    Capabilities, Choice, Design, Durability as Mode, Executor, Form, Opening, Result, Setting,
    Sizing, Table,
};
use everhash_pmem::{FileMedium, Guarantees, Region};

use crate::Error;
use crate::error::Shown;

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
    pub(crate) design: Design<FileMedium>,
}

/// What was chosen for a new database.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    pub(crate) expected_items: Option<u64>,
    /// Whether a write shall be durable when it returns.
    pub(crate) immediate: bool,
    pub(crate) settings: &'a [(String, u64)],
}

/// For how many pairs a new database is sized at most.
///
/// Source: ours; far more than a file holds, and so few that no engine's sum overflows.
const MOST_ITEMS: u64 = 1 << 40;

static CATALOG: LazyLock<Vec<EngineInfo>> = LazyLock::new(|| {
    let rows = ENGINES.iter().zip(&ON_FILES);
    let info = |(about, design): (&everhash_engines::About, &Design<FileMedium>)| EngineInfo {
        name: about.name,
        idea: about.idea,
        capabilities: about.capabilities,
        settings: design.settings,
        design: *design,
    };
    rows.map(info).collect()
});

impl EngineInfo {
    /// Refuses a new database that is longer than its file may become, before there is a file, and
    /// one for more pairs than its engine can make a table for. Returns for how many it is to be
    /// made: none in particular if that contradicts the chosen settings, which have precedence.
    ///
    /// # Errors
    /// [`Error::TooManyExpected`], which names the most that would do; [`Error::File`] if it is not
    /// for their number that there can be no such table.
    pub(crate) fn admit(
        &self,
        path: &Path,
        chosen: &Chosen<'_>,
        (form, guarantees): (Form, Guarantees),
        capacity_bytes: u64,
    ) -> crate::Result<Option<u64>> {
        let possible = |settings, expected_items: Option<u64>| -> crate::Result<()> {
            let chosen = Chosen { expected_items, settings, ..*chosen };
            let needed = self
                .with_choice(&chosen, |choice| self.design.bytes_needed(form, choice, guarantees));
            match needed.map_err(|error| Error::of(path, error))? {
                needed if needed <= capacity_bytes => Ok(()),
                needed => Err(Error::of(path, everhash_index::Error::Full { needed })),
            }
        };
        let admitted = |expected_items| possible(chosen.settings, expected_items);
        let Some(expected) = chosen.expected_items else { return admitted(None).map(|()| None) };
        let fits = |items| items <= MOST_ITEMS && admitted(Some(items)).is_ok();
        if fits(expected) {
            return Ok(Some(expected));
        }
        // Where only the chosen settings forbid the size, the fewer pairs with which they agree
        // would make a table that may not grow to what they allow.
        let wish = Some(expected.min(MOST_ITEMS));
        let is_odd = |settings| possible(settings, wish).is_err_and(|error| error.is_setting());
        if is_odd(chosen.settings) && !is_odd(&[]) {
            return admitted(None).map(|()| None);
        }
        admitted(Some(0))?;
        let (mut most, mut refused) = (0, expected);
        while refused - most > 1 {
            let middle = most + (refused - most) / 2;
            if fits(middle) { most = middle } else { refused = middle }
        }
        let (path, engine) = (Shown(path.to_owned()), self.name);
        Err(Error::TooManyExpected { path, engine, expected, most })
    }

    /// Makes a database with what was chosen for it.
    pub(crate) fn create(
        &self,
        file: File,
        opening: &Opening,
        chosen: &Chosen<'_>,
        executor: &dyn Executor,
    ) -> Result<Box<dyn Table>> {
        self.with_choice(chosen, |choice| self.design.create(file, opening, choice, executor))
    }

    fn with_choice<T>(&self, chosen: &Chosen<'_>, make: impl FnOnce(Choice<'_>) -> T) -> T {
        let sizing = chosen.expected_items.map_or(Sizing::Usual, Sizing::Pairs);
        let modes = self.capabilities.durability;
        let second = u64::from((modes[0] == Mode::Immediate) != chosen.immediate);
        let mode = (modes.len() > 1).then_some(("durability", second));
        let own = chosen.settings.iter().map(|(name, value)| (name.as_str(), *value));
        let changes: Vec<_> = mode.into_iter().chain(own).collect();
        make(Choice { sizing, changes: &changes })
    }
}

/// Returns every engine; the first is the default.
///
/// ```
/// let names: Vec<_> = everhash_store::engines().iter().map(|engine| engine.name).collect();
/// assert!(names.contains(&"wophi"));
/// ```
pub fn engines() -> &'static [EngineInfo] {
    &CATALOG
}

/// Returns the engine `name`.
///
/// # Errors
/// [`Error::UnknownEngine`], which lists those there are.
pub fn engine(name: &str) -> crate::Result<&'static EngineInfo> {
    CATALOG.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<_> = CATALOG.iter().map(|engine| engine.name).collect();
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
