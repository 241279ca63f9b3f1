//! Visiting all pairs: shard by shard, and in a shard by home buckets.
//!
//! A place in the order of homes can be resumed whatever leaves are split meanwhile: every pair
//! that is present throughout is visited once.

use everhash_index::{Cursor, Error, Result};
use everhash_pmem::{Bits, Lock, Media};

use super::directory::{damaged, hash_at_home};
use super::state::Reef;

/// The home bucket with which a scan goes on.
const HOME: Bits = Bits::new(0, 48);
/// Its shard.
const SHARD: Bits = Bits::new(48, 16);

/// After how many bytes of pairs a call of a scan ends.
///
/// Unit: bytes. Source: ours; they are copied, so that no latch is held while they are visited.
const COPIED_BYTES: usize = 16 << 10;

/// How many home buckets a call of a scan looks at, at most.
///
/// Unit: buckets. Source: ours; bounds how long writers of the shard wait.
const HOMES: u64 = 256;

impl<M: Media> Reef<M> {
    /// As [`everhash_index::Table::scan`].
    pub(super) fn scan_from(
        &self,
        cursor: Cursor,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Cursor>> {
        let (number, home) = (SHARD.get(cursor.0), HOME.get(cursor.0));
        let Some(shard) = self.shards.all().get(number as usize) else { return Ok(None) };
        let pm = self.pool.access();
        let (mut pairs, mut bytes, mut damage) = (Vec::new(), 0, None);
        let end = {
            let members = shard.latch.lock()?;
            self.alive()?;
            let (mut next, mut homes) = (Some(home), 0);
            while let Some(home) = next
                && homes < HOMES
                && bytes < COPIED_BYTES
            {
                self.touch(&pm, (shard, &*members), hash_at_home(home))?;
                next = shard.at_home(home, |at| {
                    let (mut key, mut value) = (Vec::new(), Vec::new());
                    let seal = self.units.seal(at);
                    match self.objects.read(&pm, (at, seal), &mut key, &mut value) {
                        Ok(Some(_)) => {
                            bytes += key.len() + value.len() + 1;
                            pairs.push((key, value));
                        }
                        // With a damaged length, it may end behind the medium.
                        Ok(None) | Err(Error::Corrupt { .. }) => damage = damage.or(Some(at)),
                        Err(error) => return Err(error),
                    }
                    Ok(())
                })?;
                if damage.is_some() {
                    // The next call begins with this home: that one fails.
                    damage = damage.filter(|_| homes == 0);
                    next = Some(home);
                    break;
                }
                homes += 1;
            }
            next
        };
        pairs.iter().for_each(|(key, value)| visit(key, value));
        match damage {
            Some(at) => Err(damaged(at)),
            None => Ok(self.cursor(number, end)),
        }
    }

    /// As [`everhash_index::Table::scan_past`]: passes over one home, of which a scan visits what
    /// is sound.
    pub(super) fn scan_behind(&self, cursor: Cursor) -> Result<Option<Cursor>> {
        let (number, home) = (SHARD.get(cursor.0), HOME.get(cursor.0));
        let Some(shard) = self.shards.all().get(number as usize) else { return Ok(None) };
        let end = {
            let members = shard.latch.lock()?;
            self.alive()?;
            self.touch(&self.pool.access(), (shard, &*members), hash_at_home(home))?;
            shard.at_home(home, |_| Ok(()))?
        };
        Ok(self.cursor(number, end))
    }

    /// Returns where a scan of a shard goes on, whose next home is `end`.
    fn cursor(&self, number: u64, end: Option<u64>) -> Option<Cursor> {
        match (end, number as usize + 1 < self.shards.all().len()) {
            (Some(end), _) => Some(Cursor(SHARD.set(HOME.set(0, end), number))),
            (None, true) => Some(Cursor(SHARD.set(0, number + 1))),
            (None, false) => None,
        }
    }
}
