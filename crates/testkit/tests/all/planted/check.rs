//! Reads a pool at rest. Imports the layout only.

use std::collections::BTreeSet;

use everhash_index::{Checked, Error, Form, Result};
use everhash_pmem::{Addr, Media, Pool, Region, pool};

use super::bug::Bug;
use super::layout::{Bucket, Home, ROOT, Root, SLOT_WORDS, SLOTS, bytes, hash, slot, tag};

/// Visits every pair, or names the invariant that is broken.
pub fn check<M: Media>(
    region: &Region<M>,
    bug: Bug,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Checked> {
    let identity = Pool::inspect(region)?;
    let Form::Fixed { key_bytes, value_bytes } = Form::from_code(identity.form) else {
        return Err(Error::Corrupt { at: 0, broken: "the form is a fixed one" });
    };
    let pm = region.access();
    let mut root = [0; Root::WORDS];
    pm.read_words(ROOT, &mut root)?;
    let mut home = Home::of(root[Root::TABLE]);
    if bug == Bug::TornRoot {
        home.log2 = root[Root::LOG2] as u32;
    }
    let corrupt = |at: Addr, broken| Err(Error::Corrupt { at: at.byte(), broken });
    if home.log2 > 20 || home.start < pool::DATA {
        return corrupt(ROOT, "the root names buckets");
    }
    let mut items = 0;
    for index in 0..home.buckets() {
        let at = home.bucket(index);
        let mut bucket = [0; Bucket::WORDS];
        pm.read_words(at, &mut bucket)?;
        if bucket[Bucket::VALID] >> SLOTS != 0 {
            return corrupt(at, "there are seven slots");
        }
        let mut keys = BTreeSet::new();
        for number in (0..SLOTS).filter(|slot| bucket[Bucket::VALID] >> slot & 1 != 0) {
            let words = &bucket[Bucket::PAIRS + number * SLOT_WORDS..][..SLOT_WORDS];
            let (key, mut value) = ([words[0], words[1]], [words[2], words[3]]);
            if root[Root::JOURNAL] == slot(at, number).plus(2).byte() {
                match bug {
                    Bug::JournalApart if root[Root::APART + 2] == 0 => {}
                    Bug::JournalApart => value = [root[Root::APART], root[Root::APART + 1]],
                    _ => value = [root[Root::OLD], root[Root::OLD + 1]],
                }
            }
            let hash = hash(key, identity.hash_key);
            if home.index(hash) != index {
                return corrupt(slot(at, number), "a key lies in its bucket");
            }
            if (bucket[Bucket::TAGS] >> (8 * number)) as u8 != tag(hash) {
                return corrupt(at, "a tag belongs to its key");
            }
            if !keys.insert(key) {
                return corrupt(slot(at, number), "a key is there once");
            }
            visit(&bytes(key, key_bytes as usize), &bytes(value, value_bytes as usize));
            items += 1;
        }
    }
    let reachable_bytes = pool::DATA.byte() + home.buckets() * Bucket::BYTES as u64;
    Ok(Checked { items, reachable_bytes })
}
