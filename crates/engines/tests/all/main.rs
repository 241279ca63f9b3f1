//! The engines on emulated devices: one binary, so that they are linked once.

mod devices;
mod flash;
mod salvage;
