//! What two engines use, or what all must agree on.

pub mod hash;
pub mod record;
