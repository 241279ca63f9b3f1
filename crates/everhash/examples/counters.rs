//! Counters that many threads raise: `cargo run --example counters -- [FILE]`.

use everhash::{Db, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "counters.ehdb".into());
    let total = run(path.as_ref())?;
    println!("{total} visits in all, this run's 40,000 among them");
    Ok(())
}

/// Counts 40,000 visits of ten pages from four threads; returns the visits of all runs.
pub fn run(path: &std::path::Path) -> Result<u64, Box<dyn std::error::Error>> {
    let visits: Table<u32, u64> = Table::open(Db::options().create_if_missing(true), path)?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for visit in 0..10_000 {
                        // One step: no visit of another thread is lost.
                        visits
                            .fetch_update(&(visit % 10), |count| Some(count.unwrap_or(&0) + 1))?;
                    }
                    Ok::<_, everhash::Error>(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let mut total = 0;
    for pair in visits.iter() {
        total += pair?.1;
    }
    visits.close()?;
    Ok(total)
}
