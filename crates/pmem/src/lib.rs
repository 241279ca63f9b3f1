//! Persistent memory as words.
//!
//! A medium is a growing sequence of 8-byte words that may outlive the process: persistent or CXL
//! memory, an ordinary file in the page cache, or plain memory. Stores become durable in two
//! steps: [`flush`](Access::flush) begins the write-back of cache lines, [`fence`](Access::fence)
//! waits for it. A crash may keep or lose a store that is not fenced yet;
//! `docs/persistence-model.md` has the rules, and the crash explorer enumerates the outcomes.
//!
//! Everything above this crate is generic over [`Media`] and free of unsafe code; the unsafe code
//! of this crate lies under `sys`.

mod addr;
mod alloc;
pub mod crash;
mod error;
mod heap;
pub mod media;
pub mod pool;
#[cfg(feature = "devices")]
pub mod profile;
mod record;
mod region;
mod seq;
mod site;
pub mod sync;
mod sys;
mod traffic;

pub use addr::{Addr, LINE, Span, WORD};
pub use alloc::{Allocation, Space, Usage};
pub use error::{Error, Result};
pub use heap::{Class, Heap, HeapUsage, RecordWord};
pub use media::counted::{Counted, CountedBlock, CountedContext};
pub use media::dax::DaxMedium;
pub use media::dram::{Dram, DramOptions};
pub use media::file::{FileDurability, FileMedium, FileOptions, USUAL_CAPACITY_BYTES};
pub use media::image::Image;
pub use media::{
    Block, Domain, Guarantees, Hints, Holes, Media, Simulation, StreamClass, StreamSupport,
};
pub use pool::{Boot, Identity, Pool, PoolStatus, Shutdown};
pub use record::{Bits, Field, Ruler};
pub use region::{Access, Region, word_of};
pub use seq::{Change, Sequence, Stamp, before_reuse};
pub use site::Site;
pub use sync::{AtomicWord, Bell, Lock, LockPoisoned, Primitives, Std, as_thread};
pub use sys::flush::WriteBack;
pub use sys::fork::Origin;
#[cfg(feature = "forked")]
pub use sys::forked::{ForkedChild, end_at_broken_pipes, in_forked_child};
pub use sys::lanes::{AtOnce, equal_bytes, equal_bytes_scalar, equal_lanes, little_endian_bytes};
pub use sys::latch::{Latch, LatchGuard};
pub use sys::meter::AllocationMeter;
pub use sys::own::{prefetch, prefetch_for_store};
pub use sys::parts::Parts;
#[doc(hidden)]
pub use sys::raw;
pub use sys::sip::VectorSip;
pub use sys::spread::{Masked, Scaled};
pub use sys::window::Window;
pub use traffic::Traffic;
