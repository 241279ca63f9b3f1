//! A bucket (WOPHI III-A, Fig. 1): its first line, verified before anything in it is used, and its
//! slots, as the pairs of each form lie in them.

mod codecs;

use core::marker::PhantomData;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Block, LINE, Media, Site, Span};

use super::layout::{self, Kind, LINE_WORDS, NEXT, TOKEN, Token};
use crate::common::hash::KeyedHash;
use crate::common::slot_codec::SlotCodec;

pub use codecs::{find_value, key_words};

/// How an update publishes a new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// By one store of the slot's last word.
    LastWord,
    /// By a second slot and a switch of tokens.
    TwoSlots,
}

/// Where in its bucket a slot lies, and how the slot of a key is found there.
pub trait BucketCodec: SlotCodec {
    /// Slots of a bucket.
    const SLOTS: usize;
    /// Lines of a bucket.
    const LINES: u64;
    /// How an update publishes a new value.
    const UPDATE: Update;

    /// Returns the line of its bucket in which a slot lies.
    fn line(slot: usize) -> u64;

    /// Returns the index of the last word of a slot in its bucket.
    fn last_index(slot: usize) -> usize;

    /// Returns the last word of a slot.
    fn last_word(words: Self::Words) -> u64;

    /// Loads the words of a slot.
    ///
    /// # Errors
    /// As the medium, if the slot does not lie inside.
    fn load<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
    ) -> Result<Self::Words>;

    /// Stores the words of a slot, without its token. Nothing is flushed.
    ///
    /// # Errors
    /// As the medium, if the slot does not lie inside.
    fn store<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        slot: usize,
        hash: u64,
        words: Self::Words,
    ) -> Result<()>;

    /// Returns the slot that holds `key`. A record's value is left in `bytes`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; also if a write comes between, which the caller's validation detects.
    fn find<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<usize>>;

    /// As [`BucketCodec::find`], with the pair.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    fn find_pair<M: Media>(
        pm: &Access<'_, M>,
        bucket: &Bucket<'_, M, Self>,
        hash: u64,
        key: Self::Key<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Self::Pair>> {
        match Self::find(pm, bucket, hash, key, bytes)? {
            Some(slot) => bucket.pair(pm, slot).map(Some),
            None => Ok(None),
        }
    }

    /// Returns whether two pairs have the same key, for [`Update::TwoSlots`]. With the other update
    /// no crash leaves a key twice: then `false` is an answer.
    fn is_same_key(a: Self::Pair, b: Self::Pair) -> bool;
}

/// Returns the hash of the key of a pair.
#[inline(always)]
pub fn hash_of<C: SlotCodec>(hasher: &KeyedHash, pair: C::Pair) -> u64 {
    C::words_hash(hasher, C::encode(pair))
}

/// The first line of a bucket, and what its token word said when that was loaded.
pub struct Bucket<'a, M: Media + 'a, C: BucketCodec> {
    /// Where it begins.
    pub at: Addr,
    /// Whether it is addressed or chained.
    pub kind: Kind,
    /// What its token word said.
    pub token: Token,
    head: M::Block<'a, LINE_WORDS>,
    codec: PhantomData<fn() -> C>,
}

impl<M: Media, C: BucketCodec> Clone for Bucket<'_, M, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Media, C: BucketCodec> Copy for Bucket<'_, M, C> {}

impl<'a, M: Media, C: BucketCodec> Bucket<'a, M, C> {
    /// Reads the bucket at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the token word does not match its check.
    #[inline(always)]
    pub fn read(pm: &'a Access<'_, M>, at: Addr, kind: Kind) -> Result<Self> {
        let head = pm.block::<LINE_WORDS>(at)?;
        match Token::decode(head.load(TOKEN), at, kind, C::SLOTS) {
            Some(token) => Ok(Bucket { at, kind, token, head, codec: PhantomData }),
            None => Err(corrupt(at, "a token word matches its check")),
        }
    }

    /// Makes a bucket of whatever lies at `at`, which no link leads to: it has `token` once that is
    /// stored. Its link is set to none; nothing is flushed.
    pub fn fresh(pm: &'a Access<'_, M>, at: Addr, kind: Kind, token: Token) -> Result<Self> {
        let bucket = Self::unread(pm, at, kind, token)?;
        bucket.store_next(Addr::NULL);
        Ok(bucket)
    }

    /// Returns what lies at `at` as the bucket that it is to be, whatever it says: it has `token`
    /// once that is stored.
    pub fn unread(pm: &'a Access<'_, M>, at: Addr, kind: Kind, token: Token) -> Result<Self> {
        let head = pm.block::<LINE_WORDS>(at)?;
        Ok(Bucket { at, kind, token, head, codec: PhantomData })
    }

    /// Loads the pair in a slot.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the words of the slot show damage.
    #[inline(always)]
    pub fn pair(&self, pm: &Access<'_, M>, slot: usize) -> Result<C::Pair> {
        let last = self.at.plus(C::last_index(slot) as u64);
        C::decode(C::load(pm, self, slot)?, last)
    }

    /// Returns the words of the first line.
    #[inline(always)]
    pub fn head(&self) -> &M::Block<'a, LINE_WORDS> {
        &self.head
    }

    /// Reads a main bucket whose token word has this home, see [`layout::home_in_token`]; `None`
    /// for any other one, and for an error.
    #[inline(always)]
    pub fn try_resting(pm: &'a Access<'_, M>, at: Addr, home: u64) -> Option<Self> {
        let head = pm.try_aligned_block::<LINE_WORDS>(at.byte())?;
        // Where the line begins: that is `at`, or else this is no bucket and its check says so.
        let at = head.start();
        let token = Token::decode_resting(head.load(TOKEN), at, home, C::SLOTS)?;
        Some(Bucket { at, kind: Kind::Main, token, head, codec: PhantomData })
    }

    /// Returns whether the chain ends here; `false` also if the link is damaged.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        layout::is_end(self.head.load(NEXT), self.link_at())
    }

    /// Returns where the next bucket of the chain begins.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the link does not match its check.
    #[inline(always)]
    pub fn next(&self) -> Result<Option<Addr>> {
        match layout::decode_link(self.head.load(NEXT), self.link_at()) {
            Some(next) => Ok((!next.is_null()).then_some(next)),
            None => Err(corrupt(self.link_at(), "a link matches its check")),
        }
    }

    /// Stores another link: the commit word of the bucket that it leads to.
    pub fn commit_next(&self, next: Addr, site: Site) {
        self.head.commit_word(NEXT, layout::encode_link(next, self.link_at()), site);
    }

    /// Stores another link into a bucket that no link leads to yet.
    pub fn store_next(&self, next: Addr) {
        self.head.store(NEXT, layout::encode_link(next, self.link_at()));
    }

    /// Stores a word that is no link into a bucket that no link leads to yet: what lies behind it
    /// is not known.
    pub fn break_next(&self) {
        // A check notices every flipped bit.
        self.head.store(NEXT, layout::encode_link(Addr::NULL, self.link_at()) ^ 1);
    }

    /// Stores another token word: the commit word of the slots.
    #[inline(always)]
    pub fn commit_token(&self, token: Token, site: Site) {
        self.head.commit_word(TOKEN, token.encode(self.at, self.kind), site);
    }

    /// Stores the token word of a bucket that no link leads to yet.
    pub fn store_token(&self, token: Token) {
        self.head.store(TOKEN, token.encode(self.at, self.kind));
    }

    /// Begins the write-back of the first line.
    #[inline(always)]
    pub fn flush(&self, pm: &Access<'_, M>, site: Site) {
        pm.flush(self.line(0), site);
    }

    /// Returns line `line` of the bucket.
    #[inline(always)]
    pub fn line(&self, line: u64) -> Span {
        Span::new(self.at.plus(line * LINE_WORDS as u64), LINE_WORDS as u64)
    }

    #[inline(always)]
    fn link_at(&self) -> Addr {
        self.at.plus(NEXT as u64)
    }
}

/// Reads a chained bucket that must belong to main bucket `owner`.
///
/// # Errors
/// [`Error::Corrupt`] if it does not.
#[inline]
pub fn read_chained<'a, M: Media, C: BucketCodec>(
    pm: &'a Access<'_, M>,
    at: Addr,
    owner: u64,
) -> Result<Bucket<'a, M, C>> {
    let bucket = Bucket::read(pm, at, Kind::Chained)?;
    if bucket.token.home() != owner {
        return Err(corrupt(at, "a chained bucket belongs to the chain that it is linked into"));
    }
    Ok(bucket)
}

/// Makes the error of a broken invariant at `at`.
#[cold]
pub fn corrupt(at: Addr, broken: &'static str) -> Error {
    Error::Corrupt { at: at.byte(), broken }
}

const _: () = assert!(LINE as usize == LINE_WORDS * 8);
