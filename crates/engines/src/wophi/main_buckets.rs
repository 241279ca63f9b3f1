//! Main buckets (WOPHI III-A): an addressable array that doubles by extents and never moves.

use core::marker::PhantomData;
use core::num::NonZero;
use core::sync::atomic::Ordering;

use everhash_index::Result;
use everhash_pmem::{Access, Addr, AtomicWord, Bits, Media, Primitives};

use super::bucket::{Bucket, BucketCodec, corrupt};
use super::layout::{self, EXTENTS, Kind, LINE_WORDS, extent_start};

/// 1 + how often the array has doubled: the home in the token word of a bucket that is not split
/// further.
const HOME: Bits = Bits::new(0, 7);
/// Whether the next doubling is in progress.
const GROWING: Bits = Bits::new(7, 1);
/// The home that no bucket has: while a doubling is in progress.
const NO_HOME: u64 = 0;

/// How far the array has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// How often the array has doubled, all buckets split.
    pub level: u32,
    /// Whether the next doubling is in progress: some buckets may be split once more.
    pub growing: bool,
}

/// Where each main bucket lies, and which of them a hash leads to.
///
/// Bucket b of n splits into b and b + n: the hash decides by one more of its low bits.
pub struct MainBuckets<P: Primitives, C: BucketCodec> {
    initial: NonZero<u64>,
    /// The [`View`], in one word.
    view: P::AtomicU64,
    /// The home of every bucket as its token word has it, or [`NO_HOME`]. A reader loads it before
    /// the mask, and it is stored behind that: so the mask is of the same level or of a later one,
    /// at which no bucket has this home any more.
    home: P::AtomicU64,
    /// One less than the number of buckets at the last level that was reached.
    mask: P::AtomicU64,
    /// Where bucket 0 would lie if each extent reached back to it; extent 0 comes at the logarithm
    /// of `initial`. Unit: words, modulo 2^64.
    origins: [P::AtomicU64; EXTENTS],
    codec: PhantomData<fn() -> C>,
}

impl<P: Primitives, C: BucketCodec> MainBuckets<P, C> {
    const BUCKET_WORDS: u64 = C::LINES * LINE_WORDS as u64;

    /// Makes the map of an array that begins with `initial` buckets, a power of two.
    pub fn new(initial: u64) -> Self {
        let initial = NonZero::new(initial).expect("an array begins with a bucket");
        MainBuckets {
            initial,
            view: AtomicWord::new(HOME.set(0, 1)),
            home: AtomicWord::new(layout::home_in_token(1)),
            mask: AtomicWord::new(initial.get() - 1),
            origins: core::array::from_fn(|_| AtomicWord::new(0)),
            codec: PhantomData,
        }
    }

    /// Sets where extent `extent` lies; before the view that includes it is set.
    pub fn set_extent(&self, extent: usize, at: Addr) {
        let back = extent_start(self.initial.get(), extent).wrapping_mul(Self::BUCKET_WORDS);
        let origin = &self.origins[self.initial.trailing_zeros() as usize + extent];
        origin.store(at.word().wrapping_sub(back), Ordering::Release);
    }

    /// Sets how far the array has grown.
    pub fn set_view(&self, view: View) {
        let stored_home = u64::from(view.level) + 1;
        let word = HOME.set(GROWING.set(0, view.growing.into()), stored_home);
        self.view.store(word, Ordering::Release);
        if view.growing {
            self.home.store(NO_HOME, Ordering::Release);
        }
        self.mask.store(self.count(view.level) - 1, Ordering::Release);
        if !view.growing {
            self.home.store(layout::home_in_token(stored_home), Ordering::Release);
        }
    }

    /// Returns how far the array has grown.
    ///
    /// Under a stripe's lock, or its stamp, no older than the last split of the stripe.
    #[inline(always)]
    pub fn view(&self) -> View {
        let word = self.view.load(Ordering::Acquire);
        View { level: HOME.get(word) as u32 - 1, growing: GROWING.get(word) != 0 }
    }

    /// Returns the number of buckets at `level`.
    #[inline(always)]
    pub fn count(&self, level: u32) -> u64 {
        self.initial.get() << level
    }

    /// Returns the number of buckets that may hold something.
    pub fn reachable(&self) -> u64 {
        let view = self.view();
        self.count(view.level + u32::from(view.growing))
    }

    /// Returns where bucket `index` lies.
    #[inline(always)]
    pub fn at(&self, index: u64) -> Addr {
        // Extent k > 0 begins at 2^(k - 1) times the buckets of extent 0. The bit of `initial`
        // stands for that one; it decides only if no higher bit is set.
        let piece = (self.initial | index << 1).ilog2();
        let origin = self.origins[piece as usize].load(Ordering::Relaxed);
        Addr::NULL.plus(origin.wrapping_add(index.wrapping_mul(Self::BUCKET_WORDS)))
    }

    /// As [`MainBuckets::home`], with `None` for an error, and for every bucket while a growth is
    /// in progress.
    #[inline(always)]
    pub fn resting_home<'a, M: Media>(
        &self,
        pm: &'a Access<'_, M>,
        hash: u64,
    ) -> Option<Bucket<'a, M, C>> {
        // In this order, see `home`.
        let home = self.home.load(Ordering::Acquire);
        let at = self.at(hash & self.mask.load(Ordering::Acquire));
        Bucket::try_resting(pm, at, home)
    }

    /// Returns the main bucket of a hash, with its index.
    ///
    /// # Errors
    /// [`Error::Corrupt`](everhash_index::Error::Corrupt); also if a split comes between, which the
    /// caller's validation detects.
    #[inline(always)]
    pub fn home<'a, M: Media>(
        &self,
        pm: &'a Access<'_, M>,
        hash: u64,
    ) -> Result<(u64, Bucket<'a, M, C>)> {
        let view = self.view();
        let low = hash & (self.count(view.level) - 1);
        let bucket = Bucket::read(pm, self.at(low), Kind::Main)?;
        let depth = bucket.token.home();
        if depth == u64::from(view.level) {
            return Ok((low, bucket));
        }
        self.split_home(pm, hash, view, (low, bucket))
    }

    /// As [`MainBuckets::home`] where the lower bucket, `base`, is split once more.
    fn split_home<'a, M: Media>(
        &self,
        pm: &'a Access<'_, M>,
        hash: u64,
        view: View,
        base: (u64, Bucket<'a, M, C>),
    ) -> Result<(u64, Bucket<'a, M, C>)> {
        let depth = base.1.token.home();
        if !view.growing || depth != u64::from(view.level) + 1 {
            return Err(corrupt(base.1.at, "a bucket was split as often as the array doubled"));
        }
        let index = hash & (self.count(view.level + 1) - 1);
        if index == base.0 {
            return Ok(base);
        }
        let bucket = Bucket::read(pm, self.at(index), Kind::Main)?;
        if bucket.token.home() != depth {
            return Err(corrupt(bucket.at, "both halves of a split have one depth"));
        }
        Ok((index, bucket))
    }

    /// Returns bucket `index`, or `None` if it is an upper half that nothing was split into yet.
    ///
    /// # Errors
    /// As [`MainBuckets::home`].
    pub fn visit<'a, M: Media>(
        &self,
        pm: &'a Access<'_, M>,
        index: u64,
    ) -> Result<Option<Bucket<'a, M, C>>> {
        // A bucket's own index is a hash that leads to it, or to its lower half.
        let (found, bucket) = self.home(pm, index)?;
        Ok((found == index).then_some(bucket))
    }
}
