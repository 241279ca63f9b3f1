//! A design on one medium as a value: plain functions instead of types.
//!
//! Code that serves, measures or judges engines takes a [`Design`] and is compiled once. Which
//! engines are compiled for a medium is decided where the value is made.

use everhash_pmem::{Boot, Guarantees, Media, Region, Site};

use crate::{
    Capabilities, Checked, Durability, Engine, Executor, Form, Opening, Result, Setting, Settings,
    Table,
};

/// For how many pairs a new table is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sizing {
    /// As many as the default settings say.
    #[default]
    Usual,
    /// So many, without growing: [`Engine::sized_for`].
    Pairs(u64),
    /// So few that tests reach every path: [`Engine::tiny`].
    Tiny,
}

/// The settings of a new table: those of a size, and what differs from them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// Where the settings come from.
    pub sizing: Sizing,
    /// Names and values that replace them, in order.
    pub changes: &'a [(&'a str, u64)],
}

/// An engine on one medium.
///
/// ```
/// use everhash_index::{Choice, Design, Engine, Inline, Opening};
/// use everhash_pmem::{Image, Region};
///
/// fn first_insert<E: Engine>() -> everhash_index::Result<bool> {
///     let design = Design::<Image>::of::<E>();
///     let region = Region::new(Image::new(0, 1 << 20));
///     let table = design.create(region, &Opening::default(), Choice::default(), &Inline)?;
///     table.insert(b"8 bytes.", b"8 bytes.")
/// }
/// ```
pub struct Design<M: Media> {
    /// Its name: [`Engine::NAME`].
    pub name: &'static str,
    /// What it promises.
    pub capabilities: Capabilities,
    /// What can be chosen for a new pool.
    pub settings: &'static [Setting],
    /// Every place in its code that persists something.
    pub sites: &'static [&'static [Site]],
    /// Settings that every new table gets, whatever its size.
    changes: &'static [(&'static str, u64)],
    get: Get,
    bytes_needed: BytesNeeded,
    create: Create<M>,
    open: Open<M>,
    open_read_only: OpenReadOnly<M>,
    check: Check<M>,
    salvage: Salvage<M>,
}

type Changes<'a> = &'a [&'a [(&'a str, u64)]];
type Get = fn(Form, Sizing, Changes<'_>, &str) -> Result<Option<u64>>;
type BytesNeeded = fn(Form, Sizing, Changes<'_>, Guarantees) -> Result<u64>;
type Create<M> =
    fn(Region<M>, &Opening, Sizing, Changes<'_>, &dyn Executor) -> Result<Box<dyn Table>>;
type Open<M> = fn(Region<M>, Boot, &dyn Executor) -> Result<Box<dyn Table>>;
type OpenReadOnly<M> = fn(Region<M>, &dyn Executor) -> Result<Box<dyn Table>>;
type Check<M> = fn(&Region<M>, Boot, &mut dyn FnMut(&[u8], &[u8])) -> Result<Checked>;
type Salvage<M> =
    fn(&Region<M>, Boot, &mut dyn FnMut(&[u8], &[u8]), &mut dyn FnMut(crate::Error)) -> Result<()>;

impl<M: Media> Design<M> {
    /// Returns the design of `E`, compiled for the medium `M`.
    pub const fn of<E: Engine>() -> Self {
        Design {
            name: E::NAME,
            capabilities: E::CAPABILITIES,
            settings: E::Settings::ALL,
            sites: E::SITES,
            changes: &[],
            get: |form, sizing, changes, name| Ok(settings::<E>(form, sizing, changes)?.get(name)),
            bytes_needed: |form, sizing, changes, guarantees| {
                E::bytes_needed(form, &settings::<E>(form, sizing, changes)?, guarantees)
            },
            create: |region, opening, sizing, changes, executor| {
                let settings = settings::<E>(opening.form, sizing, changes)?;
                Ok(Box::new(crate::create::<E, M>(region, opening, &settings, executor)?))
            },
            open: |region, boot, executor| {
                Ok(Box::new(crate::open::<E, M>(region, boot, executor)?))
            },
            open_read_only: |region, executor| {
                Ok(Box::new(crate::open_read_only::<E, M>(region, executor)?))
            },
            check: E::check::<M>,
            salvage: E::salvage::<M>,
        }
    }

    /// Returns the same design with other settings for every new table.
    #[must_use]
    pub const fn with_settings(self, changes: &'static [(&'static str, u64)]) -> Self {
        Design { changes, ..self }
    }

    /// Returns the same design, claiming other modes of durability.
    #[must_use]
    pub const fn with_durability(self, durability: &'static [Durability]) -> Self {
        Design { capabilities: Capabilities { durability, ..self.capabilities }, ..self }
    }

    /// Returns the value that a setting has in a new table; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a choice is not possible.
    pub fn setting(&self, form: Form, choice: Choice<'_>, name: &str) -> Result<Option<u64>> {
        (self.get)(form, choice.sizing, &[self.changes, choice.changes], name)
    }

    /// Returns how long the pool of a new table is at least: [`Engine::bytes_needed`]. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if there can be no such table.
    pub fn bytes_needed(
        &self,
        form: Form,
        choice: Choice<'_>,
        guarantees: Guarantees,
    ) -> Result<u64> {
        (self.bytes_needed)(form, choice.sizing, &[self.changes, choice.changes], guarantees)
    }

    /// Makes a pool with an empty table on `region` and opens it.
    ///
    /// # Errors
    /// As [`create`](crate::create()), and [`Error::Setting`](crate::Error::Setting).
    pub fn create(
        &self,
        region: Region<M>,
        opening: &Opening,
        choice: Choice<'_>,
        executor: &dyn Executor,
    ) -> Result<Box<dyn Table>> {
        let changes = [self.changes, choice.changes];
        (self.create)(region, opening, choice.sizing, &changes, executor)
    }

    /// Opens the pool on `region`.
    ///
    /// # Errors
    /// As [`open`](crate::open()).
    pub fn open(
        &self,
        region: Region<M>,
        boot: Boot,
        executor: &dyn Executor,
    ) -> Result<Box<dyn Table>> {
        (self.open)(region, boot, executor)
    }

    /// Opens the pool on `region` for reading only; it must have been closed cleanly.
    ///
    /// # Errors
    /// As [`open_read_only`](crate::open_read_only()).
    pub fn open_read_only(
        &self,
        region: Region<M>,
        executor: &dyn Executor,
    ) -> Result<Box<dyn Table>> {
        (self.open_read_only)(region, executor)
    }

    /// Reads a pool at rest: [`Engine::check`].
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn check(
        &self,
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked> {
        (self.check)(region, boot, visit)
    }

    /// Reads what is intact of a damaged pool at rest: [`Engine::salvage`].
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if nothing can be read.
    pub fn salvage(
        &self,
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        report: &mut dyn FnMut(crate::Error),
    ) -> Result<()> {
        (self.salvage)(region, boot, visit, report)
    }

    /// Returns whether a write that returned may be lost by default, until it is synced.
    pub fn batches(&self) -> bool {
        self.capabilities.durability.first() == Some(&Durability::Batch)
    }
}

impl<M: Media> Clone for Design<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media> Copy for Design<M> {}

impl<M: Media> core::fmt::Debug for Design<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Design")
            .field("name", &self.name)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

fn settings<E: Engine>(form: Form, sizing: Sizing, changes: Changes<'_>) -> Result<E::Settings> {
    let mut settings = match sizing {
        Sizing::Usual => E::Settings::default(),
        Sizing::Pairs(pairs) => E::sized_for(form, pairs),
        Sizing::Tiny => E::tiny(form),
    };
    for (name, value) in changes.iter().copied().flatten() {
        settings.set(name, *value)?;
    }
    Ok(settings)
}
