//! An embedded key-value store: one file, byte strings, crash-consistent hash indexes.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("pairs.ehdb");
//! use everhash_store::Db;
//!
//! let db = Db::create(&path)?;
//! db.put("key", "value")?; // survives a killed process from here on
//! db.sync()?; // and power loss, which could take back the last five seconds without it
//! assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
//! db.close()?;
//!
//! let db = Db::open(&path)?;
//! assert!(db.remove("key")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Db`] is the database, [`Options`] choose how it is created and opened, and [`engines`] lists
//! the designs to choose from. The crate adds what an engine must not know: files and their names,
//! locks, a clock, a thread for maintenance, random numbers, and errors that say what to do.

#[macro_use]
mod trace;

mod admit;
mod backup;
mod batch;
mod callback;
mod catalog;
mod compact;
mod core;
mod db;
mod error;
mod expiring;
mod gate;
mod handover;
mod keys;
mod look;
mod machine;
mod maintenance;
mod metrics;
mod options;
mod pairs;
mod place;
mod repair;
mod snapshot;
mod swap;
mod table;
mod tables;
mod words;

#[cfg(test)]
mod tests;

pub use admit::{admit, admit_in_table};
pub use batch::WriteBatch;
pub use catalog::{EngineInfo, engine, engines};
pub use db::{Db, Info};
pub use error::{Error, ErrorKind, Fault, Result, Shown};
pub use everhash_index::{
    Capabilities, Change, Checked, Cursor, Form, HashKind, MAX_KEY_BYTES, MAX_VALUE_BYTES,
    ParseError, Setting, Stats,
};
pub use expiring::{Expiring, ExpiringTable, Expiry};
pub use handover::{Handover, ReceivedPairs, Sending};
pub use metrics::{Calls, Durations, Metrics};
pub use options::{Durability, Options};
pub use pairs::{Pair, Pairs};
pub use repair::{Damage, Salvaged};
pub use snapshot::{Snapshot, SnapshotPairs};
pub use swap::Swap;
pub use table::{Field, Table};
pub use words::Words;
