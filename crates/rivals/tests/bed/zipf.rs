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

#[test]
fn low_ranks_are_chosen_as_often_as_the_law_says() {
    // Fails if a skewed workload were another one, or if a rank were beyond the last.
    let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
    let mut counts = vec![0_u32; 1000];
    (0..200_000).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
    let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-SKEW)).sum();
    // The first two are exact, and the others are not: Gray's formula is an approximation.
    for (rank, tolerance) in [(1, 0.03), (2, 0.03), (10, 0.15), (100, 0.25)] {
        let expected = 200_000.0 * f64::from(rank).powf(-SKEW) / all;
        let found = f64::from(counts[rank as usize - 1]);
        assert!((found / expected - 1.0).abs() < tolerance, "{rank}: {found}, not {expected}");
    }
    assert!(counts.iter().all(|count| *count > 0));
}
