//! What an emulated device counts, raw and as the vendor's tools show it.

use core::ops::Sub;

use crate::LINE;

macro_rules! counters {
    ($( $(#[$meta:meta])* $name:ident; )*) => {
        /// Counts since the device was made, or between two snapshots.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            /// The media unit. Unit: bytes.
            pub media_unit_bytes: u64,
            $( $(#[$meta])* pub $name: u64, )*
        }

        impl Sub for Counters {
            type Output = Counters;

            /// Returns what came between two snapshots.
            ///
            /// # Panics
            /// If `before` is the later one.
            fn sub(self, before: Counters) -> Counters {
                let less = |after: u64, before: u64| {
                    after.checked_sub(before).expect("the snapshots are subtracted the wrong way")
                };
                Counters {
                    media_unit_bytes: self.media_unit_bytes,
                    $( $name: less(self.$name, before.$name), )*
                }
            }
        }

        impl Counters {
            /// Returns every counter with its name, in a fixed order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$( (stringify!($name), self.$name), )*]
            }
        }
    };
}

counters! {
    /// Bytes that the program loaded.
    bytes_loaded;
    /// Bytes that the program stored.
    bytes_stored;
    /// Lines that the program flushed, clean ones included.
    lines_flushed;
    /// Fences.
    fences;
    /// Loads that missed the last-level cache. Unit: lines.
    load_misses;
    /// Stores that missed it and read the line first. Unit: lines.
    store_misses;
    /// Dirty lines that the cache had to make room for.
    dirty_evictions;
    /// Lines read from the modules.
    host_reads;
    /// Lines written to the modules.
    host_writes;
    /// Media units read because a line was asked for.
    demand_reads;
    /// Media units read because a unit was written in part.
    rmw_reads;
    /// Media units written, with the device's own metadata.
    media_writes;
}

/// The raw counters of ipmctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipmctl {
    /// `MediaReads`: 64-byte reads of the media. The device reads once for every media write, whole
    /// units included, and that read is counted here.
    pub media_reads: u64,
    /// `MediaWrites`: 64-byte writes of the media.
    pub media_writes: u64,
    /// `ReadRequests`: lines asked for.
    pub read_requests: u64,
    /// `WriteRequests`: lines sent.
    pub write_requests: u64,
}

/// The derived counters of PMWatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pmwatch {
    /// `media_read_ops`: units read, without the reads that belong to media writes.
    pub media_read_ops: u64,
    /// `media_write_ops`: units written.
    pub media_write_ops: u64,
    /// `bytes_read`, without the reads that belong to media writes.
    pub bytes_read: u64,
    /// `bytes_written`.
    pub bytes_written: u64,
}

impl Counters {
    /// Returns the bytes that the media wrote.
    pub const fn media_bytes_written(&self) -> u64 {
        self.media_writes * self.media_unit_bytes
    }

    /// Returns the bytes that the media read on demand.
    pub const fn media_bytes_read(&self) -> u64 {
        self.demand_reads * self.media_unit_bytes
    }

    /// Returns the bytes that the modules received.
    pub const fn host_bytes_written(&self) -> u64 {
        self.host_writes * LINE
    }

    /// Returns media bytes written for each byte that the program stored (the measure of WALSH).
    pub fn write_amplification(&self) -> f64 {
        self.media_bytes_written() as f64 / self.bytes_stored as f64
    }

    /// Returns media bytes written for each byte that the modules received: the inverse of the
    /// effective write ratio of Yang et al., FAST 2020.
    pub fn device_write_amplification(&self) -> f64 {
        self.media_bytes_written() as f64 / self.host_bytes_written() as f64
    }

    /// Returns media bytes written for each byte of payload, for example of `items` items of 16
    /// bytes (the measure of ElimDA).
    pub fn write_amplification_of(&self, payload_bytes: u64) -> f64 {
        self.media_bytes_written() as f64 / payload_bytes as f64
    }

    /// Returns media bytes read on demand for each byte of payload (the measure of ElimDA).
    pub fn read_amplification_of(&self, payload_bytes: u64) -> f64 {
        self.media_bytes_read() as f64 / payload_bytes as f64
    }

    /// Returns what ipmctl would show.
    pub const fn ipmctl(&self) -> Ipmctl {
        let lines = self.media_unit_bytes / LINE;
        Ipmctl {
            media_reads: lines * (self.demand_reads + self.media_writes),
            media_writes: lines * self.media_writes,
            read_requests: self.host_reads,
            write_requests: self.host_writes,
        }
    }

    /// Returns what PMWatch would show.
    pub const fn pmwatch(&self) -> Pmwatch {
        Pmwatch {
            media_read_ops: self.demand_reads,
            media_write_ops: self.media_writes,
            bytes_read: self.media_bytes_read(),
            bytes_written: self.media_bytes_written(),
        }
    }
}
