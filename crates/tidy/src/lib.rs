//! tidy.
