//! The settings of an engine: numbers with a name, so that every face can offer them.

use crate::{Error, Result};

/// One setting of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, in lower case with underscores and the unit last.
    pub name: &'static str,
    /// The value it has unless it is set.
    pub default: u64,
    /// One line of meaning, with the range.
    pub meaning: &'static str,
}

/// The settings of an engine for a new pool. They are stored in the pool.
pub trait Settings: Clone + Default + Send + Sync + core::fmt::Debug + 'static {
    /// Every setting.
    const ALL: &'static [Setting];

    /// Returns the setting `name`, or `None` if there is none of that name.
    fn get(&self, name: &str) -> Option<u64>;

    /// Sets `name` to `value`.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no such setting or it cannot take that value.
    fn set(&mut self, name: &str, value: u64) -> Result<()>;

    /// Returns the error for a name that is no setting; it lists those there are.
    fn unknown(name: &str) -> Error {
        let names: Vec<_> = Self::ALL.iter().map(|setting| setting.name).collect();
        let why = format!("there is no '{name}'; there are: {}", names.join(", "));
        Error::Setting { name: "?", why }
    }
}
