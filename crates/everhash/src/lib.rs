//! An embedded key-value store: one file, byte strings, crash-consistent hash indexes.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("pairs.ehdb");
//! use everhash::Db;
//!
//! let db = Db::open_or_create(&path)?;
//! db.put("key", "value")?; // survives a killed process from here on
//! db.sync()?; // and power loss, which could take back the last five seconds without it
//! assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | To | See |
//! |---|---|
//! | open, read and write | [`Db`] |
//! | choose the engine, the durability, the form of the pairs | [`Options`] |
//! | have keys and values with types | [`Table`] |
//! | have several tables in one file | [`Db::table`], [`Db::drop_table`] |
//! | give pairs an expiry time (TTL) | [`Expiring`], [`Db::expiring_table_or_create`], [`ExpiringTable`] |
//! | hold a view, or copy one | [`Db::snapshot`], [`Db::checkpoint`] |
//! | save from a forked child | [`Snapshot::hand_over`] |
//! | do many writes in one call | [`WriteBatch`], [`Db::put_many`] |
//! | act on an error | [`Error::kind`] |
//! | see what it does | [`Db::metrics`], [`Options::metrics_file`] |
//! | list the engines | [`engines`] |
//!
//! Features: `contract` for engines and media of your own, `judges` to judge them, `devices` for
//! emulated devices, `tracing` for spans. None is on by default.

pub use everhash_store::*;

/// The programs of the guide are compiled; `tests/guide.rs` runs them.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;

/// The contract of an engine, and its parts.
#[cfg(feature = "contract")]
pub use everhash_index as index;
/// The substrate: media, pools, space and crash images.
#[cfg(feature = "contract")]
pub use everhash_pmem as pmem;
/// The judges of an engine.
#[cfg(feature = "judges")]
pub use everhash_testkit as judges;
