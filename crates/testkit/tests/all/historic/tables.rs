//! Historic bugs of hash tables.

use everhash_pmem::crash::Model;

use super::stage::{Case, Pm, Reader, holds};

/// Level hashing: the table has two levels and three words say where they are and how large. The
/// words are changed one by one when it grows, and a crash in between mixes old and new.
///
/// The cure: the three words lie in a descriptor, which is written elsewhere and named by one word.
pub fn level_expand() -> Case {
    /// Line of a level's only key; a level is a line.
    const OLD_TOP: u64 = 10;
    const OLD_BOTTOM: u64 = 11;
    const NEW_TOP: u64 = 12;
    fn setup(pm: &Pm<'_>) {
        pm.store(1, 0, OLD_TOP);
        pm.store(2, 0, OLD_BOTTOM);
        pm.store(0, 0, 1);
        pm.store(OLD_TOP, 0, 77);
        pm.store(OLD_BOTTOM, 0, 88);
        // The descriptor of the cure: top and bottom.
        pm.store(20, 0, OLD_TOP);
        pm.store(20, 1, OLD_BOTTOM);
        pm.store(3, 0, 20);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            // The old bottom's key moves up; the old top becomes the bottom.
            pm.store(NEW_TOP, 0, 88);
            pm.persist(NEW_TOP);
            if bug {
                pm.store(1, 0, NEW_TOP);
                pm.store(2, 0, OLD_TOP);
                pm.flush(1);
                pm.flush(2);
                pm.fence();
            } else {
                pm.store(21, 0, NEW_TOP);
                pm.store(21, 1, OLD_TOP);
                pm.persist(21);
                pm.store(3, 0, 21);
                pm.persist(3);
            }
        });
    }
    fn promise(pm: &Reader<'_>, _returned: u32, bug: bool) -> Result<(), String> {
        let (top, bottom) = match bug {
            true => (pm.load(1, 0), pm.load(2, 0)),
            false => (pm.load(pm.load(3, 0), 0), pm.load(pm.load(3, 0), 1)),
        };
        let keys = [pm.load(top, 0), pm.load(bottom, 0)];
        holds(keys.contains(&77) && keys.contains(&88), format!("the levels hold {keys:?}"))
    }
    Case { name: "level_expand", model: Model::Adr, setup, run, promise }
}

/// CCEH: an insert first claims a slot by a reserved key, then writes the value, then the key. The
/// reserved key can become durable, and nobody ever frees the slot again.
///
/// The cure: whoever opens the table frees reserved slots.
pub fn cceh_sentinel() -> Case {
    const SENTINEL: u64 = u64::MAX;
    fn setup(pm: &Pm<'_>) {
        pm.store(4, 0, 5);
        pm.store(4, 1, 50);
    }
    fn run(pm: &Pm<'_>, _bug: bool) {
        pm.operation(0, || {
            pm.store(4, 2, SENTINEL);
            pm.store(4, 3, 60);
            pm.persist(4);
            pm.store(4, 2, 6);
            pm.persist(4);
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, bug: bool) -> Result<(), String> {
        if !bug && pm.load(4, 2) == SENTINEL {
            pm.store(4, 2, 0);
        }
        holds(returned == 0 || pm.load(4, 2) == 6, "the inserted key is absent")?;
        // Two slots, one key at least: the next insert of key 6 must find it or a free slot.
        let usable = [0, 6].contains(&pm.load(4, 2));
        holds(usable, "a slot is neither free nor taken, for ever")
    }
    Case { name: "cceh_sentinel", model: Model::Adr, setup, run, promise }
}

/// P-CLHT: after building a larger table, the address that is flushed is that of a local copy of
/// the pointer, and not of the table that it points to.
pub fn clht_wrong_address() -> Case {
    const TABLE: u64 = 30;
    const LOCAL: u64 = 5;
    fn setup(pm: &Pm<'_>) {
        pm.store(29, 0, 7);
        pm.store(0, 0, 29);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(LOCAL, 0, TABLE);
            pm.store(TABLE, 0, 7);
            pm.store(TABLE, 1, 8);
            pm.persist(if bug { LOCAL } else { TABLE });
            pm.store(0, 0, TABLE);
            pm.persist(0);
        });
    }
    fn promise(pm: &Reader<'_>, _returned: u32, _bug: bool) -> Result<(), String> {
        holds(pm.load(pm.load(0, 0), 0) == 7, "the table that counts has lost its key")
    }
    Case { name: "clht_wrong_address", model: Model::Adr, setup, run, promise }
}

/// memcached-pmem: an item is linked into its chain before its unique id is stored.
pub fn memcached_link() -> Case {
    fn setup(_pm: &Pm<'_>) {}
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(40, 0, 9);
            if !bug {
                pm.store(41, 0, 1001);
                pm.flush(41);
            }
            pm.persist(40);
            pm.store(0, 0, 40);
            pm.persist(0);
            if bug {
                pm.store(41, 0, 1001);
                pm.persist(41);
            }
        });
    }
    fn promise(pm: &Reader<'_>, _returned: u32, _bug: bool) -> Result<(), String> {
        let linked = pm.load(0, 0) == 40;
        holds(!linked || pm.load(41, 0) == 1001, "a linked item has no id")
    }
    Case { name: "memcached_link", model: Model::Adr, setup, run, promise }
}
