//! A medium that refuses: to grow, or to make anything durable.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use everhash_pmem::media::{Hints, Holes, Simulation};
use everhash_pmem::{Addr, Guarantees, Image, Media, Site, Span};

/// An image that refuses to grow for a while, or whose fences fail from some time on.
pub(super) struct Refusing {
    pub image: Image,
    calls: AtomicU64,
    /// The first call that is refused, and the first one behind it that is not.
    pub refused: [AtomicU64; 2],
    /// Whether a sync finds no room either.
    pub refuses_sync: AtomicBool,
    /// How many more fences and syncs succeed.
    pub fences: AtomicU64,
}

impl Refusing {
    pub fn new(guarantees: Guarantees, refused: [u64; 2]) -> Refusing {
        Refusing {
            image: Image::new(0, 4 << 20).with_guarantees(guarantees),
            calls: AtomicU64::new(0),
            refused: refused.map(AtomicU64::new),
            refuses_sync: AtomicBool::new(false),
            fences: AtomicU64::new(u64::MAX),
        }
    }

    /// Fails once there were enough fences, and from then on.
    fn poisoned(&self) -> everhash_pmem::Result<()> {
        let left = |left: u64| left.checked_sub(1);
        let before = self.fences.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        before.map(drop).map_err(|_| everhash_pmem::Error::Poisoned)
    }
}

impl Hints for Refusing {}
impl Holes for Refusing {}
impl Simulation<<Image as Media>::Context> for Refusing {}

impl Media for Refusing {
    type Sync = <Image as Media>::Sync;
    type Context = <Image as Media>::Context;
    type Block<'a, const N: usize> = <Image as Media>::Block<'a, N>;

    fn context(&self) -> Self::Context {
        self.image.context();
    }

    fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        self.image.guarantees()
    }

    fn block<'a, const N: usize>(
        &'a self,
        cx: &'a Self::Context,
        at: Addr,
    ) -> everhash_pmem::Result<Self::Block<'a, N>> {
        self.image.block(cx, at)
    }

    fn read_words(
        &self,
        cx: &Self::Context,
        at: Addr,
        out: &mut [u64],
    ) -> everhash_pmem::Result<()> {
        self.image.read_words(cx, at, out)
    }

    fn write_words(
        &self,
        cx: &Self::Context,
        at: Addr,
        words: &[u64],
    ) -> everhash_pmem::Result<()> {
        self.image.write_words(cx, at, words)
    }

    fn write_words_nt(
        &self,
        cx: &Self::Context,
        at: Addr,
        words: &[u64],
        site: Site,
    ) -> everhash_pmem::Result<()> {
        self.image.write_words_nt(cx, at, words, site)
    }

    fn flush(&self, cx: &Self::Context, span: Span, site: Site) {
        self.image.flush(cx, span, site);
    }

    fn fence(&self, cx: &Self::Context, site: Site) -> everhash_pmem::Result<()> {
        self.poisoned()?;
        self.image.fence(cx, site)
    }

    fn sync(&self, cx: &Self::Context, site: Site) -> everhash_pmem::Result<()> {
        self.poisoned()?;
        match self.refuses_sync.load(Ordering::Relaxed) {
            true => Err(everhash_pmem::Error::Full { needed: 1 }),
            false => self.image.sync(cx, site),
        }
    }

    fn grow(&self, bytes: u64) -> everhash_pmem::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let [from, to] = [0, 1].map(|end| self.refused[end].load(Ordering::Relaxed));
        match (from..to).contains(&call) {
            true => Err(everhash_pmem::Error::Full { needed: bytes }),
            false => self.image.grow(bytes),
        }
    }
}
