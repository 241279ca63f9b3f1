//! The fence around the unsafe code: mappings, flush instructions, byte-lane compares.
//!
//! No call returns a reference, a slice or a pointer into a mapping. So another process may change
//! the mapped file at any time, and the worst outcome is a wrong number.

#[allow(unsafe_code, reason = "asks a file system, for which there is no safe wrapper")]
pub(crate) mod extents;
#[allow(unsafe_code, reason = "flush instructions have no safe form")]
pub(crate) mod flush;
#[allow(unsafe_code, reason = "a page that the kernel empties in children")]
pub(crate) mod fork;
#[cfg(feature = "forked")]
#[allow(unsafe_code, reason = "forks")]
pub(crate) mod forked;
#[allow(unsafe_code, reason = "passes a hint that has no safe wrapper")]
pub(crate) mod hint;
#[allow(unsafe_code, reason = "vector compares have no safe form on every machine")]
pub(crate) mod lanes;
#[allow(unsafe_code, reason = "a lock around a value")]
pub(crate) mod latch;
#[allow(unsafe_code, reason = "maps files and memory")]
pub(crate) mod map;
#[allow(unsafe_code, reason = "an allocator that counts")]
pub(crate) mod meter;
#[allow(unsafe_code, reason = "a hint to the processor, and memory that nobody has touched")]
pub(crate) mod own;
#[allow(unsafe_code, reason = "values that never move, and are added beside readers")]
pub(crate) mod parts;
#[allow(unsafe_code, reason = "the raw-pointer twins that benchmarks compare with")]
pub mod raw;
#[allow(unsafe_code, reason = "vector instructions that not every processor has")]
pub(crate) mod sip;
#[allow(unsafe_code, reason = "indexes that are right by arithmetic")]
pub(crate) mod spread;
#[allow(unsafe_code, reason = "atomic access to mapped words")]
pub(crate) mod window;
