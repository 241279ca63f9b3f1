//! Skewed choices, as YCSB makes them.

use everhash_testkit::random::Random;

/// Source: ElimDA 4.1, Zipfian(0.99).
const SKEW: f64 = 0.99;

/// Ranks from 0 on, of which lower ones are chosen more often.
///
/// Source: Gray et al., SIGMOD 1994, as in YCSB.
pub struct Zipf {
    count: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    pub fn new(count: u64) -> Zipf {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-SKEW)).sum::<f64>();
        let (all, two) = (zeta(count), zeta(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - SKEW)) / (1.0 - two / all);
        Zipf { count: count as f64, zeta: all, alpha: 1.0 / (1.0 - SKEW), eta }
    }

    pub fn rank(&self, random: &mut Random) -> u64 {
        let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(SKEW) {
            return 1;
        }
        let rank = self.count * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count as u64 - 1)
    }
}
