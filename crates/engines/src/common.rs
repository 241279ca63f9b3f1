//! What two engines use, or what all must agree on.

pub(crate) mod ahead;
pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod edit;
pub(crate) mod forms;
pub mod hash;
pub(crate) mod jobs;
pub(crate) mod leftovers;
pub mod record;
pub(crate) mod room;
pub(crate) mod scanned;
pub(crate) mod settings;
pub mod slot_codec;
pub mod slot_table;
