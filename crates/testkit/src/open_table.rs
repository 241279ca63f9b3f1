//! A table of a design on a medium in memory, with its openings and endings.

use std::sync::Arc;

use everhash_index::{Choice, Design, Error, Form, Inline, Opening, Result, Sizing, Table};
use everhash_pmem::{Boot, Image, Media, Region};

use crate::Failure;
use crate::model::{Pairs, read_out};

/// A table, the medium under it, and the boots of an imagined machine: what the judges work on.
pub struct OpenTable<M: Media = Image> {
    design: Design<M>,
    region: Region<M>,
    boot: Boot,
    table: Option<Box<dyn Table>>,
}

impl OpenTable<Image> {
    /// Makes an empty table with tiny settings on an image.
    ///
    /// # Errors
    /// As [`Design::create`].
    pub fn tiny(design: &Design<Image>, form: Form, capacity_bytes: u64) -> Result<Self> {
        Self::create(design, Image::new(0, capacity_bytes), form)
    }
}

impl<M: Media> OpenTable<M> {
    /// Makes an empty table with tiny settings on a medium.
    ///
    /// # Errors
    /// As [`Design::create`].
    pub fn create(design: &Design<M>, medium: impl Into<Arc<M>>, form: Form) -> Result<Self> {
        let region = Region::new(medium);
        let opening = Opening { form, ..Opening::default() };
        let tiny = Choice { sizing: Sizing::Tiny, changes: &[] };
        let table = design.create(region.clone(), &opening, tiny, &Inline)?;
        Ok(OpenTable { design: *design, region, boot: opening.boot, table: Some(table) })
    }

    /// Opens the table that lies on a medium, in another boot than the one that made it.
    ///
    /// # Errors
    /// As [`Design::open`].
    pub fn open(design: &Design<M>, medium: impl Into<Arc<M>>) -> Result<Self> {
        let Boot([machine, boot]) = Opening::default().boot;
        Self::open_in(design, medium, Boot([machine, boot + 1]))
    }

    /// Opens the table that lies on a medium after a power failure, whatever the boot before was.
    ///
    /// # Errors
    /// As [`Design::open`].
    pub fn open_after_power(design: &Design<M>, medium: impl Into<Arc<M>>) -> Result<Self> {
        let Boot([machine, _]) = Opening::default().boot;
        Self::open_in(design, medium, Boot([machine, u64::MAX]))
    }

    fn open_in(design: &Design<M>, medium: impl Into<Arc<M>>, boot: Boot) -> Result<Self> {
        let region = Region::new(medium);
        let mut open = OpenTable { design: *design, region, boot, table: None };
        open.attach()?;
        Ok(open)
    }

    /// Returns the open table.
    ///
    /// # Panics
    /// If an opening failed before: there is none then.
    pub fn table(&self) -> &dyn Table {
        self.table.as_deref().expect("after a failed opening nothing is asked of it")
    }

    /// Returns the design of the table.
    pub fn design(&self) -> &Design<M> {
        &self.design
    }

    /// Returns the medium.
    pub fn region(&self) -> &Region<M> {
        &self.region
    }

    /// Compares the table with the pairs that it should hold: [`read_out`].
    ///
    /// # Errors
    /// The first difference.
    pub fn read_out(
        &self,
        expected: &Pairs,
        keys: &[Vec<u8>],
    ) -> core::result::Result<(), Failure> {
        read_out(&self.design, self.table(), &self.region, expected, keys)
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
    /// As [`Table::close`] and [`Design::open`].
    pub fn reopen(&mut self) -> Result<()> {
        self.close()?;
        self.attach()
    }

    /// Kills the process, and opens the table again in the same boot.
    ///
    /// An engine that batches durability is synced before: which of its writes survive is for the
    /// crash judge to say.
    ///
    /// # Errors
    /// As [`Table::sync`] and [`Design::open`].
    pub fn kill(&mut self) -> Result<()> {
        if let (Some(table), true) = (self.table.take(), self.design.batches()) {
            table.sync()?;
        }
        self.attach()
    }

    /// As [`OpenTable::kill`], without a sync before it.
    ///
    /// # Errors
    /// As [`Design::open`].
    pub fn kill_unsynced(&mut self) -> Result<()> {
        self.table = None;
        self.attach()
    }

    /// Kills the process, and opens the table again in another boot; all stores are there.
    ///
    /// # Errors
    /// As [`OpenTable::kill`].
    pub fn outage(&mut self) -> Result<()> {
        let Boot([machine, boot]) = self.boot;
        self.boot = Boot([machine, boot + 1]);
        self.kill()
    }

    fn attach(&mut self) -> Result<()> {
        self.table = Some(self.design.open(self.region.clone(), self.boot, &Inline)?);
        Ok(())
    }
}
