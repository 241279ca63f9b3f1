//! First touches: an opening verifies a checkpoint of the directory and leaves nearly all leaves
//! there; each is loaded when somebody first looks for a key in it.
//!
//! No look-up asks whether its leaf is loaded: where it is not, there is none to look at, which is
//! rare like all that [`Reef::get_hashed`](super::state::Reef) leaves to another function. A reader
//! then waits for the latch of the shard, once for each leaf. A loaded leaf never goes back.
//!
//! Before its checkpoint is given up, all leaves are loaded.

use everhash_index::Result;
use everhash_pmem::{Access, Media};

use super::directory::{Members, Shard};
use super::state::Reef;

impl<M: Media> Reef<M> {
    /// Loads the leaf of a hash if it is not loaded; the caller holds the latch of its shard, of
    /// which these are the members.
    ///
    /// # Errors
    /// Those of the medium; [`Error::Corrupt`](everhash_index::Error::Corrupt) if the checkpoint
    /// was changed since the table was opened.
    #[inline(always)]
    pub(super) fn touch(
        &self,
        pm: &Access<'_, M>,
        (shard, members): (&Shard<M::Sync>, &Members),
        hash: u64,
    ) -> Result<()> {
        shard.touch(members, hash, |at, words| Ok(pm.read_words(at, words)?))
    }

    /// As [`Reef::touch`], for a reader, who holds no latch.
    ///
    /// # Errors
    /// As [`Reef::touch`]; [`Error::Poisoned`](everhash_index::Error::Poisoned) after a panic
    /// inside.
    #[inline(always)]
    pub(super) fn touch_to_read(
        &self,
        pm: &Access<'_, M>,
        shard: &Shard<M::Sync>,
        hash: u64,
    ) -> Result<()> {
        shard.touch_to_read(hash, |at, words| Ok(pm.read_words(at, words)?))
    }

    /// Loads all leaves that are not loaded. Writers wait for one at a time.
    ///
    /// # Errors
    /// As [`Reef::touch_to_read`].
    pub(super) fn touch_all(&self) -> Result<()> {
        let pm = self.pool.access();
        for shard in self.shards.all() {
            for part in shard.parts()? {
                self.touch_to_read(&pm, shard, part.index)?;
            }
        }
        Ok(())
    }
}
