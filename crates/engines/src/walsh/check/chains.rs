//! Chains that the judge keeps of its own, and what a directory may say of them.

use std::collections::{BTreeMap, HashMap};

use everhash_index::Result;
use everhash_pmem::Addr;

use super::objects::Object;
use crate::common::check::corrupt;
use crate::walsh::layout::{DIRECTORY_HASH, Directory, MOST_LEVEL};

/// The newest value of each key, `None` for a tombstone.
pub type Newest = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// One generation of an area: its chains and its keys.
#[derive(Default)]
pub struct Generation {
    pub level: u64,
    /// Whether there may be blind writes, which pass over nothing.
    pub is_estimated: bool,
    pub heads: BTreeMap<u64, Head>,
    pub newest: Newest,
}

/// The head of a chain.
pub struct Head {
    at: Addr,
    /// The object behind it.
    behind: Addr,
    key: Vec<u8>,
    hash: u64,
    /// Older versions of the key that led to the same object.
    passed: Vec<Addr>,
    /// Those of the keys behind it.
    others: Vec<u64>,
}

impl Head {
    /// Returns whether a directory says where a search begins in this chain.
    pub fn is_named_by(&self, directory: Directory) -> bool {
        let leads = |start: Addr| start == self.behind || self.passed.contains(&start);
        directory.start(self.hash) == self.at
            && leads(directory.behind())
            && self.others.iter().all(|hash| !directory.start(*hash).is_null())
    }
}

impl Generation {
    /// Makes an object the head of its chain, and checks where it leads: to the head before it, or,
    /// if that is of the same key, to the one behind that.
    pub fn chain(&mut self, at: Addr, hash: u64, object: &Object) -> Result<()> {
        let directory = DIRECTORY_HASH.get(hash) >> (u64::from(MOST_LEVEL) - self.level);
        let before = self.heads.remove(&directory);
        let is_blind =
            self.is_estimated && before.as_ref().is_some_and(|head| head.at == object.link.next);
        let mut head = Head {
            at,
            hash,
            key: object.key.clone(),
            behind: object.link.next,
            passed: Vec::new(),
            others: Vec::new(),
        };
        let expected = match before {
            None => Addr::NULL,
            Some(before) if before.key == object.key && !is_blind => {
                head.others = before.others;
                head.passed = before.passed;
                head.passed.push(before.at);
                before.behind
            }
            Some(before) => {
                head.others = before.others;
                head.others.push(before.hash);
                before.at
            }
        };
        if object.link.next != expected {
            return Err(corrupt(at, "an object leads to the head of its chain before it"));
        }
        self.heads.insert(directory, head);
        Ok(())
    }
}
