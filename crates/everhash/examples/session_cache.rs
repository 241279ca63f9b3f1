//! Sessions that end after a while: `cargo run --example session_cache -- [FILE]`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everhash::{Change, Db};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "sessions.ehdb".into());
    let db = Db::open_or_create(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    begin(&db, "8f3a", "ann", now + Duration::from_secs(1800))?;
    println!("8f3a belongs to {:?}", user(&db, "8f3a", now)?);
    println!("{} sessions have ended", sweep(&db, now)?);
    db.close()?;
    Ok(())
}

/// Begins a session that ends at `end`, in time since 1970.
pub fn begin(db: &Db, session: &str, user: &str, end: Duration) -> everhash::Result<()> {
    let value = [&end.as_secs().to_le_bytes()[..], user.as_bytes()].concat();
    db.put(session, value).map(drop)
}

/// Returns the user of a session that has not ended.
pub fn user(db: &Db, session: &str, now: Duration) -> everhash::Result<Option<String>> {
    db.get_with(session, |value| {
        let (end, user) = parse(value?)?;
        (end > now).then(|| String::from_utf8_lossy(user).into_owned())
    })
}

/// Makes a session that has not ended last until `end`; returns whether it does.
pub fn prolong(db: &Db, session: &str, now: Duration, end: Duration) -> everhash::Result<bool> {
    db.modify(session, |value| match value.and_then(parse) {
        Some((old, user)) if old > now => {
            let value = [&end.as_secs().to_le_bytes()[..], user].concat();
            (Change::Put(value), true)
        }
        // Ended: another thread may be sweeping it at this moment.
        _ => (Change::Keep, false),
    })
}

/// Removes every session that has ended; returns how many.
pub fn sweep(db: &Db, now: Duration) -> everhash::Result<u64> {
    // A session that is prolonged between its two looks stays.
    db.retain(|_, value| parse(value).is_some_and(|(end, _)| end > now))
}

fn parse(value: &[u8]) -> Option<(Duration, &[u8])> {
    let (end, user) = value.split_first_chunk()?;
    Some((Duration::from_secs(u64::from_le_bytes(*end)), user))
}
