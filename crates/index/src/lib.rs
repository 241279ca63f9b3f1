//! The contract that every hash index on persistent memory keeps, whatever its design.
//!
//! [`Engine`] is a design (how a pool is formatted and opened), [`Table`] an open one, and
//! [`Design`] an engine on one medium as a value. The crate knows no engine and no medium by name.

mod capabilities;
mod design;
mod engine;
mod error;
mod executor;
mod form;
mod settings;
mod table;

pub use capabilities::{Capabilities, Durability};
pub use design::{Choice, Design, Sizing};
pub use engine::{Engine, HashKind, Opening, create, create_pool, open, open_read_only, pass_over};
pub use error::{Error, ParseError, Result};
pub use executor::{Executor, Inline, Threads};
pub use form::Form;
pub use settings::{Setting, Settings};
pub use table::{
    AtomicTable, BareTable, Change, Checked, Cursor, MAX_KEY_BYTES, MAX_VALUE_BYTES, Stats, Table,
    Upkeep, WordTable, admit, admit_key,
};
