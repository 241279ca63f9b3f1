//! Sessions that end after a while: `cargo run --example session_cache -- [FILE]`.

use std::time::Duration;

use everhash::{Change, Db, Expiring, Expiry};

/// How long a session lasts after it was last used.
pub const LIFE: Duration = Duration::from_secs(1800);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "sessions.ehdb".into());
    let db = Db::open_or_create(path)?;
    let sessions = db.expiring_table_or_create("sessions")?;
    sessions.put("8f3a", "ann", LIFE)?;
    println!("8f3a belongs to {:?}", user(&sessions, "8f3a")?);
    let attempts = db.expiring_table_or_create("attempts")?;
    println!("the first attempt to log in: {}", may_try(&attempts, "ann")?);
    println!("{} sessions", sessions.len()?);
    drop((sessions, attempts));
    db.close()?;
    Ok(())
}

/// Returns the user of a session that has not ended, and lets it last for as long again.
pub fn user(sessions: &Expiring, session: &str) -> everhash::Result<Option<String>> {
    sessions.modify(session, |user| match user {
        Some(user) => {
            let name = String::from_utf8_lossy(user).into_owned();
            (Change::Put(user.to_vec()), LIFE.into(), Some(name))
        }
        None => (Change::Keep, Expiry::Unchanged, None),
    })
}

/// Returns whether somebody may try to log in: five times in a minute, from the first time on.
pub fn may_try(attempts: &Expiring, user: &str) -> everhash::Result<bool> {
    attempts.modify(user, |count| match count.map_or(0, |count| count[0]) {
        0 => (Change::Put(vec![1]), Duration::from_secs(60).into(), true),
        count @ 1..5 => (Change::Put(vec![count + 1]), Expiry::Unchanged, true),
        _ => (Change::Keep, Expiry::Unchanged, false),
    })
}
