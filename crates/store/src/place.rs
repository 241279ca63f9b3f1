//! From a path to an open table: files, headers and what may be refused.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everhash_index::{Checked, Durability as Mode, Form, HashKind, Opening, Table, Threads};
use everhash_pmem::pool::{DATA, PoolStatus};
use everhash_pmem::{Boot, FileMedium, FileOptions, Origin, Pool, Region, Shutdown};

use crate::catalog::{Chosen, EngineInfo, File, engine, engines};
use crate::core::Core;
use crate::db::Info;
use crate::error::Shown;
use crate::machine;
use crate::maintenance::{Maintenance, Syncs};
use crate::tables::Tables;
use crate::{Db, Durability, Error, Options, Result};

/// The most threads of an open. Source: ours; more read no faster, and what they share must be
/// counted without an overflow.
const MOST_THREADS: usize = 1024;

impl Db {
    pub(crate) fn open_with(options: &Options, path: &Path) -> Result<Db> {
        spanned!(info, "open", path);
        let file = match FileMedium::open(path, &file_options(options, options.durability)) {
            Ok(file) => Region::new(file),
            Err(error) => {
                return match Error::of_medium(path, error) {
                    Error::NotFound { .. } if options.create_if_missing => {
                        Self::create_if_absent(options, path)
                    }
                    error => Err(error),
                };
            }
        };
        // At once: only a rename in this very moment would be missed. Not before the open, which
        // gives a file of a lower layer of overlayfs another inode.
        let identity = Identity::of(path).ok();
        let status = status(path, &file)?;
        if status.doubtful() && !options.accept_power_loss {
            describe(options, path, &status, true)?;
            return Err(Error::PowerLoss { path: shown(path) });
        }
        let db = Self::open_file(options, path, file, &status, machine::boot())?;
        Ok(db.identified(identity))
    }

    /// Opens a file as in the boot `boot` of the machine.
    pub(crate) fn open_file(
        options: &Options,
        path: &Path,
        file: File,
        status: &PoolStatus,
        boot: Boot,
    ) -> Result<Db> {
        let info = describe(options, path, status, true)?;
        #[cfg(feature = "tracing")]
        if info.recovered {
            tracing::info!(target: "everhash", "was not closed cleanly, and is recovered");
        }
        let executor = threads(options);
        let table = info.engine.design.open(file.clone(), boot, &executor);
        let table = table.map_err(|error| Error::of(path, error))?;
        assemble(options, path, file, table, info)
    }

    /// Another process may make the database at the same time: then it is opened.
    fn create_if_absent(options: &Options, path: &Path) -> Result<Db> {
        match Self::create_with(options, path) {
            Err(Error::AlreadyExists { .. }) => {
                let existing = Options { create_if_missing: false, ..options.clone() };
                Self::open_with(&existing, path)
            }
            result => result,
        }
    }

    pub(crate) fn create_with(options: &Options, path: &Path) -> Result<Db> {
        spanned!(info, "create", path);
        let immediate = options.durability == Durability::Immediate;
        let new = New::begin(options, path, options.durability, immediate)?;
        let file = new.file.clone();
        let db = assemble(options, path, new.file, new.table, new.info)?;
        // Last: whatever else fails leaves no file of that name.
        file.media().publish().map_err(|error| Error::of_medium(path, error))?;
        Ok(db.identified(Identity::of(path).ok()))
    }

    pub(crate) fn open_read_only_with(options: &Options, path: &Path) -> Result<Db> {
        spanned!(info, "open", path);
        let file = read_only(options, path)?;
        let status = status(path, &file)?;
        let info = describe(options, path, &status, false)?;
        if status.doubtful() {
            return Err(Error::PowerLoss { path: shown(path) });
        }
        if status.previous != Shutdown::Clean {
            return Err(Error::NeedsRecovery { path: shown(path) });
        }
        let executor = threads(options);
        let table = info.engine.design.open_read_only(file.clone(), &executor);
        let table = table.map_err(|error| Error::of(path, error))?;
        assemble(options, path, file, table, info)
    }

    /// Checks the database `path` as it lies there, without opening or changing it: not even a
    /// recovery is needed. If its process was killed since the machine was started, all that it
    /// wrote must be sound; if the machine was started anew, what opening would find.
    ///
    /// # Errors
    /// [`Error::File`] with the place of the damage, and those of [`Options::open`].
    pub fn check_at_rest(path: impl AsRef<Path>) -> Result<Checked> {
        let path = path.as_ref();
        let file = read_only(&Options::default(), path)?;
        let status = status(path, &file)?;
        check_left(path, &file, &status, machine::boot())
    }
}

/// Checks a database to which nobody writes, as in the boot `boot` of the machine.
pub(crate) fn check_left(
    path: &Path,
    file: &File,
    status: &PoolStatus,
    boot: Boot,
) -> Result<Checked> {
    let engine = engine(status.identity.engine_name())?;
    engine.design.check(file, boot, &mut |_, _| {}).map_err(|error| Error::of(path, error))
}

/// Which file a path means, links followed: no two files have the same at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(path: &Path) -> std::io::Result<Identity> {
        let found = path.metadata()?;
        Ok(Identity { device: found.dev(), inode: found.ino() })
    }
}

impl core::fmt::Display for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "inode {} of device {}", self.inode, self.device)
    }
}

/// Returns a path that means the same after a change of the working directory: the same path where
/// there is no working directory.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A new database that does not have its name yet.
pub(crate) struct New {
    pub(crate) file: File,
    pub(crate) table: Box<dyn Table>,
    pub(crate) info: Info,
}

impl New {
    /// Makes it. `durability` is that of the file while it is filled, and `immediate` what the
    /// database keeps of it: whether, by default, each of its writes is durable when it returns.
    pub(crate) fn begin(
        options: &Options,
        path: &Path,
        durability: Durability,
        immediate: bool,
    ) -> Result<New> {
        let engine = match &options.engine {
            Some(name) => engine(name)?,
            None => &engines()[0],
        };
        let form = options.form.unwrap_or(Form::Variable);
        admit_form(engine, form).map_err(|error| Error::of(path, error))?;
        let [a, b, c, d] = machine::random()?;
        let opening = Opening {
            form,
            hash: options.hash.unwrap_or(HashKind::Sip13),
            hash_key: [a, b],
            database: [c, d],
            boot: machine::boot(),
        };
        let (expected_items, settings) = (options.expected_items, &options.settings[..]);
        let mut chosen = Chosen { expected_items, immediate, settings };
        let on_file = (form, durability.of_file().guarantees());
        chosen.expected_items = engine.admit(path, &chosen, on_file, options.capacity_bytes)?;
        let file = FileMedium::create(path, DATA.byte(), &file_options(options, durability));
        let file = Region::new(file.map_err(|error| Error::of_medium(path, error))?);
        let executor = threads(options);
        let table = engine.create(file.clone(), &opening, &chosen, &executor);
        let table = table.map_err(|error| Error::of(path, error))?;
        let hash = opening.hash;
        let info = Info { engine, form, hash, durability, recovered: false, writable: true };
        Ok(New { file, table, info })
    }
}

/// Refuses a form of pairs that an engine has not, and says which it has.
fn admit_form(engine: &EngineInfo, form: Form) -> everhash_index::Result<()> {
    if engine.capabilities.holds(form) {
        return Ok(());
    }
    let forms = engine.capabilities.all_forms().iter().map(Form::to_string).collect::<Vec<_>>();
    let why =
        format!("{} has no pairs of the form {form}; use {}", engine.name, forms.join(" or "));
    Err(everhash_index::Error::Setting { name: "form", why })
}

pub(crate) fn read_only(options: &Options, path: &Path) -> Result<File> {
    let file = FileMedium::open_read_only(path, &file_options(options, options.durability));
    Ok(Region::new(file.map_err(|error| Error::of_medium(path, error))?))
}

/// Returns the threads of an open, of a create or of a salvage.
pub(crate) fn threads(options: &Options) -> Threads {
    Threads::new(options.threads.min(MOST_THREADS))
}

pub(crate) fn file_options(options: &Options, durability: Durability) -> FileOptions {
    FileOptions {
        capacity_bytes: options.capacity_bytes,
        durability: durability.of_file(),
        trust_file_system: options.trust_file_system,
        mode: options.mode,
        system: Arc::clone(&options.system),
    }
}

pub(crate) fn status(path: &Path, file: &File) -> Result<PoolStatus> {
    Pool::status(file, machine::boot()).map_err(|error| Error::of_medium(path, error))
}

/// Says what the database is, or in what it is not the one that was asked for.
fn describe(options: &Options, path: &Path, status: &PoolStatus, writable: bool) -> Result<Info> {
    let found = status.identity;
    let form = Form::from_code(found.form);
    let hash = HashKind::from_code(found.hash_kind).ok_or_else(|| {
        let what = format!("hash function {}; a newer program may know it", found.hash_kind);
        Error::of(path, everhash_index::Error::Unsupported { what })
    })?;
    let mismatch = |what, found: String, asked: String| {
        Err(Error::Mismatch { path: shown(path), what, found, asked })
    };
    if let Some(asked) = options.engine.as_ref().filter(|asked| **asked != found.engine_name()) {
        return mismatch("the engine", found.engine_name().into(), asked.clone());
    }
    if let Some(asked) = options.form.filter(|asked| *asked != form) {
        return mismatch("pairs of the form", form.to_string(), asked.to_string());
    }
    if let Some(asked) = options.hash.filter(|asked| *asked != hash) {
        return mismatch("the hash function", format!("{hash:?}"), format!("{asked:?}"));
    }
    let engine = engine(found.engine_name())?;
    let recovered = status.previous != Shutdown::Clean;
    Ok(Info { engine, form, hash, durability: options.durability, recovered, writable })
}

fn assemble(
    options: &Options,
    path: &Path,
    file: File,
    table: Box<dyn Table>,
    mut info: Info,
) -> Result<Db> {
    if info.durability == Durability::Batch && table.durability() == Mode::Immediate {
        info.durability = Durability::Immediate;
    }
    let syncs = match info.durability {
        Durability::Interval(interval) => Syncs::Every(interval),
        Durability::Batch => Syncs::ByEngine,
        Durability::Immediate | Durability::Process => Syncs::Never,
    };
    let immediate = info.durability == Durability::Immediate;
    let (path, maintenance) = (Arc::from(path), Maintenance::new(syncs));
    // A database of byte strings has tables, and others have no room for their numbers.
    let tables = match (info.form == Form::Variable).then(|| Tables::load(&*table)).transpose() {
        Ok(tables) => tables,
        Err(error) => {
            // Nobody has written: it is left as clean as it was, for a program that can read it.
            let _ = table.close();
            return Err(Error::of(&path, error));
        }
    };
    let core = Core::new(table, path, Origin::here(), info.writable, immediate, maintenance);
    let core = core.with(tables, options.wall.clone());
    Db::of(core.observed(file, options.counts_calls()), info, options)
}

fn shown(path: &Path) -> Shown {
    Shown(path.to_owned())
}
