//! The process that opens what power loss has left, and says what it holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use everhash_store::{Db, Error, ErrorKind, Options};

use crate::judge::State;
use crate::work::{THREADS, key_of, value_of};

/// What became of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// It opens; these are the values of each thread.
    Sound(Vec<State>),
    /// It says that power was lost under relaxed durability; what it held was copied as far as it
    /// is intact.
    Mixture,
    /// It was never completed.
    Unborn,
}

/// What the first line of a report says of each.
const SOUND: &str = "sound";
const MIXTURE: &str = "mixture";
const UNBORN: &str = "unborn";

/// Returns where a copy of a database lies, as soon as it is complete.
fn copy_of(path: &Path) -> PathBuf {
    path.with_extension("copy")
}

/// Copies the database at `path`, compacts it, and closes it.
///
/// # Errors
/// Those of the database, but for a lack of room.
pub fn rewrite(options: &Options, path: &Path) -> Result<()> {
    let rewritten = options.open(path).and_then(|db| {
        db.backup(copy_of(path), options)?;
        db.compact()?.close()
    });
    match rewritten {
        Err(error) if error.kind() != ErrorKind::Full && !is_unborn(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Opens the database at `path`, demands that all of it is sound, and writes what it holds to
/// `report`. If there is a copy, it must be whole.
///
/// # Errors
/// Whatever is not as it should be.
pub fn read(options: &Options, path: &Path, report: &Path) -> Result<()> {
    let copy = copy_of(path);
    let copied = match copy.exists() {
        true => Some(pairs(options.open(&copy).context("a copy")?)?),
        false => None,
    };
    let text = match options.open(path) {
        Ok(db) => {
            let pairs = pairs(db)?;
            if let Some(copied) = copied {
                ensure!(copied == pairs, "a copy has other pairs");
                fs::remove_file(copy)?;
            }
            format!("{SOUND}\n{pairs}")
        }
        Err(Error::PowerLoss { .. }) => {
            mixture(options, path)?;
            MIXTURE.into()
        }
        Err(error) if is_unborn(&error) => UNBORN.into(),
        Err(error) => return Err(error.into()),
    };
    Ok(fs::write(report, text)?)
}

/// Returns the pairs of a database, a line each, and closes it.
fn pairs(db: Db) -> Result<String> {
    let mut found = BTreeMap::new();
    for pair in db.iter() {
        let (key, value) = pair?;
        let key = key_of(&key).context("a key that nobody wrote")?;
        let value = value_of(&value).context("a value that nobody wrote")?;
        // While a table grows, a key may come twice.
        let before = found.insert(key, value);
        ensure!(before.is_none_or(|before| before == value), "two values of a key");
    }
    let (length, checked, count) = (db.len()?, db.check()?.items, found.len() as u64);
    ensure!(
        length == count && checked == count,
        "{count} pairs, {length} counted, {checked} checked"
    );
    db.close()?;
    let line = |((thread, key), value)| format!("{thread} {key} {value}\n");
    Ok(found.into_iter().map(line).collect())
}

/// Returns whether an error says that there is no database, or one that was never completed.
fn is_unborn(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported)
}

/// Repairs a mixture of old and new pages or, if it cannot be, salvages what is intact: that must
/// be pairs that somebody wrote.
fn mixture(options: &Options, path: &Path) -> Result<()> {
    let repaired = Db::repair(path).and_then(|_| options.open(path));
    let db = match repaired {
        Ok(db) => db,
        Err(error) => {
            ensure!(error.kind() == ErrorKind::Damaged, "repair says {error}");
            let copy = path.with_extension("salvaged");
            // Not even a root may be left.
            if Db::salvage(path, &copy, options).is_err() {
                return Ok(());
            }
            options.open(&copy)?
        }
    };
    match pairs(db) {
        Err(error) if error.downcast_ref::<Error>().is_none() => Err(error),
        // Damage that is met is no finding here.
        _ => Ok(()),
    }
}

/// Returns what a report says, of so many keys of each thread.
///
/// # Errors
/// If it is none.
pub fn found(report: &Path, keys: usize) -> Result<Found> {
    let text = fs::read_to_string(report).context("the reader has written no report")?;
    let mut lines = text.lines();
    match lines.next() {
        Some(SOUND) => {}
        Some(MIXTURE) => return Ok(Found::Mixture),
        Some(UNBORN) => return Ok(Found::Unborn),
        _ => bail!("no report: {text}"),
    }
    let mut states = vec![vec![None; keys]; THREADS];
    for line in lines {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [thread, key, value] = numbers[..] else { bail!("no pair: {line}") };
        let state = states.get_mut(thread as usize).context("a thread that there is not")?;
        *state.get_mut(key as usize).context("a key that there is not")? = Some(value);
    }
    Ok(Found::Sound(states))
}
