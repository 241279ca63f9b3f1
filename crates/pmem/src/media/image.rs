//! A volatile medium in ordinary memory, for crash images and for examples.

mod refusals;

use core::sync::atomic::{AtomicU64, Ordering};
use std::marker::PhantomData;

use super::{Block, Domain, Guarantees, Hints, Holes, Media, Simulation, out_of_bounds};
use crate::traffic::{Stripe, Tally, Traffic};
use crate::{Addr, Error, Primitives, Result, Site, Span, Std, WORD};

pub use refusals::{Refusals, Refused};

/// Words in ordinary memory, up to a fixed capacity; counts what is done to them if it is asked to.
///
/// ```
/// use everhash_pmem::{Addr, Image, Media, Region};
///
/// let region = Region::new(Image::<everhash_pmem::Std>::new(4096, 8192));
/// let pm = region.access();
/// pm.store(Addr::new(64), 7)?;
/// assert_eq!(pm.load(Addr::new(64))?, 7);
/// assert!(pm.load(Addr::new(4096)).is_err());
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Image<P = Std> {
    words: Box<[AtomicU64]>,
    bytes: AtomicU64,
    guarantees: Guarantees,
    tally: Option<Tally>,
    refusals: Refusals,
    primitives: PhantomData<P>,
}

impl<P: Primitives> Image<P> {
    /// Makes an image of `bytes` zero bytes that can grow to `capacity` bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity`.
    pub fn new(bytes: u64, capacity: u64) -> Self {
        Self::of(&[], bytes, capacity)
    }

    /// Makes an image of `bytes` bytes that begins with `words` and can grow to `capacity` bytes.
    ///
    /// # Panics
    /// If `bytes` exceeds `capacity` or is shorter than `words`.
    pub fn of(words: &[u64], bytes: u64, capacity: u64) -> Self {
        assert!(bytes <= capacity, "an image is at most as long as its capacity");
        assert!(words.len() as u64 * WORD <= bytes, "the words fit into the image");
        let rest = (capacity / WORD) as usize - words.len();
        let words = words.iter().copied().chain(core::iter::repeat_n(0, rest));
        Image {
            words: words.map(AtomicU64::new).collect(),
            bytes: AtomicU64::new(bytes / WORD * WORD),
            guarantees: Guarantees {
                domain: Domain::Adr,
                same_line_order: true,
                access_unit_bytes: 256,
            },
            tally: None,
            refusals: Refusals::default(),
            primitives: PhantomData,
        }
    }

    /// Lets the image count every verb, as [`Counted`](crate::Counted) does. An engine need not be
    /// compiled for another medium then; but counters order what threads do, so images on which
    /// races are looked for do not count.
    pub fn counted(mut self) -> Self {
        self.tally = Some(Tally::new());
        self
    }

    /// Returns the present counts.
    ///
    /// # Panics
    /// If the image does not count.
    pub fn traffic(&self) -> Traffic {
        self.tally.as_ref().expect("an image of which traffic is asked counts").traffic()
    }

    fn stripe(&self) -> Option<&Stripe> {
        self.tally.as_ref().map(|tally| tally.stripe(P::thread() as usize))
    }

    fn count(&self, add: impl FnOnce(&Stripe)) {
        if let Some(stripe) = self.stripe() {
            add(stripe);
        }
    }

    /// Sets the guarantees of the image, so that an engine takes the path of such a medium.
    pub fn with_guarantees(mut self, guarantees: Guarantees) -> Self {
        self.guarantees = guarantees;
        self
    }

    /// Returns which calls are refused: at first none.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns a copy of all words.
    pub fn words(&self) -> Vec<u64> {
        let count = (self.bytes() / WORD) as usize;
        self.words[..count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn window(&self, at: Addr, count: u64) -> Result<&[AtomicU64]> {
        let end = at.word().checked_add(count);
        match end {
            Some(end) if end <= self.bytes() / WORD => {
                Ok(&self.words[at.word() as usize..end as usize])
            }
            _ => Err(out_of_bounds(at, count)),
        }
    }
}

/// A window of words of an [`Image`].
#[derive(Clone, Copy, Debug)]
pub struct ImageBlock<'a, const N: usize> {
    words: &'a [AtomicU64],
    start: Addr,
    stripe: Option<&'a Stripe>,
}

impl<const N: usize> ImageBlock<'_, N> {
    fn count(&self, add: impl FnOnce(&Stripe)) {
        if let Some(stripe) = self.stripe {
            add(stripe);
        }
    }
}

impl<const N: usize> Block<N> for ImageBlock<'_, N> {
    fn start(&self) -> Addr {
        self.start
    }

    fn load(&self, index: usize) -> u64 {
        self.count(|stripe| stripe.words_loaded.add(1));
        self.words[index].load(Ordering::Acquire)
    }

    fn load_relaxed(&self, index: usize) -> u64 {
        self.count(|stripe| stripe.words_loaded.add(1));
        self.words[index].load(Ordering::Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.count(|stripe| stripe.words_stored.add(1));
        self.words[index].store(value, Ordering::Relaxed);
    }

    fn commit_word(&self, index: usize, value: u64, _site: Site) {
        self.count(Stripe::committed);
        self.words[index].store(value, Ordering::Release);
    }

    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        _site: Site,
    ) -> core::result::Result<u64, u64> {
        let result =
            self.words[index].compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        self.count(|stripe| stripe.exchanged(result.is_ok()));
        result
    }
}

impl<P: Primitives> Media for Image<P> {
    type Sync = P;
    type Context = ();
    type Block<'a, const N: usize>
        = ImageBlock<'a, N>
    where
        Self: 'a;

    fn context(&self) {}

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Result<ImageBlock<'a, N>> {
        Ok(ImageBlock { words: self.window(at, N as u64)?, start: at, stripe: self.stripe() })
    }

    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        let words = self.window(at, out.len() as u64)?;
        self.count(|stripe| stripe.words_loaded.add(out.len() as u64));
        for (target, source) in out.iter_mut().zip(words) {
            *target = source.load(Ordering::Acquire);
        }
        Ok(())
    }

    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        for (target, source) in self.window(at, words.len() as u64)?.iter().zip(words) {
            target.store(*source, Ordering::Relaxed);
        }
        self.count(|stripe| stripe.words_stored.add(words.len() as u64));
        Ok(())
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], _site: Site) -> Result<()> {
        self.write_words(cx, at, words)?;
        self.count(|stripe| stripe.words_past_caches.add(words.len() as u64));
        Ok(())
    }

    fn flush(&self, _cx: &(), span: Span, _site: Site) {
        self.count(|stripe| stripe.flushed(span));
    }

    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        self.count(|stripe| stripe.fences.add(1));
        Ok(())
    }

    fn sync(&self, _cx: &(), _site: Site) -> Result<()> {
        self.count(|stripe| stripe.syncs.add(1));
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        let full = Error::Full { needed: bytes.saturating_sub(self.bytes()) };
        let target = bytes.checked_next_multiple_of(WORD);
        let target = target.filter(|target| *target <= self.words.len() as u64 * WORD);
        let Some(target) = target.filter(|_| !self.refusals.growths.call()) else {
            return Err(full);
        };
        self.bytes.fetch_max(target, Ordering::AcqRel);
        Ok(())
    }
}

impl<P: Primitives> Hints for Image<P> {}

impl<P: Primitives> Holes for Image<P> {}

impl<P: Primitives> Simulation<()> for Image<P> {
    fn refuses(&self) -> bool {
        self.refusals.takes.call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counted, Region};

    const SITE: Site = Site::new("test");

    fn use_every_verb<M: Media>(region: &Region<M>) {
        let pm = region.access();
        let block = pm.block::<8>(Addr::new(64)).unwrap();
        block.store(0, 1);
        block.commit_word(1, 2, SITE);
        assert_eq!(block.load(0) + block.load_relaxed(1), 3);
        assert!(block.compare_exchange(0, 1, 5, SITE).is_ok());
        assert!(block.compare_exchange(0, 1, 6, SITE).is_err());
        pm.write_words(Addr::new(512), &[0; 5]).unwrap();
        pm.write_words_nt(Addr::new(1024), &[0; 7], SITE).unwrap();
        pm.read_words(Addr::new(512), &mut [0; 11]).unwrap();
        assert!(pm.write_words(Addr::new((1 << 16) - 8), &[0; 2]).is_err());
        pm.flush(Span::new(Addr::new(56), 2), SITE);
        pm.fence(SITE).unwrap();
        pm.sync(SITE).unwrap();
    }

    #[test]
    fn no_length_that_is_asked_for_overflows() {
        // Fails if a length near 2^64 were rounded up to a short one, or if a refused growth to
        // less than there is were a panic.
        let image = Image::<Std>::new(4096, 8192);
        let traced = crate::media::traced::Traced::<Std>::new(crate::crash::Model::Adr, 4096, 8192);
        for bytes in [8193, u64::MAX - 63, u64::MAX - 7, u64::MAX] {
            for refused in [image.grow(bytes), traced.grow(bytes)] {
                let needed = bytes - 4096;
                assert!(matches!(refused, Err(Error::Full { needed: n }) if n == needed));
            }
        }
        assert_eq!((image.bytes(), traced.bytes()), (4096, 4096));
        image.grow(64).unwrap();
        assert_eq!(image.bytes(), 4096, "it never shrinks");
        assert_eq!(Image::<Std>::new(100, 200).bytes(), 96, "whole words");
        image.refusals().growths.plan(0, 9);
        assert!(matches!(image.grow(64), Err(Error::Full { needed: 0 })));
    }

    #[test]
    fn an_image_counts_what_a_medium_around_it_counts() {
        // Fails if an image forgets a verb, counts it twice or under another name; `Counted` has
        // tests of its own.
        let image = Region::new(Image::<Std>::new(1 << 16, 1 << 16).counted());
        let around = Region::new(Counted::new(Image::<Std>::new(1 << 16, 1 << 16)));
        use_every_verb(&image);
        use_every_verb(&around);
        assert_eq!(image.media().traffic(), around.media().traffic());
    }
}
