//! A table on a medium in memory, with its openings and endings.

use std::sync::Arc;

use everhash_index::{Durability, Engine, Error, Form, Inline, Opening, Result, Table};
use everhash_pmem::{Boot, Image, Media, Region};

use crate::workload::Shape;

/// Ends the process again and again between writes, without a sync, and looks whether a write is
/// lost.
///
/// # Errors
/// Those of the table.
///
/// # Panics
/// If a write that returned is lost.
pub fn survives_ended_processes<E: Engine>(form: Form) -> Result<()> {
    let shape = Shape::tiny(form);
    let mut session = Session::<E>::tiny(form, 1 << 20)?;
    for number in 0..300u16 {
        session.table().put(&shape.key(number), &shape.value(number.into()))?;
        if number % 7 == 0 {
            session.kill_unsynced()?;
        }
        assert_eq!(session.table().len()?, u64::from(number) + 1, "{form}");
    }
    let mut value = Vec::new();
    for number in 0..300u16 {
        assert!(session.table().get(&shape.key(number), &mut value)?, "{form}: {number}");
        assert_eq!(value, shape.value(number.into()), "{form}");
    }
    Ok(())
}

/// A table, the medium under it, and the boots of an imagined machine.
pub struct Session<E: Engine, M: Media = Image> {
    region: Region<M>,
    opening: Opening,
    table: Option<Box<E::Table<M>>>,
}

impl<E: Engine> Session<E, Image> {
    /// Makes an empty table of the engine's tiny settings on an image.
    ///
    /// # Errors
    /// As [`everhash_index::create`].
    pub fn tiny(form: Form, capacity_bytes: u64) -> Result<Self> {
        Self::create(Image::new(0, capacity_bytes), form, &E::tiny(form))
    }
}

impl<E: Engine, M: Media> Session<E, M> {
    /// Makes an empty table on a medium.
    ///
    /// # Errors
    /// As [`everhash_index::create`].
    pub fn create(medium: impl Into<Arc<M>>, form: Form, settings: &E::Settings) -> Result<Self> {
        let region = Region::new(medium);
        let opening = Opening { form, ..Opening::default() };
        let table = everhash_index::create::<E, M>(region.clone(), &opening, settings, &Inline)?;
        Ok(Session { region, opening, table: Some(Box::new(table)) })
    }

    /// Opens the table that lies on a medium, in another boot than the one that made it.
    ///
    /// # Errors
    /// As [`everhash_index::open`].
    pub fn open(medium: impl Into<Arc<M>>, form: Form) -> Result<Self> {
        let opening = Opening { form, ..Opening::default() };
        let mut session = Session { region: Region::new(medium), opening, table: None };
        session.outage()?;
        Ok(session)
    }

    /// Opens the table that lies on a medium after a power failure, whatever the boot before was.
    ///
    /// # Errors
    /// As [`everhash_index::open`].
    pub fn open_after_power(medium: impl Into<Arc<M>>, form: Form) -> Result<Self> {
        let Boot([machine, _]) = Opening::default().boot;
        let boot = Boot([machine, u64::MAX]);
        let opening = Opening { form, boot, ..Opening::default() };
        let mut session = Session { region: Region::new(medium), opening, table: None };
        session.attach()?;
        Ok(session)
    }

    /// Returns the open table.
    ///
    /// # Panics
    /// If an opening failed before: there is none then.
    pub fn table(&self) -> &E::Table<M> {
        self.table.as_deref().expect("a session without a table is not used again")
    }

    /// Returns the medium.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Returns what is known when the pool is opened.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Closes the table.
    ///
    /// # Errors
    /// As [`Table::close`].
    pub fn close(&mut self) -> Result<()> {
        match self.table.take() {
            Some(table) => table.close(),
            None => Err(Error::Poisoned),
        }
    }

    /// Closes the table and opens it again.
    ///
    /// # Errors
    /// As [`Table::close`] and [`everhash_index::open`].
    pub fn reopen(&mut self) -> Result<()> {
        self.close()?;
        self.attach()
    }

    /// Ends the process, and opens the table again in the same boot.
    ///
    /// An engine that batches durability is synced before: which of its writes survive is for the
    /// crash judge to say.
    ///
    /// # Errors
    /// As [`Table::sync`] and [`everhash_index::open`].
    pub fn kill(&mut self) -> Result<()> {
        if let (Some(table), true) = (self.table.take(), batches::<E>()) {
            table.sync()?;
        }
        self.attach()
    }

    /// As [`Session::kill`], without a sync before it.
    ///
    /// # Errors
    /// As [`everhash_index::open`].
    pub fn kill_unsynced(&mut self) -> Result<()> {
        self.table = None;
        self.attach()
    }

    /// Ends the process, and opens the table again in another boot; all stores are there.
    ///
    /// # Errors
    /// As [`Session::kill`].
    pub fn outage(&mut self) -> Result<()> {
        let Boot([machine, boot]) = self.opening.boot;
        self.opening.boot = Boot([machine, boot + 1]);
        self.kill()
    }

    fn attach(&mut self) -> Result<()> {
        let region = self.region.clone();
        let table = everhash_index::open::<E, M>(region, self.opening.boot, &Inline)?;
        self.table = Some(Box::new(table));
        Ok(())
    }
}

/// Returns whether a write of the engine that returned may be lost, until it is synced.
pub(crate) fn batches<E: Engine>() -> bool {
    E::CAPABILITIES.durability.first() == Some(&Durability::Batch)
}
