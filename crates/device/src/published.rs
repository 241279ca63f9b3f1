//! Published measurements, each with its source: a few numbers of each, for comparison.

/// Size of the written region and media bytes per byte, divided by the constant factor 1.037 for
/// the device's own metadata. Unit: KiB, ratio. Source: Yang et al., FAST 2020, inferred write
/// buffer: half of each unit in turn, then the other half.
pub const WRITE_BUFFER: &[(f64, f64)] = &[
    (8.0, 1.00),
    (16.0, 1.00),
    (18.0, 1.00),
    (20.0, 1.31),
    (24.0, 1.55),
    (32.0, 1.75),
    (40.0, 1.85),
    (48.0, 1.91),
    (64.0, 1.97),
    (128.0, 2.00),
];

/// Writers on one module and media bytes per byte, for random writes of 256 bytes past the caches.
/// Unit: threads, ratio. Source: Yang et al., FAST 2020: the inverse of the effective write ratio.
pub const CROWD: &[(f64, f64)] =
    &[(1.0, 1.02), (2.0, 1.15), (4.0, 1.075), (6.0, 1.25), (8.0, 1.54), (12.0, 1.75)];

/// Threads and random writes of 16 bytes, each flushed and fenced, on two modules. Unit: threads,
/// million operations per second. Source: WALSH, Table 3.
pub const WRITES: &[(f64, f64)] =
    &[(1.0, 3.5), (2.0, 6.3), (4.0, 9.6), (8.0, 12.0), (16.0, 12.2), (32.0, 12.5), (40.0, 12.1)];

/// The same for random reads of 16 bytes. Source: WALSH, Table 3.
pub const READS: &[(f64, f64)] =
    &[(1.0, 3.3), (2.0, 7.0), (4.0, 10.6), (8.0, 19.8), (16.0, 34.7), (32.0, 41.1), (40.0, 56.4)];

/// Spare space and write amplification of uniform random page writes with first-in-first-out
/// collection, a / (a + W(-a exp -a)) with a = 1 + spare. Unit: ratio, ratio. Source: Xiang and
/// Kurkoski, arXiv 1110.4245.
pub const FIFO: &[(f64, f64)] = &[
    (0.07, 7.82),
    (0.10, 5.68),
    (0.15, 4.02),
    (0.20, 3.19),
    (0.25, 2.69),
    (0.30, 2.36),
    (0.40, 1.96),
    (0.50, 1.72),
];

/// The same with greedy collection. Source: simulation; Xiang and Kurkoski print 2.35 at 0.30.
pub const GREEDY: &[(f64, f64)] = &[
    (0.07, 7.70),
    (0.10, 5.61),
    (0.15, 3.98),
    (0.20, 3.16),
    (0.25, 2.67),
    (0.30, 2.35),
    (0.40, 1.95),
    (0.50, 1.71),
];

/// Two areas of different heat on a device with 20 % spare space: the hot share of the space, its
/// share of the writes, and the write amplification with one and two streams under greedy and
/// under cost-benefit collection. Unit: ratio. Source: simulation.
#[expect(clippy::approx_constant, reason = "a measurement, and not a circle")]
pub const STREAMS: &[(f64, f64, [f64; 4])] = &[
    (0.20, 0.80, [3.58, 3.21, 3.58, 2.35]),
    (0.11, 0.90, [4.07, 3.14, 4.01, 1.72]),
    (0.06, 0.95, [4.46, 3.39, 4.14, 1.35]),
];
