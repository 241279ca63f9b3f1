//! The newest version of each key of an old chain, while a rehash moves it to a new chain.
//!
//! Pairs of words are held by value, byte strings in one buffer.

use everhash_index::{Form, Result};
use everhash_pmem::{Access, Addr, Media};

use super::object::Content;
use super::state::Walsh;

/// The pairs of a chain. It is reused from chain to chain, so that its buffers are allocated once.
#[derive(Default)]
pub struct Moving {
    pairs: Vec<Pair>,
    /// Keys and values of byte strings, concatenated.
    bytes: Vec<u8>,
    /// The byte strings that were read last.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A pair that is moved, or a tombstone.
struct Pair {
    hash: u64,
    is_live: bool,
    carried: Carried,
}

#[derive(Clone, Copy)]
enum Carried {
    Words([u64; 2]),
    /// The ranges of key and value in the buffer.
    Bytes([usize; 3]),
}

impl Moving {
    /// Forgets the chain before.
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.bytes.clear();
    }

    /// Adds the pair of the next older object of the chain, unless a newer version of its key was
    /// added before; returns the address of the object behind it.
    ///
    /// # Errors
    /// [`everhash_index::Error::Corrupt`] if the object is damaged.
    #[inline(always)]
    pub fn take<M: Media>(
        &mut self,
        table: &Walsh<M>,
        pm: &Access<'_, M>,
        at: Addr,
    ) -> Result<Addr> {
        let start = self.bytes.len();
        let (found, hash, carried) = if table.form == Form::WORDS {
            let (found, pair) = table.objects.read_word(pm, at)?;
            (found, table.hasher.word(pair.key), Carried::Words([pair.key, pair.value]))
        } else {
            let found = table.objects.read(pm, at, &mut self.key, &mut self.value)?;
            self.bytes.extend_from_slice(&self.key);
            let middle = self.bytes.len();
            self.bytes.extend_from_slice(&self.value);
            let places = [start, middle, self.bytes.len()];
            (found, table.hasher.bytes(&self.key), Carried::Bytes(places))
        };
        let mut older = self.pairs.iter().filter(|pair| pair.hash == hash);
        if older.any(|pair| self.content(pair.carried).has_key_of(&self.content(carried))) {
            self.bytes.truncate(start);
        } else {
            self.pairs.push(Pair { hash, is_live: found.link.kind.is_live(), carried });
        }
        Ok(found.link.next)
    }

    /// Returns the pairs that are present, each with the hash of its key.
    #[inline(always)]
    pub fn live(&self) -> impl Iterator<Item = (u64, Content<'_>)> {
        let live = self.pairs.iter().filter(|pair| pair.is_live);
        live.map(|pair| (pair.hash, self.content(pair.carried)))
    }

    #[inline(always)]
    fn content(&self, carried: Carried) -> Content<'_> {
        match carried {
            Carried::Words(pair) => Content::Words(pair),
            Carried::Bytes([start, middle, end]) => {
                let (key, value) = (&self.bytes[start..middle], &self.bytes[middle..end]);
                Content::Bytes { key, value }
            }
        }
    }
}
