//! Several tables, as a database each: one for every tenant of a server, made when it first writes.
//! `cargo run --example tenants -- [DIRECTORY]`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use everhash::{Db, ErrorKind};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "tenants".into());
    std::fs::create_dir_all(&directory)?;
    let tenants = Tenants::new(directory.as_ref());
    tenants.of("ann")?.put("colour", "red")?;
    tenants.of("bob")?.put("colour", "blue")?;
    println!("ann: {:?}", tenants.of("ann")?.get("colour")?);
    println!("{} tenants are open", tenants.open_count());
    assert!(tenants.drop_tenant("bob")?);
    Ok(())
}

/// The databases of all tenants, each opened when it is first asked for.
pub struct Tenants {
    directory: PathBuf,
    open: Mutex<HashMap<String, Db>>,
}

impl Tenants {
    /// Returns the tenants whose files lie in `directory`.
    pub fn new(directory: &Path) -> Tenants {
        Tenants { directory: directory.to_owned(), open: Mutex::default() }
    }

    /// Returns the database of a tenant; a handle is cheap.
    pub fn of(&self, name: &str) -> everhash::Result<Db> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(db) = open.get(name) {
            return Ok(db.clone());
        }
        let db = Db::open_or_create(self.path(name))?;
        open.insert(name.to_owned(), db.clone());
        Ok(db)
    }

    /// Deletes a tenant and all its pairs, however many; returns whether there was one. A request
    /// that still uses it makes this fail, and it stays.
    pub fn drop_tenant(&self, name: &str) -> everhash::Result<bool> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let db = match open.remove(name) {
            Some(db) => db,
            None => match Db::open(self.path(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                found => found?,
            },
        };
        db.discard()?;
        Ok(true)
    }

    /// Returns how many databases are open.
    pub fn open_count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn path(&self, name: &str) -> PathBuf {
        // A name from outside must not lead elsewhere.
        let safe: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(safe + ".ehdb")
    }
}
