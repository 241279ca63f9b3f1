//! Repair: what power loss under relaxed durability, or damage, has left of a database.

use core::cell::RefCell;
use std::path::Path;

use everhash_index::{Checked, Durability as Mode, Form, HashKind};
use everhash_pmem::pool::PoolStatus;
use everhash_pmem::{Boot, FileMedium, Region};

use crate::backup::NewCopy;
use crate::catalog::{File, engine};
use crate::place::{check_left, file_options, read_only, status, threads};
use crate::tables::Traces;
use crate::{Db, Durability, Error, Options, Result, machine};

/// How many damages are listed at most; all are counted.
///
/// Source: ours; a person reads no more.
const LISTED: usize = 1000;

/// What [`Db::salvage`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Pairs that were intact, and are in the new database.
    pub items: u64,
    /// How often something was damaged and passed over.
    pub damages: u64,
    /// The first of these.
    pub listed: Vec<Damage>,
}

/// Where a database is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Byte offset in the file.
    pub at: u64,
    /// The violated invariant, as a statement.
    pub broken: &'static str,
}

impl Db {
    /// Makes a database usable that [`Options::open`] refuses with
    /// [`PowerLoss`](crate::Error::PowerLoss): checks it as it lies there, and if its structure
    /// is sound, recovers it, checks it again and closes it cleanly.
    ///
    /// It takes what was stored last, synced or not, as far as it is sound. So what the database
    /// holds may be older than the last writes, and differently so for different keys. A damaged
    /// database is refused: see [`Db::salvage`].
    ///
    /// # Errors
    /// [`Error::File`] with the place of the damage; the file is as it was then, unless only the
    /// second check failed.
    pub fn repair(path: impl AsRef<Path>) -> Result<Checked> {
        let (path, options) = (path.as_ref(), Options::default());
        spanned!(info, "repair", path);
        let file = read_only(&options, path)?;
        let (left, boot) = stored_last(path, &file)?;
        check_left(path, &file, &left, boot)?;
        drop(file);
        let file = FileMedium::open(path, &file_options(&options, options.durability));
        let file = Region::new(file.map_err(|error| Error::of_medium(path, error))?);
        let (left, boot) = stored_last(path, &file)?;
        let db = Self::open_file(&options, path, file, &left, boot)?;
        Self::close_if_sound(db)
    }

    /// Checks a database and closes it. If it is damaged it is left as if it had not been closed,
    /// so that the next open does not take it for sound.
    pub(crate) fn close_if_sound(db: Db) -> Result<Checked> {
        let checked = db.check().inspect_err(|error| db.core().stop(error.to_string()))?;
        db.close()?;
        Ok(checked)
    }

    /// Copies what is intact of the damaged database `path` into a new database `target`, and lists
    /// the damages that it passed over. The damaged file is only read.
    ///
    /// The copy has the same engine, form and hash function, and the settings in `options`. If
    /// `options` choose [`Durability::Immediate`] or the database was made with it, so is the copy;
    /// the latter only shows if the database was closed cleanly and can be opened in spite of its
    /// damage. A pair counts as intact if its checksums match; with `wophi`, `elimda` and `tiered`,
    /// pairs of a fixed form have none of their own, so that the structure around them counts.
    ///
    /// What was replaced or removed is not copied, as far as that can be known. With `reef` and
    /// `tiered`, older pairs of a key stay in the file for a while, and one of them is copied if
    /// the newest one, or what removed the key, is damaged beyond recognition. With `elimda`, that
    /// happens if a file that was not closed has lost a part that now reads as zeros. A table that
    /// was dropped, and of which pairs are left, is there again.
    ///
    /// # Errors
    /// [`Error::File`] if not even the header or the root can be read, and those of [`Db::backup`].
    /// There is no file `target` then.
    pub fn salvage(
        path: impl AsRef<Path>,
        target: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Salvaged> {
        let (path, target) = (path.as_ref(), target.as_ref());
        spanned!(info, "salvage", path);
        let file = read_only(options, path)?;
        let identity = status(path, &file)?.identity;
        let engine = engine(identity.engine_name())?;
        // What was not closed cleanly cannot be opened so.
        let is_immediate = || {
            let table = engine.design.open_read_only(file.clone(), &threads(options));
            table.is_ok_and(|table| table.durability() == Mode::Immediate)
        };
        let immediate = options.durability == Durability::Immediate || is_immediate();
        let options = Options {
            engine: Some(engine.name.to_owned()),
            form: Some(Form::from_code(identity.form)),
            hash: HashKind::from_code(identity.hash_kind),
            ..options.clone()
        };
        let has_tables = options.form == Some(Form::Variable);
        let mut copy = NewCopy::begin(&options, target, immediate)?;
        let salvaged = RefCell::new(Salvaged::default());
        let mut traces = Traces::default();
        let mut add = |key: &[u8], value: &[u8]| match traces.note(key, value) {
            // The copy could not be opened with it.
            Err(error) if has_tables => salvaged.borrow_mut().note(&error),
            _ => copy.add(key, value),
        };
        let mut note = |error| salvaged.borrow_mut().note(&error);
        let read = engine.design.salvage(&file, machine::boot(), &mut add, &mut note);
        read.map_err(|error| Error::of(path, error))?;
        if has_tables {
            copy.add_missing(&traces);
        }
        Ok(Salvaged { items: copy.finish()?, ..salvaged.into_inner() })
    }
}

/// Returns how a database was left, and the boot in which what was stored last counts, synced or
/// not.
fn stored_last(path: &Path, file: &File) -> Result<(PoolStatus, Boot)> {
    let status = status(path, file)?;
    // As after a killed process: after power loss an engine would go back to the last sync.
    let boot = if status.doubtful() { status.boot } else { machine::boot() };
    Ok((status, boot))
}

impl Salvaged {
    fn note(&mut self, error: &everhash_index::Error) {
        self.damages += 1;
        if let everhash_index::Error::Corrupt { at, broken } = *error
            && self.listed.len() < LISTED
        {
            self.listed.push(Damage { at, broken });
        }
    }
}

impl core::fmt::Display for Damage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "damaged at byte {}: expected that {}", self.at, self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_damages_are_counted_and_the_first_are_listed() {
        // Fails if the list of a file that is damaged everywhere took memory without a limit, or
        // if its end were taken for that of the damage.
        let mut salvaged = Salvaged::default();
        for at in 0..LISTED as u64 + 5 {
            salvaged.note(&everhash_index::Error::Corrupt { at, broken: "a test is sound" });
        }
        salvaged.note(&everhash_index::Error::Poisoned);
        assert_eq!((salvaged.damages, salvaged.listed.len()), (LISTED as u64 + 6, LISTED));
        assert_eq!(salvaged.listed.last().map(|damage| damage.at), Some(LISTED as u64 - 1));
    }
}
