//! Historic bugs of file systems and of databases in files.

use everhash_pmem::crash::Model;

use super::stage::{Case, Pm, Reader, holds};

/// NOVA: data is copied past the caches, and the tail that does not fill a unit by ordinary stores,
/// which nobody flushes.
pub fn nova_tail() -> Case {
    fn setup(_pm: &Pm<'_>) {}
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.stream(50, &[1, 2, 3, 4, 5, 6, 7, 8]);
            pm.store(51, 0, 9);
            if !bug {
                pm.flush(51);
            }
            pm.fence();
            pm.store(0, 0, 9);
            pm.persist(0);
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, _bug: bool) -> Result<(), String> {
        let length = pm.load(0, 0);
        holds(returned == 0 || length == 9, "the write is lost")?;
        let right = (0..length).all(|n| pm.load(50 + n / 8, n % 8) == n + 1);
        holds(right, "the end of the data is missing")
    }
    Case { name: "nova_tail", model: Model::Adr, setup, run, promise }
}

/// HSE: a header and its checksum are overwritten in place; a crash between leaves neither the old
/// nor the new.
///
/// The cure: two headers, written in turn; the newest that is whole counts.
pub fn hse_header() -> Case {
    fn sum(sequence: u64, content: u64) -> u64 {
        (sequence ^ content.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    fn write(pm: &Pm<'_>, line: u64, sequence: u64, content: u64) {
        pm.store(line, 0, sequence);
        pm.store(line, 1, content);
        pm.store(line, 2, sum(sequence, content));
    }
    fn setup(pm: &Pm<'_>) {
        write(pm, 60, 1, 100);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            write(pm, if bug { 60 } else { 61 }, 2, 200);
            pm.sync();
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, _bug: bool) -> Result<(), String> {
        let whole = [60, 61].into_iter().filter(|line| {
            let [sequence, content, found] = [0, 1, 2].map(|word| pm.load(*line, word));
            sequence > 0 && found == sum(sequence, content)
        });
        let newest = whole.max_by_key(|line| pm.load(*line, 0));
        let content = newest.map(|line| pm.load(line, 1));
        let right = content == Some(200) || returned == 0 && content == Some(100);
        holds(right, format!("the header says {content:?}"))
    }
    Case { name: "hse_header", model: Model::File, setup, run, promise }
}

/// LMDB with a writable map: the meta page names a new root in the same sync that writes the root's
/// page, and pages reach the disk in any order.
///
/// The cure: a sync between the two.
pub fn lmdb_meta() -> Case {
    fn setup(pm: &Pm<'_>) {
        pm.store(64, 0, 41);
        pm.store(0, 0, 64);
    }
    fn run(pm: &Pm<'_>, bug: bool) {
        pm.operation(0, || {
            pm.store(80, 0, 41);
            pm.store(80, 1, 42);
            if !bug {
                pm.sync();
            }
            pm.store(0, 0, 80);
            pm.sync();
        });
    }
    fn promise(pm: &Reader<'_>, returned: u32, _bug: bool) -> Result<(), String> {
        let root = pm.load(0, 0);
        holds(pm.load(root, 0) == 41, "the root that counts is empty")?;
        holds(returned == 0 || pm.load(root, 1) == 42, "the new key is lost")
    }
    Case { name: "lmdb_meta", model: Model::File, setup, run, promise }
}
