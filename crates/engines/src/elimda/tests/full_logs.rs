//! Collecting logs that a full medium leaves behind: what their words are good for shows there.

use everhash_index::{Form, Table};
use everhash_pmem::Site;
use everhash_pmem::crash::{Memory, Model};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_testkit::session::Session;

use crate::elimda::{ElimDa, ElimDaSettings, collecting_log, shadow_log};

const KEYS: u64 = 400;

/// The length of the medium; a few segments fit. Unit: bytes.
const BYTES: u64 = 24 << 10;

/// Fills a medium with durable caches until nothing goes in, with one site changed. Returns how
/// many pairs were taken, and what the medium holds. A log is in flight then, and the one that
/// took its place is full, too.
fn fill(change: Option<Change>) -> (u64, Vec<u64>) {
    let medium = Traced::new(Model::Eadr, 0, BYTES);
    medium.set_mutant(mutant(shadow_log::sites::SEALED, change));
    let settings = ElimDaSettings::tiny();
    let session = Session::<ElimDa, Traced>::create(medium, Form::WORDS, &settings).unwrap();
    let insert =
        |key: &u64| matches!(session.table().insert(&key.to_le_bytes(), &[1; 8]), Ok(true));
    let added = (0..KEYS).filter(insert).count() as u64;
    (added, session.region().media().visible())
}

fn mutant(site: Site, change: Option<Change>) -> Option<Mutant> {
    change.map(|change| Mutant { site, change })
}

#[test]
fn two_logs_of_a_collector_are_told_apart_after_a_crash() {
    // Fails if the log that was being flushed is not marked: recovery cannot say which is older.
    let reopened = |change| {
        let (added, words) = fill(change);
        assert!((20..KEYS).contains(&added), "{added}: the medium is not full, or was so at once");
        let medium = Traced::new(Model::Eadr, 0, 1 << 20);
        medium.restart(&words);
        let found = Session::<ElimDa, Traced>::open(medium, Form::WORDS)
            .and_then(|session| Ok((session.table().len()?, session.table().check()?.items)));
        (added, found)
    };
    let (added, found) = reopened(None);
    assert_eq!(found.unwrap(), (added, added));
    let (_, found) = reopened(Some(Change::DropCommit));
    assert!(found.is_err(), "nothing needs the mark: {found:?}");
}

#[test]
fn what_ends_in_a_log_on_a_full_medium_with_volatile_caches_stays_ended() {
    // Fails if a removal from a log that could not be moved is visible and not durable.
    let (added, words) = fill(None);
    let durable = |change| {
        let medium = Traced::new(Model::Adr, 0, BYTES);
        medium.restart(&words);
        medium.set_mutant(mutant(collecting_log::sites::ENDED, change));
        let session = Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap();
        let remove = |key: &u64| session.table().remove(&key.to_le_bytes()).unwrap();
        assert_eq!((0..KEYS).filter(remove).count() as u64, added);
        let mut memory = Memory::of(Model::Adr, words.clone());
        for event in session.region().media().take_log().events() {
            memory.apply(event);
        }
        let medium = Traced::new(Model::Adr, 0, 1 << 20);
        medium.restart(memory.durable());
        Session::<ElimDa, Traced>::open(medium, Form::WORDS).unwrap().table().len().unwrap()
    };
    assert_eq!(durable(None), 0);
    assert_ne!(durable(Some(Change::DropFlush)), 0);
}
