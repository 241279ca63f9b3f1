//! The persistency models: the rules that decide what a crash leaves.

use core::fmt;

use crate::{Domain, Guarantees};

/// A persistency model (`docs/persistence-model.md` has the rules).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Model {
    /// Persistent memory on x86 with volatile caches: of every line a prefix of its stores.
    Adr,
    /// Persistent memory with caches in the power-fail domain: everything visible, at once.
    Eadr,
    /// An ordinary file, mapped: of every word any value since the last sync. A fence is a sync
    /// that began after the last flush of its thread.
    File,
    /// Persistent memory on Arm: between two barriers, the words of a line in any order.
    ///
    /// Experimental: the machine on which the formal model was tested did not match it.
    Arm,
}

impl Model {
    /// Every model, in the order in which they are reported.
    pub const ALL: [Model; 4] = [Model::Adr, Model::Eadr, Model::File, Model::Arm];

    /// Returns the guarantees of a medium under this model.
    pub const fn guarantees(self) -> Guarantees {
        let (domain, same_line_order, access_unit_bytes) = match self {
            Model::Adr => (Domain::Adr, true, 256),
            Model::Eadr => (Domain::Eadr, true, 256),
            Model::File => (Domain::Synced, false, 4096),
            Model::Arm => (Domain::Adr, false, 64),
        };
        Guarantees { domain, same_line_order, access_unit_bytes }
    }

    /// Returns the model's short name, for reports and replay lines.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Adr => "adr",
            Model::Eadr => "eadr",
            Model::File => "file",
            Model::Arm => "arm",
        }
    }

    /// Returns the model of a short name.
    pub fn from_name(name: &str) -> Option<Model> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
