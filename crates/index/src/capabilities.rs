//! What an engine promises; the judges select by it, and `stats` prints it.

use crate::Form;

/// When a write that returned survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Durability {
    /// As soon as it returned, as far as the medium can promise it.
    Immediate,
    /// A killed process loses nothing. Power loss leaves a prefix of the writes to each partition
    /// ([`Table::durability_partition`](crate::Table::durability_partition)), which holds all that
    /// returned before the last sync.
    Batch,
}

/// What an engine promises. An engine that claims less is tested less, visibly.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// The forms of pairs it can hold.
    pub forms: &'static [Form],
    /// Whether it can hold byte strings of any length.
    pub byte_strings: bool,
    /// The durability modes it has; the first one is the default. An engine with two has a setting
    /// `durability`: 0 for the first, 1 for the second.
    pub durability: &'static [Durability],
    /// Whether it has the paper's bare forms, see [`BareTable`](crate::BareTable).
    pub bare: bool,
    /// Whether it writes batches of which a crash leaves all or none, see
    /// [`AtomicTable`](crate::AtomicTable).
    pub atomic_batches: bool,
    /// Whether `len` is exact whenever no write is under way.
    pub exact_len: bool,
    /// Whether it grows beyond its initial size.
    pub grows: bool,
}

impl Capabilities {
    /// Returns whether the engine can hold pairs of `form`.
    pub fn holds(&self, form: Form) -> bool {
        match form {
            Form::Variable => self.byte_strings,
            fixed => self.forms.contains(&fixed),
        }
    }

    /// Returns every form of pairs that the engine can hold.
    pub fn all_forms(&self) -> Vec<Form> {
        let variable = self.byte_strings.then_some(Form::Variable);
        self.forms.iter().copied().chain(variable).collect()
    }
}
