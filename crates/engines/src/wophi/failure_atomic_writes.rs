//! Log-free failure-atomic writes (WOPHI III-A-1): a pair first, then one 8-byte store that
//! publishes it. Nothing is written twice.
//!
//! | write | made durable before | commit word |
//! |---|---|---|
//! | insert into the token's line, if a line keeps the order of stores | nothing | token word |
//! | insert elsewhere | the pair | token word |
//! | delete | nothing | token word |
//! | update of an 8-byte value | nothing | the value |
//! | update of a byte string | the new record | the record word |
//! | update of a 16-byte value | the new pair | token word: new token set, old one cleared |

use everhash_index::Result;
use everhash_pmem::{Access, Block, Media, Site, before_reuse};

use super::bucket::{Bucket, BucketCodec};
use super::layout::{Token, successor};

/// Where a write persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// A record, before a slot leads to it.
        RECORD = "wophi/write/record";
        /// A pair, before its token.
        PAIR = "wophi/write/pair";
        /// The line of the token word where its pair and fingerprint must be durable before.
        PAIR_HEAD = "wophi/write/head";
        /// The token that publishes an inserted pair.
        INSERT = "wophi/insert/token";
        /// The token that ends a pair.
        REMOVE = "wophi/remove/token";
        /// The word of a value, or the record word, of an update.
        UPDATE_WORD = "wophi/update/word";
        /// The token word that switches from one slot to another.
        UPDATE_SWITCH = "wophi/update/switch";
        /// The token of the newer one of two equal keys, in another bucket.
        UPDATE_NEW = "wophi/update/new";
        /// The token of the older one.
        UPDATE_OLD = "wophi/update/old";
        /// Every token of a bucket at once, and before it the link to a damaged chain.
        CLEAR = "wophi/clear/token";
    }
}

/// Returns the slot that the next pair of a bucket goes to.
///
/// The search begins behind the one used last (`rotate`), so that not every insert of a bucket
/// that is filled and emptied again wears out one line; without it, at slot 0 as in the paper.
#[inline(always)]
pub fn free_slot<C: BucketCodec>(token: Token, rotate: bool) -> Option<usize> {
    let first = if rotate { token.version() as usize % C::SLOTS } else { 0 };
    let free = token.free(C::SLOTS);
    let behind = free >> (2 * first) << (2 * first);
    let slot = if behind != 0 { behind.trailing_zeros() } else { free.trailing_zeros() };
    (free != 0).then_some(slot as usize / 2)
}

/// Writes a pair into a free slot; its token may follow.
///
/// A crash leaves any part of it in a slot that is free.
///
/// # Errors
/// As the medium.
#[inline(always)]
pub fn write_pair<C: BucketCodec, M: Media>(
    pm: &Access<'_, M>,
    bucket: &Bucket<'_, M, C>,
    slot: usize,
    hash: u64,
    pair: C::Pair,
    ordered: bool,
) -> Result<()> {
    // A reader may still be in the slot: the removal that freed it may be another thread's.
    before_reuse::<M::Sync>();
    C::store(pm, bucket, slot, hash, C::encode(pair))?;
    let apart = C::line(slot) != 0;
    if apart {
        pm.flush(bucket.line(C::line(slot)), sites::PAIR);
    }
    if !ordered {
        bucket.flush(pm, sites::PAIR_HEAD);
    }
    // In the token's line the pair, or the fingerprint, cannot become durable after the token
    // where a line keeps the order of its stores: one flush and one fence do for both.
    if apart || !ordered || C::RECORDS {
        pm.fence(sites::PAIR)?;
    }
    Ok(())
}

/// Stores a token word and makes it durable.
///
/// A crash leaves the old or the new one. Readers are kept away until this returns.
///
/// # Errors
/// As the medium.
#[inline(always)]
pub fn commit<M: Media, C: BucketCodec>(
    pm: &Access<'_, M>,
    bucket: &Bucket<'_, M, C>,
    token: Token,
    site: Site,
) -> Result<()> {
    bucket.commit_token(token.bumped(), site);
    bucket.flush(pm, site);
    Ok(pm.fence(site)?)
}

/// Replaces the last word of a slot by that of `pair`, and makes it durable.
///
/// A crash leaves the old or the new one. A record that `pair` leads to is durable before.
///
/// # Errors
/// As the medium.
pub fn commit_last_word<C: BucketCodec, M: Media>(
    pm: &Access<'_, M>,
    bucket: &Bucket<'_, M, C>,
    slot: usize,
    pair: C::Pair,
) -> Result<()> {
    let word = C::last_word(C::encode(pair));
    bucket.head().commit_word(C::last_index(slot), word, sites::UPDATE_WORD);
    bucket.flush(pm, sites::UPDATE_WORD);
    Ok(pm.fence(sites::UPDATE_WORD)?)
}

/// Returns the token word in which `new` holds what `old` held, newer.
pub fn switched(token: Token, old: usize, new: usize) -> Token {
    token.with_slot(new, successor(token.slot(old))).with_slot(old, 0)
}
