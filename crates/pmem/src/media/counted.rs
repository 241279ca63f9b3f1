//! A medium that counts every verb.

use super::{Block, Guarantees, Hints, Holes, Media, Simulation, StreamClass, StreamSupport};
use crate::traffic::{Stripe, Tally, Traffic};
use crate::{Addr, Primitives, Result, Site, Span};

/// A wrapper that counts every verb of a medium.
///
/// The counts are exact under concurrency: each thread adds to its own stripe.
///
/// ```
/// use everhash_pmem::{Addr, Counted, Image, Region, Site, Span, Std};
///
/// let region = Region::new(Counted::new(Image::<Std>::new(4096, 4096)));
/// let before = region.media().traffic();
/// let pm = region.access();
/// pm.store(Addr::new(8), 1)?;
/// pm.persist(Span::new(Addr::new(8), 1), Site::new("example"))?;
/// let traffic = region.media().traffic() - before;
/// assert_eq!((traffic.words_stored, traffic.lines_flushed, traffic.fences), (1, 1, 1));
/// # Ok::<(), everhash_pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Counted<M> {
    inner: M,
    tally: Tally,
}

impl<M: Media> Counted<M> {
    /// Wraps a medium; all counts begin at zero.
    pub fn new(inner: M) -> Self {
        Counted { inner, tally: Tally::new() }
    }

    /// Returns the medium inside.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the present counts.
    pub fn traffic(&self) -> Traffic {
        self.tally.traffic()
    }

    #[inline(always)]
    fn stripe(&self, cx: &CountedContext<M::Context>) -> &Stripe {
        self.tally.stripe(cx.stripe)
    }
}

/// The context of a [`Counted`] medium: that of the medium inside, and the thread's stripe.
#[derive(Debug)]
pub struct CountedContext<C> {
    inner: C,
    stripe: usize,
}

/// A window of words that counts its uses.
#[derive(Debug)]
pub struct CountedBlock<'a, B> {
    inner: B,
    stripe: &'a Stripe,
}

impl<B: Copy> Clone for CountedBlock<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Copy> Copy for CountedBlock<'_, B> {}

impl<const N: usize, B: Block<N>> Block<N> for CountedBlock<'_, B> {
    fn start(&self) -> Addr {
        self.inner.start()
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.stripe.words_loaded.add(1);
        self.inner.load(index)
    }

    #[inline]
    fn load_relaxed(&self, index: usize) -> u64 {
        self.stripe.words_loaded.add(1);
        self.inner.load_relaxed(index)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.inner.prefetch(index);
    }

    #[inline]
    fn store(&self, index: usize, value: u64) {
        self.stripe.words_stored.add(1);
        self.inner.store(index, value);
    }

    #[inline]
    fn commit_word(&self, index: usize, value: u64, site: Site) {
        self.stripe.committed();
        self.inner.commit_word(index, value, site);
    }

    #[inline]
    fn compare_exchange(
        &self,
        index: usize,
        current: u64,
        new: u64,
        site: Site,
    ) -> core::result::Result<u64, u64> {
        let result = self.inner.compare_exchange(index, current, new, site);
        self.stripe.exchanged(result.is_ok());
        result
    }
}

impl<M: Media> Media for Counted<M> {
    type Sync = M::Sync;
    type Context = CountedContext<M::Context>;
    type Block<'a, const N: usize>
        = CountedBlock<'a, M::Block<'a, N>>
    where
        Self: 'a;

    #[inline]
    fn context(&self) -> Self::Context {
        CountedContext { inner: self.inner.context(), stripe: M::Sync::thread() as usize }
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    #[inline]
    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a Self::Context,
        at: Addr,
    ) -> Result<Self::Block<'a, N>> {
        Ok(CountedBlock { inner: self.inner.block(&cx.inner, at)?, stripe: self.stripe(cx) })
    }

    fn read_words(&self, cx: &Self::Context, at: Addr, out: &mut [u64]) -> Result<()> {
        self.inner.read_words(&cx.inner, at, out)?;
        self.stripe(cx).words_loaded.add(out.len() as u64);
        Ok(())
    }

    fn write_words(&self, cx: &Self::Context, at: Addr, words: &[u64]) -> Result<()> {
        self.inner.write_words(&cx.inner, at, words)?;
        self.stripe(cx).words_stored.add(words.len() as u64);
        Ok(())
    }

    fn write_words_nt(
        &self,
        cx: &Self::Context,
        at: Addr,
        words: &[u64],
        site: Site,
    ) -> Result<()> {
        self.inner.write_words_nt(&cx.inner, at, words, site)?;
        self.stripe(cx).words_stored.add(words.len() as u64);
        self.stripe(cx).words_past_caches.add(words.len() as u64);
        Ok(())
    }

    fn flush(&self, cx: &Self::Context, span: Span, site: Site) {
        self.stripe(cx).flushed(span);
        self.inner.flush(&cx.inner, span, site);
    }

    fn fence(&self, cx: &Self::Context, site: Site) -> Result<()> {
        self.stripe(cx).fences.add(1);
        self.inner.fence(&cx.inner, site)
    }

    fn sync(&self, cx: &Self::Context, site: Site) -> Result<()> {
        self.stripe(cx).syncs.add(1);
        self.inner.sync(&cx.inner, site)
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.inner.grow(bytes)
    }

    fn note_failed_syncs(&self, at: Addr, word: u64) {
        self.inner.note_failed_syncs(at, word);
    }

    fn rewrite(&self) -> Result<()> {
        self.inner.rewrite()
    }
}

impl<M: Media> Hints for Counted<M> {
    fn touch(&self, span: Span) {
        self.inner.touch(span);
    }

    #[inline]
    fn prefetch(&self, at: Addr) {
        self.inner.prefetch(at);
    }

    #[inline]
    fn prefetch_for_store(&self, at: Addr) {
        self.inner.prefetch_for_store(at);
    }

    #[inline]
    fn write_back(&self, span: Span) {
        let stripe = self.tally.stripe(M::Sync::thread() as usize);
        let lines = span.lines();
        stripe.lines_written_back.add(lines.end - lines.start);
        self.inner.write_back(span);
    }

    fn will_read(&self, span: Span) {
        self.inner.will_read(span);
    }

    #[inline]
    fn will_read_each(&self, spans: impl Iterator<Item = Span> + Clone) {
        self.inner.will_read_each(spans);
    }

    fn stream(&self, span: Span, class: StreamClass) -> StreamSupport {
        self.inner.stream(span, class)
    }
}

impl<M: Media> Holes for Counted<M> {
    fn release(&self, span: Span) {
        self.inner.release(span);
    }

    fn reserve(&self, span: Span) -> Result<()> {
        self.inner.reserve(span)
    }

    fn holes(&self) -> Option<Vec<Span>> {
        self.inner.holes()
    }

    fn costly_holes(&self) -> Vec<Span> {
        self.inner.costly_holes()
    }

    fn renew(&self, span: Span) {
        self.inner.renew(span);
    }
}

impl<M: Media> Simulation<CountedContext<M::Context>> for Counted<M> {
    #[inline]
    fn dram(&self, cx: &CountedContext<M::Context>, lines: u32) {
        self.inner.dram(&cx.inner, lines);
    }

    #[inline]
    fn locked(&self, cx: &CountedContext<M::Context>, lock: u64) {
        self.inner.locked(&cx.inner, lock);
    }

    #[inline]
    fn unlocking(&self, cx: &CountedContext<M::Context>, lock: u64) {
        self.inner.unlocking(&cx.inner, lock);
    }

    #[inline]
    fn freed(&self, span: Span) {
        self.inner.freed(span);
    }

    #[inline]
    fn refuses(&self) -> bool {
        self.inner.refuses()
    }

    #[inline]
    fn mark(&self, cx: &CountedContext<M::Context>, site: Site) {
        self.inner.mark(&cx.inner, site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, Region, Std};

    const SITE: Site = Site::new("test");

    fn region() -> Region<Counted<Image<Std>>> {
        Region::new(Counted::new(Image::new(1 << 16, 1 << 16)))
    }

    #[test]
    fn every_verb_is_counted_once() {
        // Fails if a verb is forgotten, counted twice, or counted under another name.
        let region = region();
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
        pm.flush(Span::new(Addr::new(56), 2), SITE);
        pm.flush(Span::new(Addr::new(64), 0), SITE);
        pm.fence(SITE).unwrap();
        pm.sync(SITE).unwrap();
        let traffic = region.media().traffic();
        let expected = Traffic {
            words_loaded: 2 + 2 + 11,
            words_stored: 1 + 1 + 1 + 5 + 7,
            commit_stores: 2,
            words_past_caches: 7,
            exchanges: 2,
            flush_calls: 2,
            lines_flushed: 2,
            lines_written_back: 0,
            fences: 1,
            syncs: 1,
        };
        assert_eq!(traffic, expected);
        assert_eq!(traffic.bytes_asked(), 30 * 8);
        assert_eq!(traffic.bytes_flushed(), 128);
    }

    #[test]
    fn what_a_medium_may_ignore_reaches_the_one_inside() {
        // Fails if a wrapper takes the place of a hint or an event by doing nothing: engines would
        // cost another device traffic when they are counted.
        let region = region();
        assert!(!region.media().refuses());
        region.media().inner().refusals().takes.plan(0, 1);
        assert!(region.media().refuses());
        assert_eq!(region.media().inner().refusals().takes.calls(), 1);
    }

    #[test]
    fn what_happens_to_a_span_reaches_the_log_inside() {
        // Fails if a crash judge of a counted medium does not learn of it.
        use crate::crash::{Model, What};
        use crate::media::traced::Traced;
        let region = Region::new(Counted::new(Traced::<Std>::new(Model::Adr, 4096, 8192)));
        let (media, line) = (region.media(), Span::new(Addr::new(64), 8));
        media.freed(line);
        media.release(line);
        media.renew(line);
        media.release(line);
        region.access().mark(SITE);
        media.grow(8192).unwrap();
        let log = media.inner().take_log();
        let found: Vec<_> = log.events().iter().map(|event| event.what).collect();
        let (word, count) = (8, 8);
        let released = What::Release { word, count };
        let grown = What::Grow { bytes: 8192 };
        assert_eq!(found, [What::Free { word, count }, released, released, What::Mark, grown]);
    }

    #[test]
    #[cfg(feature = "devices")]
    fn locks_are_held_in_virtual_time_when_they_are_counted() {
        // Fails if a thread in a schedule does not wait for another one, or never gets the lock.
        use crate::media::emulated::{Emulated, Timing};
        use crate::media::virtual_time::VirtualTime;
        let profile = crate::profile::Profile::named("optane-100").unwrap();
        let device = profile.memory().unwrap();
        let media = Counted::new(Emulated::<Std>::new(device, Timing::Virtual, 4096, 4096));
        let region = Region::new(media);
        let inner = region.media().inner();
        inner.begin(2, 2);
        let clocks = [0, 1].map(|thread| {
            inner.resume(thread, 0);
            let pm = region.access();
            pm.locked(7);
            pm.dram(10);
            pm.unlocking(7);
            inner.now_ps(thread)
        });
        assert_eq!(clocks, [1_010_000, 2_020_000]);
    }

    #[test]
    #[cfg(feature = "devices")]
    fn lines_that_leave_durable_caches_do_so_when_they_are_counted() {
        // Fails if the request ends in the wrapper: the device would write the lines at another
        // time, one by one, or never.
        use crate::media::emulated::{Emulated, Timing};
        let profile = crate::profile::Profile::named("optane-100").unwrap();
        let device = profile.memory().unwrap().clone();
        let device =
            crate::profile::MemoryDevice { survives: crate::profile::Survives::Eadr, ..device };
        let media = Counted::new(Emulated::<Std>::new(&device, Timing::Counting, 4096, 4096));
        let region = Region::new(media);
        let pm = region.access();
        pm.write_words(Addr::new(256), &[1; 32]).unwrap();
        let written = || region.media().inner().counters().host_writes;
        let before = written();
        pm.write_back(Span::new(Addr::new(256), 32));
        assert_eq!(written() - before, 4);
        assert_eq!(region.media().traffic().lines_written_back, 4);
    }

    #[test]
    fn a_refused_access_is_not_counted() {
        // Fails if bytes that never moved are charged.
        let region = region();
        let pm = region.access();
        assert!(pm.load(Addr::new(1 << 16)).is_err());
        assert!(pm.write_words(Addr::new((1 << 16) - 8), &[0; 2]).is_err());
        assert_eq!(region.media().traffic(), Traffic::default());
    }

    #[test]
    fn no_count_is_lost_when_threads_share_a_stripe() {
        // Fails if a stripe is added to without an atomic addition: 70 threads share 64 stripes.
        let region = region();
        std::thread::scope(|scope| {
            for _ in 0..70 {
                scope.spawn(|| {
                    let pm = region.access();
                    (0..1000).for_each(|_| pm.store(Addr::new(8), 1).unwrap());
                });
            }
        });
        assert_eq!(region.media().traffic().words_stored, 70_000);
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_came_between() {
        // Fails if a field is left out of the subtraction.
        let region = region();
        let pm = region.access();
        pm.persist(Span::new(Addr::new(8), 1), SITE).unwrap();
        let before = region.media().traffic();
        pm.commit_word(Addr::new(8), 1, SITE).unwrap();
        let difference = region.media().traffic() - before;
        let expected = Traffic { words_stored: 1, commit_stores: 1, ..Traffic::default() };
        assert_eq!(difference, expected);
    }
}
