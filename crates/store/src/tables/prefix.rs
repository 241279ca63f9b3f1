//! What lies before the keys of a table: a prefix with its number.
//!
//! Keys of the default table lie in the file as they are, so that a database without tables pays
//! nothing. A key of theirs that begins like a prefix gets the prefix 0: none is mistaken for one
//! of another table. Such a key has room for 8 bytes less, as one of a table with a name.

use std::borrow::Cow;

use everhash_index::MAX_KEY_BYTES;

use crate::error::Fault;
use crate::{Error, Result};

/// The first bytes of every prefix.
///
/// Source: ours; no UTF-8 text has the first one, and three bytes leave five for the number.
const MARK: [u8; 3] = [0xff, 0xeb, 0x7a];

/// The length of a prefix. Unit: bytes.
pub(crate) const BYTES: usize = 8;

/// The number of the keys of the default table that begin with [`MARK`].
pub(crate) const DEFAULT: u64 = 0;

/// The number of the catalogue's own records.
pub(crate) const CATALOGUE: u64 = 1;

/// The first number of a table that has a name.
pub(crate) const FIRST: u64 = 16;

/// The first number beyond all, but for [`ENDING`]: five bytes hold both.
pub(crate) const END: u64 = 1 << 39;

/// In the number of a table whose pairs have expiry times: each pair says so by itself.
pub(crate) const ENDING: u64 = 1 << 39;

/// How long a stored key may be to need no allocation. Unit: bytes. Source: ours; most are shorter.
const SHORT: usize = 128;

/// Returns whether the pairs of a table have expiry times.
pub(crate) fn ends(number: u64) -> bool {
    number & ENDING != 0
}

/// Returns the prefix of a number.
pub(crate) fn of(number: u64) -> [u8; BYTES] {
    let mut prefix = number.to_be_bytes();
    prefix[..MARK.len()].copy_from_slice(&MARK);
    prefix
}

/// Returns the number before a stored key, and the key; `None` for one that lies there as it is.
pub(crate) fn split(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (prefix, key) = stored.split_first_chunk::<BYTES>().filter(|_| begins_like_one(stored))?;
    let mut number = *prefix;
    number[..MARK.len()].fill(0);
    Some((u64::from_be_bytes(number), key))
}

/// Returns whether a key of the default table needs the prefix [`DEFAULT`].
#[inline(always)]
pub(crate) fn begins_like_one(key: &[u8]) -> bool {
    key.starts_with(&MARK)
}

/// Returns the key with the prefix of a number before it.
pub(crate) fn before(number: u64, key: &[u8]) -> Result<Cow<'static, [u8]>> {
    admit(key)?;
    Ok(Cow::Owned(joined(number, key)))
}

/// Returns the prefix of a number and the key behind it, however long that is.
pub(crate) fn joined(number: u64, key: &[u8]) -> Vec<u8> {
    [&of(number), key].concat()
}

/// Calls `run` with the key that has the prefix of a number before it, however long it is.
pub(crate) fn with<R>(number: u64, key: &[u8], run: impl FnOnce(&[u8]) -> R) -> R {
    let bytes = BYTES + key.len();
    if bytes > SHORT {
        return run(&joined(number, key));
    }
    let mut stored = [0; SHORT];
    stored[..BYTES].copy_from_slice(&of(number));
    stored[BYTES..bytes].copy_from_slice(key);
    run(&stored[..bytes])
}

/// Refuses a key that is too long to have a prefix.
pub(crate) fn admit(key: &[u8]) -> Result<()> {
    admit_key(key).map_err(|error| Error::Pair(Fault::of(error)))
}

/// As [`admit`], with the error of an index.
pub(crate) fn admit_key(key: &[u8]) -> everhash_index::Result<()> {
    let (bytes, limit) = (key.len(), MAX_KEY_BYTES - BYTES);
    if bytes > limit {
        return Err(everhash_index::Error::KeyTooLong { bytes, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_can_be_taken_off_again() {
        // Fails if a number were cut, or if a key that only resembles one were split.
        for number in [DEFAULT, CATALOGUE, FIRST, END - 1, ENDING | (END - 1)] {
            for key in [&b""[..], b"key", &[7; 500]] {
                assert_eq!(split(&before(number, key).unwrap()), Some((number, key)));
                let whole = with(number, key, <[u8]>::to_vec);
                assert_eq!(split(&whole), Some((number, key)));
            }
        }
        for key in [&b""[..], b"key of the default table", &MARK, &MARK[..2]] {
            assert_eq!(split(key), None);
        }
        assert!(before(FIRST, &[0; MAX_KEY_BYTES]).is_err());
    }

    #[test]
    fn keys_of_every_length_around_the_buffer_get_their_prefix() {
        // Fails if a key that just does not fit into the buffer were copied there.
        for bytes in 0..=2 * SHORT {
            let key = vec![7; bytes];
            let whole = with(FIRST, &key, <[u8]>::to_vec);
            assert_eq!(split(&whole), Some((FIRST, &key[..])), "{bytes}");
        }
        let longest = vec![7; MAX_KEY_BYTES - BYTES];
        assert_eq!(with(FIRST, &longest, <[u8]>::len), MAX_KEY_BYTES);
        assert!(before(FIRST, &vec![7; MAX_KEY_BYTES - BYTES + 1]).is_err());
    }
}
