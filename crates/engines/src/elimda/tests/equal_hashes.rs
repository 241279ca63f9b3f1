//! Byte strings whose hashes are equal: each is a key of its own in every layer. Nobody finds two
//! such keys, so the tests choose the hash.

use everhash_index::{Error, Form, Result, Table};
use everhash_pmem::Image;
use everhash_pmem::crash::Model;
use everhash_testkit::session::Session;

use crate::common::slot_codec::Bytes;
use crate::elimda::form::Form as Pairs;
use crate::elimda::reversed_search::Wanted;
use crate::elimda::state::ElimDa as Inner;
use crate::elimda::{ElimDa, ElimDaSettings, ElimDaTable};

/// The hash of all these keys. It belongs to the first bucket.
const HASH: u64 = 0x1234_5678_9abc_de00;

fn create(model: Model) -> Session<ElimDa> {
    let medium = Image::new(0, 4 << 20).with_guarantees(model.guarantees());
    Session::create(medium, Form::Variable, &ElimDaSettings::tiny()).unwrap()
}

fn of_bytes(session: &Session<ElimDa>) -> &Inner<Image, Bytes> {
    let ElimDaTable::Bytes(inner) = session.table() else { unreachable!("these are byte strings") };
    inner
}

/// Adds a key to the backup log and the D-bucket; its value is the key.
fn add(table: &Inner<Image, Bytes>, key: &[u8]) -> Result<()> {
    let pm = table.pool.access();
    table.write_to(&pm, HASH, |writer| {
        let item = Bytes::item(&pm, &table.heap, HASH, key, key)?;
        let appended = match table.append_item(&pm, writer, &item)? {
            Ok(appended) => appended,
            Err(need) => return Ok(Err(need)),
        };
        let change = writer.held.change()?;
        writer.bucket.push(HASH, &item, appended.order);
        change.end();
        table.count_added(HASH);
        Ok(Ok(()))
    })
}

/// Returns the value of a key.
fn get(table: &Inner<Image, Bytes>, key: &[u8]) -> Option<Vec<u8>> {
    let (pm, mut value) = (table.pool.access(), Vec::new());
    table.get_wanted(&pm, Wanted { hash: HASH, key }, &mut value).unwrap().map(|_| value)
}

#[test]
fn a_split_keeps_keys_with_one_hash() {
    // Fails if a split takes equal hashes for equal keys: the newer one would be gone.
    let session = create(Model::Adr);
    let table = of_bytes(&session);
    for key in [b"one", b"two"] {
        add(table, key).unwrap();
    }
    for key in 0..400u64 {
        assert!(session.table().insert(&key.to_le_bytes(), &[1]).unwrap());
    }
    assert!(session.table().stats().unwrap().growth_steps > 4);
    assert_eq!(table.len(), 402);
    for key in [b"one", b"two"] {
        assert_eq!(get(table, key).as_deref(), Some(&key[..]));
    }
}

#[test]
fn recovery_keeps_keys_with_one_hash_in_two_layers() {
    // Fails if recovery takes a key of a collecting log for a copy of the other one below.
    let mut session = create(Model::Eadr);
    {
        let table = of_bytes(&session);
        add(table, b"below").unwrap();
        let pm = table.pool.access();
        let seen = table.look_at_log(&pm, HASH).unwrap().unwrap();
        let slot = table.collect(&pm, &seen).unwrap().ok().unwrap();
        slot.fill(&Bytes::item(&pm, &table.heap, HASH, b"above", b"above").unwrap()).unwrap();
    }
    session.kill().unwrap();
    let table = of_bytes(&session);
    assert_eq!(table.len(), 2);
    for key in [&b"below"[..], b"above"] {
        assert_eq!(get(table, key).as_deref(), Some(key));
    }
}

#[test]
fn one_key_too_many_with_one_hash_is_a_limit() {
    // Fails if a segment is split without end for keys that no split takes apart, or if what is
    // there does not outlast the refusal.
    let session = create(Model::Adr);
    let table = of_bytes(&session);
    let keys: Vec<[u8; 1]> = (0..64).map(|key| [key]).collect();
    let added = keys.iter().take_while(|key| match add(table, &key[..]) {
        Err(Error::Limit { .. }) => false,
        done => done.is_ok(),
    });
    let added = added.count();
    assert!((18..=21).contains(&added), "{added} keys of a bucket of six units");
    assert!(matches!(add(table, &keys[added]), Err(Error::Limit { .. })));
    for key in &keys[..added] {
        assert_eq!(get(table, key).as_deref(), Some(&key[..]));
    }
    assert_eq!(table.len(), added as u64);
}
