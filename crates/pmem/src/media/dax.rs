//! A file on persistent memory, mapped directly: a flushed and fenced line is durable.

use std::path::Path;
use std::sync::Arc;

use super::file::FileOptions;
use super::file::backing::{Backing, Plan};
use super::{Domain, Guarantees, Hints, Holes, Media, Simulation};
use crate::sys::flush::{Flusher, PASSES_CACHES, store_fence};
use crate::sys::window::Window;
use crate::{Addr, Error, Result, Site, Span, Std, WriteBack};

/// The internal granularity of the one widely sold persistent memory.
///
/// Unit: bytes. Source: Yang and others, FAST 2020, on Intel Optane DIMMs (XPLine).
const ACCESS_UNIT: u64 = 256;

/// Which stores survive power loss, as the kernel reports it for a region of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersistenceDomain {
    /// The platform writes caches back: every visible store survives (eADR).
    CpuCache,
    /// A store that reached the memory controller survives (ADR).
    MemoryController,
    /// The kernel does not report it. Treated as [`PersistenceDomain::MemoryController`].
    Unknown,
}

impl PersistenceDomain {
    /// Reads the text of the file `persistence_domain` in sysfs.
    ///
    /// Anything but the exact word `cpu_cache` means that caches are lost: eADR is never assumed.
    ///
    /// ```
    /// use everhash_pmem::media::dax::PersistenceDomain;
    /// assert_eq!(PersistenceDomain::parse("cpu_cache\n"), PersistenceDomain::CpuCache);
    /// ```
    pub fn parse(text: &str) -> PersistenceDomain {
        match text.trim_end() {
            "cpu_cache" => PersistenceDomain::CpuCache,
            "memory_controller" => PersistenceDomain::MemoryController,
            _ => PersistenceDomain::Unknown,
        }
    }

    /// Looks the block device `major:minor` up under `sysfs`, which is `/sys` on a running system.
    ///
    /// The file lies at the region, some levels above the block device or its partition.
    fn of_device(sysfs: &Path, major: u32, minor: u32) -> PersistenceDomain {
        let link = sysfs.join(format!("dev/block/{major}:{minor}"));
        let Ok(device) = link.canonicalize() else { return PersistenceDomain::Unknown };
        device
            .ancestors()
            .find_map(|level| std::fs::read_to_string(level.join("persistence_domain")).ok())
            .map_or(PersistenceDomain::Unknown, |text| PersistenceDomain::parse(&text))
    }
}

/// A file on a DAX file system as a medium.
///
/// Flush is `clwb` (or `clflushopt`, or `dc cvap`), fence is `sfence` (`dsb`), and neither makes a
/// system call. With durable caches a flush does nothing. Allocation, locking,
/// publishing and their exceptions are those of [`FileMedium`](crate::FileMedium); the option
/// `durability` has no effect.
#[derive(Debug)]
pub struct DaxMedium {
    backing: Backing,
    /// What makes a line durable: nothing with durable caches.
    flusher: Flusher,
    /// What writes a line back.
    writer: Flusher,
}

impl DaxMedium {
    /// Creates a file of `bytes` zero bytes, see [`FileMedium::create`](crate::FileMedium::create).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the file system is not DAX, or if the processor has no
    /// write-back that can be relied on; else as for an ordinary file.
    pub fn create(path: impl AsRef<Path>, bytes: u64, options: &FileOptions) -> Result<Self> {
        let flusher = best_flusher()?;
        Self::start(Backing::create(path.as_ref(), bytes, plan(options))?, flusher)
    }

    /// Opens the file `path`, see [`FileMedium::open`](crate::FileMedium::open).
    ///
    /// # Errors
    /// As [`DaxMedium::create`].
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let flusher = best_flusher()?;
        Self::start(Backing::open(path.as_ref(), plan(options))?, flusher)
    }

    /// Syncs a created file and gives it its name, see
    /// [`FileMedium::publish`](crate::FileMedium::publish).
    ///
    /// # Errors
    /// As there.
    pub fn publish(&self) -> Result<()> {
        self.backing.publish()
    }

    fn start(backing: Backing, writer: Flusher) -> Result<Self> {
        let (major, minor) = backing.device()?;
        let domain = PersistenceDomain::of_device(Path::new("/sys"), major, minor);
        let none = Flusher::new(WriteBack::None).filter(|_| domain == PersistenceDomain::CpuCache);
        Ok(DaxMedium { backing, flusher: none.unwrap_or(writer), writer })
    }
}

fn plan(options: &FileOptions) -> Plan {
    Plan {
        capacity_bytes: options.capacity_bytes,
        writable: true,
        sync_growth: true,
        synchronous: true,
        trust_file_system: options.trust_file_system,
        mode: options.mode,
        system: Arc::clone(&options.system),
    }
}

fn best_flusher() -> Result<Flusher> {
    WriteBack::best().and_then(Flusher::new).ok_or_else(|| Error::Unsupported {
        what: "this processor has neither clwb, clflushopt nor dc cvap; open the file as an \
               ordinary file"
            .into(),
    })
}

impl Media for DaxMedium {
    type Sync = Std;
    type Context = ();
    type Block<'a, const N: usize>
        = Window<'a, N>
    where
        Self: 'a;

    #[inline(always)]
    fn context(&self) {}

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.backing.mapping.bytes()
    }

    fn guarantees(&self) -> Guarantees {
        let domain = match self.flusher.kind() {
            WriteBack::None => Domain::Eadr,
            _ => Domain::Adr,
        };
        // Arm may write the words of a line in any order; x86 does not.
        let same_line_order = cfg!(target_arch = "x86_64");
        Guarantees { domain, same_line_order, access_unit_bytes: ACCESS_UNIT }
    }

    #[inline(always)]
    fn block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Result<Window<'a, N>> {
        self.backing.mapping.window(at)
    }

    #[inline(always)]
    fn try_block<'a, const N: usize>(&'a self, _cx: &'a (), at: Addr) -> Option<Window<'a, N>> {
        self.backing.mapping.try_window(at)
    }

    #[inline(always)]
    fn try_aligned_block<'a, const N: usize>(
        &'a self,
        _cx: &'a (),
        byte: u64,
    ) -> Option<Window<'a, N>> {
        self.backing.mapping.try_aligned_window(byte)
    }

    #[inline]
    fn read_words(&self, _cx: &(), at: Addr, out: &mut [u64]) -> Result<()> {
        self.backing.mapping.read_words(at, out)
    }

    #[inline]
    fn write_words(&self, _cx: &(), at: Addr, words: &[u64]) -> Result<()> {
        self.backing.mapping.write_words(at, words)
    }

    fn write_words_nt(&self, cx: &(), at: Addr, words: &[u64], site: Site) -> Result<()> {
        self.backing.mapping.write_words_past_caches(at, words)?;
        if !PASSES_CACHES {
            self.flush(cx, Span::new(at, words.len() as u64), site);
        }
        Ok(())
    }

    #[inline(always)]
    fn flush(&self, _cx: &(), span: Span, _site: Site) {
        if self.flusher.kind() != WriteBack::None {
            self.backing.mapping.write_back(span, self.flusher);
        }
    }

    /// Waits with durable caches too: a store past the caches, or in the store buffer, is in no
    /// cache.
    #[inline(always)]
    fn fence(&self, _cx: &(), _site: Site) -> Result<()> {
        store_fence();
        self.backing.group.check()
    }

    /// The kernel writes back every line of every dirty page.
    fn sync(&self, _cx: &(), _site: Site) -> Result<()> {
        store_fence();
        self.backing.sync()
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.backing.grow(bytes)
    }
}

impl Hints for DaxMedium {
    fn touch(&self, span: Span) {
        self.backing.mapping.populate(span);
    }

    #[inline(always)]
    fn write_back(&self, span: Span) {
        self.backing.mapping.write_back(span, self.writer);
    }

    #[inline(always)]
    fn prefetch(&self, at: Addr) {
        self.backing.mapping.prefetch(at);
    }

    #[inline(always)]
    fn prefetch_for_store(&self, at: Addr) {
        self.backing.mapping.prefetch_for_store(at);
    }
}

impl Holes for DaxMedium {
    fn release(&self, span: Span) {
        self.backing.release(span);
    }

    fn reserve(&self, span: Span) -> Result<()> {
        self.backing.reserve(span)
    }

    fn holes(&self) -> Option<Vec<Span>> {
        self.backing.holes()
    }
}

impl Simulation<()> for DaxMedium {}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::media::file::system::{Call, Os, System};
    use crate::{Region, Space};

    fn place(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("everhash-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_the_exact_word_means_that_caches_are_safe() {
        // Fails if eADR is assumed from anything but the kernel's own word.
        use PersistenceDomain::*;
        for (text, domain) in [
            ("cpu_cache\n", CpuCache),
            ("cpu_cache", CpuCache),
            ("memory_controller\n", MemoryController),
            ("unknown\n", Unknown),
            ("", Unknown),
            ("\n", Unknown),
            ("CPU_CACHE", Unknown),
            ("cpu_cache_not", Unknown),
            ("no cpu_cache", Unknown),
        ] {
            assert_eq!(PersistenceDomain::parse(text), domain, "{text:?}");
        }
    }

    /// A disk that is full, once it is switched on, and does not say where holes are.
    #[derive(Debug, Default)]
    struct FullDisk(AtomicBool);

    impl System for FullDisk {
        fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
            match call {
                Call::Extents => Err(io::ErrorKind::Unsupported.into()),
                Call::Allocate if self.0.load(Ordering::Relaxed) => {
                    Err(rustix::io::Errno::NOSPC.into())
                }
                _ => run(),
            }
        }
    }

    /// A disk that can write nothing, once it is switched on.
    #[derive(Debug, Default)]
    struct BadDisk(AtomicBool);

    impl System for BadDisk {
        fn call(&self, call: Call, run: &mut dyn FnMut() -> io::Result<u64>) -> io::Result<u64> {
            match call == Call::Sync && self.0.load(Ordering::Relaxed) {
                true => Err(rustix::io::Errno::IO.into()),
                false => run(),
            }
        }
    }

    /// Makes a file of 64 KiB on any file system, which is not mapped directly.
    fn medium(directory: &Path, system: Arc<dyn System>) -> DaxMedium {
        let plan = Plan { synchronous: false, system, ..plan(&FileOptions::default()) };
        let backing = Backing::create(&directory.join("pairs.ehdb"), 1 << 16, plan).unwrap();
        let none = Flusher::new(WriteBack::None).unwrap();
        DaxMedium { backing, flusher: none, writer: none }
    }

    #[test]
    fn what_is_stored_past_the_caches_is_there() {
        // Fails if such a store is lost, or goes elsewhere.
        let directory = place("dax-stores");
        let region = Region::new(medium(&directory, Arc::new(Os)));
        let pm = region.access();
        pm.write_words_nt(Addr::new(72), &[1, 2, 3], Site::new("test")).unwrap();
        let mut words = [0; 5];
        pm.read_words(Addr::new(64), &mut words).unwrap();
        assert_eq!(words, [0, 1, 2, 3, 0]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn p10_what_found_no_storage_is_not_whole() {
        // Fails if the medium says that it has no holes: nothing is reserved then before it is
        // used, and a store to a hole on a full disk ends the process.
        let directory = place("dax-holes");
        let disk = Arc::new(FullDisk::default());
        let region = Region::new(medium(&directory, Arc::clone(&disk) as Arc<dyn System>));
        assert_eq!(region.media().holes(), Some(Vec::new()));
        disk.0.store(true, Ordering::Relaxed);
        let whole = Span::of_bytes(Addr::NULL, 1 << 16);
        region.media().release(whole);
        assert!(matches!(region.media().reserve(whole), Err(Error::Full { .. })));
        assert_eq!(region.media().holes(), None);
        let space = Space::new(region, Addr::NULL);
        assert!(matches!(space.claim(Span::new(Addr::NULL, 8)), Err(Error::Full { .. })));
        assert!(matches!(space.take(64, 64), Err(Error::Full { .. })));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn p09_a_fence_after_a_failed_sync_is_an_error() {
        // Fails if what the kernel could not write back counts as durable.
        let directory = place("dax-failed");
        let disk = Arc::new(BadDisk::default());
        let region = Region::new(medium(&directory, Arc::clone(&disk) as Arc<dyn System>));
        let (pm, site) = (region.access(), Site::new("test"));
        pm.persist(Span::new(Addr::NULL, 1), site).unwrap();
        disk.0.store(true, Ordering::Relaxed);
        assert!(matches!(pm.sync(site), Err(Error::System { .. })));
        assert!(matches!(pm.fence(site), Err(Error::Poisoned)));
        assert!(matches!(pm.sync(site), Err(Error::Poisoned)));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn caches_are_durable_only_where_the_kernel_says_so() {
        // Fails if flushes are left out on a device of which the kernel says nothing, or if engines
        // are told of another domain than the one that the medium relies on.
        let directory = place("dax-domain");
        let durable = medium(&directory, Arc::new(Os));
        assert_eq!(durable.guarantees().domain, Domain::Eadr);
        let (major, minor) = durable.backing.device().unwrap();
        let said = PersistenceDomain::of_device(Path::new("/sys"), major, minor);
        let expected = match said {
            PersistenceDomain::CpuCache => Domain::Eadr,
            _ => Domain::Adr,
        };
        if let Ok(writer) = best_flusher() {
            let found = DaxMedium::start(durable.backing, writer).unwrap();
            assert_eq!(found.guarantees().domain, expected);
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_new_length_is_durable_before_it_is_used() {
        // Fails if power loss could cut off words that were flushed and fenced.
        let directory = place("dax-growth");
        let disk = Arc::new(BadDisk::default());
        let medium = medium(&directory, Arc::clone(&disk) as Arc<dyn System>);
        disk.0.store(true, Ordering::Relaxed);
        assert!(matches!(medium.grow(1 << 17), Err(Error::System { .. })));
        assert_eq!(medium.bytes(), 1 << 16);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_hole_ahead_of_use_stays_one() {
        // Fails if room that is prepared takes storage that was given back to the device: on a
        // full disk there is none.
        let directory = place("dax-ahead");
        let region = Region::new(medium(&directory, Arc::new(Os)));
        let space = Space::fresh(region.clone(), Addr::NULL);
        let taken = space.take(1 << 15, 64).unwrap().span;
        assert_eq!(space.release(4096, u64::MAX).unwrap(), 1 << 15);
        let holes = region.media().holes();
        assert!(holes.as_ref().is_none_or(|holes| !holes.is_empty()), "{holes:?}");
        space.reserve_ahead(1 << 14).unwrap();
        assert_eq!(region.media().holes(), holes);
        assert_eq!(space.usage().unwrap().hole_bytes, 1 << 15);
        space.give(taken);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_domain_is_found_above_a_device_or_its_partition() {
        // Fails if the search stops below the region, or takes the word of a stranger.
        let sysfs = place("sysfs");
        let region = sysfs.join("devices/ndbus0/region0");
        let disk = region.join("namespace0.0/block/pmem0");
        std::fs::create_dir_all(disk.join("pmem0p1")).unwrap();
        std::fs::create_dir_all(sysfs.join("devices/virtio0/block/vda")).unwrap();
        std::fs::create_dir_all(sysfs.join("dev/block")).unwrap();
        std::fs::write(region.join("persistence_domain"), "cpu_cache\n").unwrap();
        for (device, number) in [
            ("ndbus0/region0/namespace0.0/block/pmem0", "259:0"),
            ("ndbus0/region0/namespace0.0/block/pmem0/pmem0p1", "259:1"),
            ("virtio0/block/vda", "254:0"),
        ] {
            let target = format!("../../devices/{device}");
            std::os::unix::fs::symlink(target, sysfs.join("dev/block").join(number)).unwrap();
        }
        let of = |major, minor| PersistenceDomain::of_device(&sysfs, major, minor);
        assert_eq!(of(259, 0), PersistenceDomain::CpuCache);
        assert_eq!(of(259, 1), PersistenceDomain::CpuCache);
        assert_eq!(of(254, 0), PersistenceDomain::Unknown);
        assert_eq!(of(7, 7), PersistenceDomain::Unknown);
        std::fs::remove_dir_all(sysfs).unwrap();
    }

    #[test]
    fn an_ordinary_file_is_refused_with_advice_and_left_alone() {
        // Fails if a file in the page cache is taken for persistent memory. Where the directory of
        // temporary files is on DAX, says so and checks nothing.
        let directory = place("dax");
        let path = directory.join("pairs.ehdb");
        let options = FileOptions { capacity_bytes: 1 << 20, ..FileOptions::default() };
        match DaxMedium::create(&path, 4096, &options) {
            Ok(_) => println!("skipped: {} is on DAX", directory.display()),
            Err(Error::Unsupported { what }) => {
                assert!(what.contains("dax") || what.contains("ordinary file"), "{what}");
                assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
                std::fs::write(&path, [7; 4096]).unwrap();
                let opened = DaxMedium::open(&path, &options);
                assert!(matches!(opened, Err(Error::Unsupported { .. })));
                assert_eq!(std::fs::read(&path).unwrap(), [7; 4096]);
            }
            Err(error) => panic!("{error}"),
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
