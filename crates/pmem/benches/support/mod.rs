//! A plain paired harness: both sides in short turns, one after the other, many times.
//!
//! Not criterion: it measures one side for seconds and then the other, and on a shared machine the
//! clock and the neighbours change in between. Here each pair of turns gives a ratio, and the
//! median of the ratios is the result; its quartiles are printed as the spread.

use std::time::Instant;

/// Pairs of turns in one comparison. Unit: none.
///
/// Source: ours; a comparison then takes one to three seconds.
const PAIRS: usize = 42;

/// Returns the lower quartile, the median and the upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Compares `ours` with `theirs`: each takes a seed and does `count` operations.
///
/// Prints nanoseconds per operation and the time of ours divided by theirs. Returns the median of
/// that ratio: 1.1 means that ours takes 10% longer. The second side is slower where the page
/// tables of both do not fit the caches, so a ratio is the geometric mean of two pairs, one of
/// each order. On a busy machine the ratio of the fastest turns, printed last, is the steadier
/// figure.
///
/// # Panics
/// If the two sides return different results for the same seed: then they do different work.
pub fn compare(
    name: &str,
    count: u64,
    mut ours: impl FnMut(u64) -> u64,
    mut theirs: impl FnMut(u64) -> u64,
) -> f64 {
    let (mut ratios, mut mine, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS as u64 + 2 {
        let mut times = [0.0; 2];
        let mut results = [0; 2];
        // The sides alternate, so that neither always finds the caches warm.
        for side in [pair % 2, 1 - pair % 2] {
            let start = Instant::now();
            let result = if side == 0 { ours(pair) } else { theirs(pair) };
            times[side as usize] = start.elapsed().as_secs_f64() * 1e9 / count as f64;
            results[side as usize] = std::hint::black_box(result);
        }
        assert_eq!(results[0], results[1], "{name}: the two sides do different work");
        // The first two pairs warm up.
        if pair >= 2 {
            ratios.push(times[0] / times[1]);
            mine.push(times[0]);
            raw.push(times[1]);
        }
    }
    let ratios = ratios.chunks_exact(2).map(|orders| (orders[0] * orders[1]).sqrt()).collect();
    let fastest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let best = fastest(&mine) / fastest(&raw);
    let [low, median, high] = quartiles(ratios);
    let (mine, raw) = (quartiles(mine)[1], quartiles(raw)[1]);
    println!(
        "{name:<46} ours {mine:8.2} ns  raw {raw:8.2} ns  ratio {median:.3} ({low:.3} to \
         {high:.3}), of the fastest {best:.3}"
    );
    median
}
