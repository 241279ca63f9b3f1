//! Collecting logs that a full medium leaves behind, and logs in used space: what their words are
//! good for shows there.

use core::ops::ControlFlow;

use everhash_index::{Form, Table};
use everhash_pmem::Site;
use everhash_pmem::crash::{Explorer, Limits, Memory, Model, Seen};
use everhash_pmem::media::traced::{Change, Mutant, Traced};
use everhash_testkit::session::Session;

use crate::elimda::layout::{CollectingLog, Kind, LOGS_LINK, open_link};
use crate::elimda::{ElimDa, ElimDaSettings, collecting_log, recovery, shadow_log};

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

#[test]
fn collecting_logs_in_used_space_are_empty_before_a_link_leads_there() {
    // Fails if a crash while the logs are made leaves a link to what the space held before.
    let mut session = Session::<ElimDa>::tiny(Form::WORDS, 1 << 20).unwrap();
    for key in 0..KEYS {
        assert!(session.table().insert(&key.to_le_bytes(), &[1; 8]).unwrap());
    }
    let region = session.region().clone();
    session.close().unwrap();
    let mut words = region.media().words();
    let open = |words: &[u64], change| {
        let medium = Traced::new(Model::Eadr, 0, 1 << 20);
        medium.restart(words);
        medium.set_mutant(mutant(recovery::sites::LOGS_LINK, change));
        Session::<ElimDa, Traced>::open(medium, Form::WORDS)
    };
    let made = open(&words, None).unwrap();
    let link = made.region().access().load(LOGS_LINK).unwrap();
    let area = open_link(link, LOGS_LINK, Kind::Logs).unwrap().word() as usize;
    // Two logs and a spare one.
    words[area..][..3 * CollectingLog::WORDS].fill(!0);
    let damaged = |change| {
        let log = open(&words, change).unwrap().region().media().take_log();
        let mut explorer = Explorer::new(Memory::of(Model::Eadr, words.clone()), log.events());
        let (mut seen, mut damaged) = (Seen::default(), false);
        while explorer.next_point().is_some() {
            let limits = Limits::default();
            let flow = explorer.states(&limits, &mut seen, 0, &mut |state| {
                let found = open(state.words(), None).and_then(|after| after.table().len());
                damaged |= found.ok() != Some(KEYS);
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
        }
        assert!(explorer.count().states > 5, "{:?}", explorer.count());
        damaged
    };
    assert!(!damaged(None));
    assert!(damaged(Some(Change::SwapCommit)));
}
