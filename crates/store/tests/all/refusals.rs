//! An open that is refused leaves the file as it was, byte for byte, whatever the engine.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use std::path::Path;

use crate::support::place;
use everhash_store::{Db, Durability, Error, Options, engines};

/// The pool's headers and the engine's root: what an open reads first. Unit: bytes.
const HEADERS: usize = 8192;

fn options(engine: &str) -> Options {
    Db::options().engine(engine).expected_items(50).background(false).threads(1)
}

/// Makes a database and returns its bytes: closed, or as a killed process leaves them.
fn database(path: &Path, engine: &str, closed: bool) -> Vec<u8> {
    let db = options(engine).create(path).unwrap();
    for number in 0..60u32 {
        db.put(number.to_be_bytes(), [number as u8; 40]).unwrap();
    }
    let killed = std::fs::read(path).unwrap();
    db.close().unwrap();
    let bytes = if closed { std::fs::read(path).unwrap() } else { killed };
    std::fs::remove_file(path).unwrap();
    bytes
}

/// Returns where the words of the headers lie that say something.
fn headers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    (0..HEADERS).step_by(8).filter(|place| bytes[*place..][..8] != [0; 8])
}

/// Flips a bit in each of the words at `places`; returns how many opens were refused.
fn refused(
    path: &Path,
    engine: &str,
    sound: &[u8],
    places: impl Iterator<Item = usize>,
    says_the_same: bool,
) -> u32 {
    let mut refused = 0;
    for place in places {
        let mut bytes = sound.to_vec();
        bytes[place + place / 8 % 8] ^= 1 << (place / 64 % 8);
        std::fs::write(path, &bytes).unwrap();
        let error = match options(engine).durability(Durability::Process).open(path) {
            Ok(db) => {
                // What was noticed only now keeps it from closing, not from opening.
                let _ = db.close();
                continue;
            }
            Err(error) => error.to_string(),
        };
        refused += 1;
        let changed =
            std::fs::read(path).unwrap().iter().zip(&bytes).filter(|(a, b)| a != b).count();
        assert_eq!(changed, 0, "{engine}: bytes changed by an open that said: {error}");
        if says_the_same {
            let second = Db::open_read_only(path).unwrap_err().to_string();
            assert_eq!(second, error, "{engine}: a read-only open says something else");
        }
    }
    refused
}

#[test]
fn p08_a_damaged_database_that_was_closed_is_refused_and_left_as_it_was() {
    // Fails if an open wrote anything, be it the header that says "open", before the engine had
    // accepted the whole file; the next one would then ask for a recovery and hide the cause.
    for engine in engines() {
        let (_directory, path) = place();
        let sound = database(&path, engine.name, true);
        let data = (HEADERS..sound.len()).step_by((sound.len() / 100 / 8).max(1) * 8);
        let places = headers(&sound).chain(data);
        let refused = refused(&path, engine.name, &sound, places, true);
        assert!(refused > 4, "{}: {refused} words matter", engine.name);
    }
}

#[test]
fn p08_a_damaged_root_of_a_killed_database_is_refused_and_left_as_it_was() {
    // Fails if an open marked the file, or began its recovery, before the engine's root was
    // accepted.
    for engine in engines() {
        let (_directory, path) = place();
        let sound = database(&path, engine.name, false);
        let refused = refused(&path, engine.name, &sound, headers(&sound), false);
        assert!(refused > 4, "{}: {refused} words matter", engine.name);
    }
}

#[test]
fn p08_what_was_asked_wrongly_leaves_the_file_as_it_was() {
    // Fails if the options were compared after the first write.
    for (engine, closed) in engines().iter().flat_map(|engine| [(engine, true), (engine, false)]) {
        let (_directory, path) = place();
        let bytes = database(&path, engine.name, closed);
        std::fs::write(&path, &bytes).unwrap();
        let wrong = [
            Db::options().engine("other"),
            Db::options().form(everhash_store::Form::WORDS),
            Db::options().hash(everhash_store::HashKind::Xxh3),
        ];
        for options in wrong {
            assert!(matches!(options.open(&path), Err(Error::Mismatch { .. })));
            assert!(matches!(options.open_read_only(&path), Err(Error::Mismatch { .. })));
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", engine.name);
    }
}
