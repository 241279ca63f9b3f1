//! What `maintain` does: growth ahead of need, refilling, and unlinking of empty buckets.

use core::sync::atomic::Ordering;
use core::time::Duration;

use everhash_index::{Error, Result, Upkeep};
use everhash_pmem::{Access, Addr, AtomicWord, LINE, Lock, Media};

use super::bucket::{Bucket, BucketCodec};
use super::layout::Kind;
use super::state::{Sweep, Wophi};
use crate::common::damage::or_damage;

/// For how many main buckets there is one empty chained one, when a sweep begins beside those that
/// empty them.
///
/// Unit: buckets. Source: ours; a sweep of so many costs less than emptying them did, and they take
/// a sixteenth of the room at most.
const BUCKETS_PER_EMPTIED: u64 = 16;

/// Where upkeep persists something.
pub mod sites {
    everhash_pmem::sites! {
        /// The link that leads past empty buckets.
        UNLINK = "wophi/unlink/link";
    }
}

impl<M: Media, C: BucketCodec> Wophi<M, C> {
    /// Works on about `budget` buckets.
    ///
    /// # Errors
    /// Errors of the medium; [`Error::Corrupt`] after the work beside the damage.
    pub fn maintain(&self, now: Duration, budget: u32) -> Result<Upkeep> {
        self.pool.check_writable()?;
        let Some(mut sweep) = self.sweep.try_lock()? else { return Ok(Upkeep::default()) };
        let pm = self.pool.access();
        let mut left = u64::from(budget.max(1));
        let (mut more, mut damage) = (false, None);
        // A damaged group ends the splits of this call, once: it is split then, and the next call
        // begins behind it.
        while self.main.view().growing && or_damage(self.split_next(&pm), &mut damage)? {
            left = left.saturating_sub(self.settings.group_buckets);
            if left == 0 {
                more = true;
                break;
            }
        }
        self.reserve_ahead(&mut sweep)?;
        // A sixteenth of the arrays at hand is enough between two calls.
        let low = self.pab.usage()?.arrays.div_ceil(16);
        left = left.saturating_sub(self.pab.refill(low, left)?);
        let swept = self.sweep(&pm, &mut sweep, (now, left), &mut damage)?;
        damage.map_or(Ok(Upkeep { more: more || swept.more, ..swept }), Err)
    }

    /// Takes the space of the next growth from the device before an insert has to wait for it.
    fn reserve_ahead(&self, sweep: &mut Sweep) -> Result<()> {
        let view = self.main.view();
        let items = self.estimated_items();
        let due = self.grow_at.load(Ordering::Relaxed);
        if view.growing || sweep.reserved == Some(view.level) || items < due - due / 8 {
            return Ok(());
        }
        sweep.reserved = Some(view.level);
        let buckets = self.main.count(view.level);
        let share = buckets / self.settings.pab_divisor + 1;
        match self.space.reserve_ahead((buckets + share) * C::LINES * LINE) {
            // Not an error yet: the table works on with longer chains.
            Ok(()) | Err(everhash_pmem::Error::Full { .. }) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }

    /// Looks for empty buckets in up to `left` chains, if that is due or has begun. Passes over
    /// damaged chains, and leaves the first error of one in `damage`.
    fn sweep(
        &self,
        pm: &Access<'_, M>,
        sweep: &mut Sweep,
        (now, left): (Duration, u64),
        damage: &mut Option<Error>,
    ) -> Result<Upkeep> {
        let more = Upkeep { deadline: None, more: true };
        if left == 0 {
            // A sweep that looks at nothing has not begun: what was emptied stays counted.
            return Ok(more);
        }
        if sweep.next == 0 {
            let enough = self.main.reachable() / BUCKETS_PER_EMPTIED;
            if let Some(upkeep) = self.emptied.begin(&mut sweep.seen, now, enough) {
                return Ok(upkeep);
            }
        }
        let end = self.main.reachable().min(sweep.next.saturating_add(left));
        for index in sweep.next..end {
            match self.unlink_empty(pm, index) {
                // Its chains stay as they are until the pool is opened again; others do not.
                Err(Error::Poisoned) => {}
                unlinked => or_damage(unlinked, damage)?,
            }
        }
        sweep.next = if end == self.main.reachable() { 0 } else { end };
        // After the last chain, the next call says when the next sweep is due.
        Ok(more)
    }

    /// Unlinks the empty buckets of the chain of main bucket `index`, and takes them back.
    ///
    /// A crash leaves each of them in the chain or not. No pair moves, and the links past the
    /// empty buckets are durable before one of these can be used again.
    fn unlink_empty(&self, pm: &Access<'_, M>, index: u64) -> Result<()> {
        let held = self.stripes.of(index).hold(pm)?;
        let Some(main) = self.main.visit(pm, index)? else { return Ok(()) };
        let mut links: Vec<(Bucket<'_, M, C>, Addr)> = Vec::new();
        let mut empty = Vec::new();
        let (mut kept, mut skipped, mut steps) = (main, false, 0);
        let mut next = self.follow(pm, &main, index, &mut steps)?;
        while let Some(bucket) = next {
            debug_assert_eq!(bucket.kind, Kind::Chained);
            if bucket.token.count() == 0 {
                empty.push(bucket.at);
                skipped = true;
            } else {
                if skipped {
                    links.push((kept, bucket.at));
                }
                (kept, skipped) = (bucket, false);
            }
            next = self.follow(pm, &bucket, index, &mut steps)?;
        }
        if skipped {
            links.push((kept, Addr::NULL));
        }
        if links.is_empty() {
            return Ok(());
        }
        let change = held.change()?;
        for (bucket, target) in &links {
            bucket.commit_next(*target, sites::UNLINK);
            bucket.flush(pm, sites::UNLINK);
        }
        pm.fence(sites::UNLINK)?;
        change.end();
        empty.into_iter().try_for_each(|at| self.pab.give(at))
    }
}
