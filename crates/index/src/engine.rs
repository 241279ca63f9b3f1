//! A design: how a pool is formatted and opened.

use everhash_pmem::pool::{Boot, DATA, Identity, Pool};
use everhash_pmem::{Guarantees, Media, Region, Site};

use crate::{Capabilities, Checked, Error, Executor, Form, ParseError, Result, Settings, Table};

/// A published design of a hash index, on any medium.
///
/// Generic below and object-safe above: the hot path is compiled for its medium, and the edges
/// still choose by name.
pub trait Engine: Sized + Send + Sync + 'static {
    /// Its name, at most eight lower-case letters: it lies in every pool.
    const NAME: &'static str;

    /// What it promises.
    const CAPABILITIES: Capabilities;

    /// Every place in its code that persists something.
    const SITES: &'static [&'static [Site]];

    /// What can be chosen for a new pool.
    type Settings: Settings;

    /// An open table on a medium.
    type Table<M: Media>: Table + 'static;

    /// Returns settings so small that a hundred operations in an image of at most 64 KiB reach
    /// every path.
    fn tiny(form: Form) -> Self::Settings;

    /// Returns settings for a table that takes `items` pairs without growing. If there can be no
    /// such table, [`Engine::bytes_needed`] refuses them or is more than any medium has.
    fn sized_for(form: Form, items: u64) -> Self::Settings;

    /// Returns how long the pool of an empty table is at least, on a medium with these guarantees:
    /// a shorter one is refused before it is made. Unit: bytes.
    ///
    /// # Errors
    /// [`Error::Setting`] if no table can have these settings.
    fn bytes_needed(form: Form, settings: &Self::Settings, guarantees: Guarantees) -> Result<u64> {
        let _ = (form, settings, guarantees);
        Ok(DATA.byte())
    }

    /// Writes an empty table into a new pool. Durable when the caller has synced the medium.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Setting`]; the medium holds no pool then.
    fn format<M: Media>(pool: &Pool<M>, settings: &Self::Settings) -> Result<()>;

    /// Opens the table in a pool, recovers it if it was not closed cleanly, and calls
    /// [`Pool::recovered`]. Allocates in proportion to the pool.
    ///
    /// Calls [`Pool::begin_writes`] before its first write. Of a pool that was closed cleanly
    /// everything is checked before: a refused pool is left as it was.
    ///
    /// Whatever the words on the medium are, the result is a table or an error.
    ///
    /// # Errors
    /// [`Error::Corrupt`] and errors of the medium.
    fn open<M: Media>(pool: Pool<M>, executor: &dyn Executor) -> Result<Self::Table<M>>;

    /// Reads a pool at rest, without the code that serves it: visits every pair once, or names
    /// the invariant that is broken.
    ///
    /// A table may be open on the pool as long as no operation is under way. What a crash may
    /// leave to be cleaned up later is no error. `boot` is the present boot of the machine: it
    /// tells whether power may have been lost since the pool was open. If only its process ended,
    /// everything that it stored must be there and sound.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn check<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Checked>;

    /// As [`Engine::check`], but passes over what is damaged: visits every pair that is intact and
    /// reports each damage. How much is passed over because of one damage, the engine says.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if nothing can be read, as with a damaged root.
    fn salvage<M: Media>(
        region: &Region<M>,
        boot: Boot,
        visit: &mut dyn FnMut(&[u8], &[u8]),
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        pass_over(Self::check(region, boot, visit), report)
    }
}

/// Reports the damage that ended the reading of a part, so that the next part can be read.
///
/// # Errors
/// What is no damage: a failure of the medium.
pub fn pass_over<T>(part: Result<T>, report: &mut dyn FnMut(Error)) -> Result<()> {
    match part {
        Err(damage @ Error::Corrupt { .. }) => {
            report(damage);
            Ok(())
        }
        part => part.map(drop),
    }
}

/// Which keyed hash function spreads the keys of a pool. Which collisions each allows is written in
/// `docs/promises.md`, at promise P14.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HashKind {
    /// SipHash-1-3: colliding keys cannot be made without the key of the pool.
    Sip13,
    /// XXH3-64, seeded: faster, for keys that no attacker chooses.
    Xxh3,
    /// rapidhash V3, with a seed and secrets of the pool's own: two multiplications for a key of up
    /// to 16 bytes. The fastest, for keys that no attacker chooses.
    Rapid,
}

impl HashKind {
    /// Every hash function, the default first.
    pub const ALL: [HashKind; 3] = [HashKind::Sip13, HashKind::Xxh3, HashKind::Rapid];

    /// Returns the number by which the pool's header names the function.
    pub const fn code(self) -> u64 {
        match self {
            HashKind::Sip13 => 1,
            HashKind::Xxh3 => 2,
            HashKind::Rapid => 3,
        }
    }

    /// Returns the name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            HashKind::Sip13 => "sip13",
            HashKind::Xxh3 => "xxh3",
            HashKind::Rapid => "rapid",
        }
    }

    /// Returns the function that a pool's header names.
    pub const fn from_code(code: u64) -> Option<HashKind> {
        match code {
            1 => Some(HashKind::Sip13),
            2 => Some(HashKind::Xxh3),
            3 => Some(HashKind::Rapid),
            _ => None,
        }
    }
}

impl core::fmt::Display for HashKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::str::FromStr for HashKind {
    type Err = ParseError;

    fn from_str(text: &str) -> core::result::Result<Self, ParseError> {
        let known = HashKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| {
            ParseError(format!("'{text}' is no hash function; use 'sip13', 'xxh3' or 'rapid'"))
        })
    }
}

/// What is known when a pool is made or opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The form of the pairs; of a new pool only.
    pub form: Form,
    /// The hash function; of a new pool only.
    pub hash: HashKind,
    /// Random key of the hash function; of a new pool only.
    pub hash_key: [u64; 2],
    /// Random identity; of a new pool only.
    pub database: [u64; 2],
    /// The present boot of the machine.
    pub boot: Boot,
}

impl Default for Opening {
    /// Fixed numbers, for tests and examples: a database that others may write to needs random
    /// ones.
    fn default() -> Self {
        Opening {
            form: Form::WORDS,
            hash: HashKind::Sip13,
            hash_key: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
            database: [1, 1],
            boot: Boot([1, 1]),
        }
    }
}

/// Makes a pool with an empty table of engine `E` on `region` and opens it.
///
/// # Errors
/// [`Error::Unsupported`] if the engine cannot hold pairs of that form, and those of
/// [`Engine::format`] and [`Engine::open`].
pub fn create<E: Engine, M: Media>(
    region: Region<M>,
    opening: &Opening,
    settings: &E::Settings,
    executor: &dyn Executor,
) -> Result<E::Table<M>> {
    E::open(create_pool::<E, M>(region, opening, settings)?, executor)
}

/// As [`create`], without opening the table: a caller that knows the form of the pairs opens it so,
/// and compiles the engine for no other.
///
/// # Errors
/// As [`create`].
pub fn create_pool<E: Engine, M: Media>(
    region: Region<M>,
    opening: &Opening,
    settings: &E::Settings,
) -> Result<Pool<M>> {
    if !E::CAPABILITIES.holds(opening.form) {
        let what = format!("engine {} holds no pairs of form {}", E::NAME, opening.form);
        return Err(Error::Unsupported { what });
    }
    let identity = Identity {
        engine: padded(E::NAME),
        form: opening.form.code(),
        hash_kind: opening.hash.code(),
        hash_key: opening.hash_key,
        database: opening.database,
    };
    Pool::create(region, identity, opening.boot, |pool| E::format(pool, settings))
}

/// Opens the pool on `region`, which must be one of engine `E`.
///
/// # Errors
/// [`Error::Unsupported`] if it is not, and those of [`Engine::open`].
pub fn open<E: Engine, M: Media>(
    region: Region<M>,
    boot: Boot,
    executor: &dyn Executor,
) -> Result<E::Table<M>> {
    expect::<E, M>(&region)?;
    E::open(Pool::open(region, boot)?, executor)
}

/// Opens the pool on `region` for reading only; it must have been closed cleanly.
///
/// # Errors
/// As [`open`].
pub fn open_read_only<E: Engine, M: Media>(
    region: Region<M>,
    executor: &dyn Executor,
) -> Result<E::Table<M>> {
    expect::<E, M>(&region)?;
    E::open(Pool::open_read_only(region)?, executor)
}

fn expect<E: Engine, M: Media>(region: &Region<M>) -> Result<()> {
    let identity = Pool::inspect(region)?;
    let known = HashKind::from_code(identity.hash_kind).is_some();
    if identity.engine != padded(E::NAME) || !known {
        let (found, hash) = (identity.engine_name(), identity.hash_kind);
        let what = format!("a pool of engine '{found}' with hash {hash} as one of '{}'", E::NAME);
        return Err(Error::Unsupported { what });
    }
    if !E::CAPABILITIES.holds(Form::from_code(identity.form)) {
        let what =
            format!("pairs of form {} in engine {}", Form::from_code(identity.form), E::NAME);
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

fn padded(name: &str) -> [u8; 8] {
    let mut padded = [0; 8];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_function_survives_its_code_and_its_text() {
        // Fails if a pool that was made with one could be opened with another.
        for (index, kind) in HashKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.code(), index as u64 + 1, "codes are part of the format");
            assert_eq!(HashKind::from_code(kind.code()), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(HashKind::from_code(HashKind::ALL.len() as u64 + 1), None);
        assert!("md5".parse::<HashKind>().is_err());
    }
}
