//! A cache of blobs from 1 KB to 5 MB that stays below a limit:
//! `cargo run --example blob_cache -- [FILE]`.

use everhash::{Db, Durability};

/// How many bytes of blobs the cache holds at most. Unit: bytes.
const LIMIT: u64 = 32 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "blobs.ehdb".into());
    let (hits, bytes) = run(path.as_ref(), 200)?;
    println!("{hits} of 200 blobs were in the cache; it holds {bytes} bytes");
    Ok(())
}

/// Asks for `requests` blobs; returns how many were there, and the bytes that the cache holds.
pub fn run(
    path: &std::path::Path,
    requests: u64,
) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    // What a power loss destroys can be fetched again.
    let options = Db::options().durability(Durability::Process).accept_power_loss(true);
    let cache = options.create_if_missing(true).open(path)?;
    let mut held = 0;
    cache.scan(|_, blob| held += blob.len() as u64)?;
    let mut hits = 0;
    for request in 0..requests {
        let name = format!("blob-{}", request * request % 23);
        if let Some(bytes) = cache.size_of(&name)? {
            hits += 1;
            assert_eq!(bytes, fetch(&name).len());
            continue;
        }
        let blob = fetch(&name);
        held += blob.len() as u64;
        cache.put(&name, blob)?;
        // Any blob goes until there is room: a hash table knows no order.
        let over = |held: u64| held > LIMIT;
        if over(held) {
            cache.retain(|key, blob| {
                let stays = !over(held) || key == name.as_bytes();
                if !stays {
                    held -= blob.len() as u64;
                }
                stays
            })?;
        }
    }
    let mut bytes = 0;
    cache.scan(|_, blob| bytes += blob.len() as u64)?;
    cache.close()?;
    Ok((hits, bytes))
}

/// Stands for a slow server.
fn fetch(name: &str) -> Vec<u8> {
    let seed = name.bytes().fold(7usize, |seed, byte| (seed * 31 + usize::from(byte)) % 5000);
    vec![seed as u8; 1024 * (1 + seed)]
}
