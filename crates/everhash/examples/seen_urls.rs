//! A set of URLs that a crawler has seen:
//! `cargo run --release --example seen_urls -- [FILE] [COUNT]`.

use everhash::{Db, Durability};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "seen.ehdb".into());
    let count = arguments.next().map_or(Ok(2_000_000), |count| count.parse())?;
    let fresh = run(path.as_ref(), count)?;
    println!("{fresh} of {count} URLs were new");
    Ok(())
}

/// Meets `count` URLs twice, from two threads; returns how many were new.
pub fn run(path: &std::path::Path, count: u64) -> Result<u64, Box<dyn std::error::Error>> {
    // A crawler that loses its last seconds crawls a few pages twice: no sync is worth waiting for.
    let options = Db::options().durability(Durability::Batch).expected_items(count);
    let seen = options.create_if_missing(true).open(path)?;
    let meet = |seen: &Db| {
        let mut fresh = 0;
        for number in 0..count {
            let url =
                format!("https://example.org/{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // True for one of the two threads only, whichever comes first.
            fresh += u64::from(seen.put_if_absent(url, [])?);
        }
        Ok::<_, everhash::Error>(fresh)
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| meet(&seen));
        (meet(&seen), other.join().expect("no crawler panics"))
    });
    let fresh = one? + two?;
    seen.close()?;
    Ok(fresh)
}
