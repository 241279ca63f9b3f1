//! How fast a table is opened (Fig. 14), and what an immediate write costs beside its fence: for a
//! quiet machine, and so not among the default tests.

use core::cell::Cell;
use std::time::{Duration, Instant};

use everhash_index::{Executor, Inline, Opening, Table, WordTable, create, open};
use everhash_pmem::media::file::{FileMedium, FileOptions};
use everhash_pmem::{
    Addr, Boot, Dram, DramOptions, Hints, LINE, Media, Region, Site, Span, WriteBack,
};

use crate::walsh::{Walsh, WalshSettings, WalshTable};

/// Threads of the recovery that is held against one.
const THREADS: usize = 2;

/// Starts a thread for each job.
struct Threads;

impl Executor for Threads {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for number in 0..count {
                scope.spawn(move || job(number));
            }
        });
    }

    fn width(&self) -> usize {
        THREADS
    }
}

/// Returns how long the calling thread was on a processor, and how long all of it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration, Duration) {
    // The first number of this file is nanoseconds on a processor.
    let on_processor = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let (before, begun) = (on_processor(), Instant::now());
    let answer = work();
    (answer, on_processor() - before, begun.elapsed())
}

/// Opens a table of `items` pairs in every way, and prints millions of pairs a second. `attach`
/// returns the medium, as a new process finds it.
fn measure<M: Media>(attach: impl Fn() -> Region<M>, items: u64, name: &str) {
    let opening = Opening::default();
    let settings = WalshSettings::default();
    let table = create::<Walsh, _>(attach(), &opening, &settings, &Inline).unwrap();
    (0..items).for_each(|key| assert!(table.insert_word(key, !key).unwrap()));
    table.sync().unwrap();
    drop(table);
    let mut boot = 1;
    let mut report = |what: &str, executor: &dyn Executor| -> WalshTable<M> {
        boot += 1;
        let next = Boot([1, boot]);
        let region = attach();
        let (table, on_processor, elapsed) =
            timed(|| open::<Walsh, _>(region, next, executor).unwrap());
        let rate = |time: Duration| items as f64 / time.as_secs_f64() / 1e6;
        let (processor, clock) = (rate(on_processor), rate(elapsed));
        println!("{name}, {items}, {what}: {processor:.1} M/s of a processor, {clock:.1} M/s");
        assert_eq!(table.len().unwrap(), items);
        table
    };
    for round in 0..2 {
        drop(report("crash, one thread", &Inline));
        drop(report("crash, two threads", &Threads));
        let (closed, on_processor, elapsed) =
            timed(|| Box::new(report("crash, one thread", &Inline)).close());
        closed.unwrap();
        println!(
            "{name}, round {round}: that and a close: {on_processor:?} of a processor, {elapsed:?}"
        );
        for _ in 0..2 {
            Box::new(report("closed, one thread", &Inline)).close().unwrap();
        }
        Box::new(report("closed, two threads", &Threads)).close().unwrap();
        let table = report("closed, one thread", &Inline);
        assert_eq!(table.get_word(items / 2).unwrap(), Some(!(items / 2)));
    }
}

fn on_memory_and_disk(items: u64) {
    let memory = Region::new(Dram::new(items * 64 + (256 << 20)).unwrap());
    measure(|| memory.clone(), items, "memory");
    drop(memory);
    let path = std::env::temp_dir().join("walsh-times.ehdb");
    let options = FileOptions::default();
    let file = FileMedium::create(&path, 0, &options).unwrap();
    file.publish().unwrap();
    let made = Cell::new(Some(file));
    let attach = || made.take().unwrap_or_else(|| FileMedium::open(&path, &options).unwrap());
    measure(|| Region::new(attach()), items, "file");
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[ignore = "measures time: the command stands in CONTRIBUTING.md"]
fn ten_million_pairs_are_opened() {
    // Fails if a pair is lost; prints what an open takes.
    on_memory_and_disk(10_000_000);
}

#[test]
#[ignore = "measures time: the command stands in CONTRIBUTING.md"]
fn a_hundred_million_pairs_are_opened() {
    // Fails if a pair is lost; prints what an open takes.
    on_memory_and_disk(100_000_000);
}

/// Memory with real write-backs whose pages are all present.
fn written_back(bytes: u64) -> Region<Dram> {
    let made = [WriteBack::Clwb, WriteBack::Clflushopt, WriteBack::Clflush];
    let mut made = made.into_iter().filter_map(|write_back| {
        Dram::with_options(bytes, DramOptions { write_back, ..DramOptions::default() }).ok()
    });
    let dram = made.next().expect("every processor of this kind can flush a line");
    dram.touch(Span::of_bytes(Addr::NULL, bytes));
    Region::new(dram)
}

#[test]
#[ignore = "measures time: the command stands in CONTRIBUTING.md"]
fn an_immediate_insert_takes_little_more_than_its_fence() {
    // Fails if an insert waits twice, or does so much beside that it is slower than the spec's part
    // of a random line that is stored, flushed and fenced.
    const ITEMS: u64 = 4_000_000;
    const BYTES: u64 = ITEMS * 96;
    let settings = WalshSettings { durability: 1, ..WalshSettings::sized_for(ITEMS) };
    let ratio = |_| {
        let region = written_back(BYTES);
        let opening = Opening::default();
        let table = create::<Walsh, _>(region, &opening, &settings, &Inline).unwrap();
        let inserts = timed(|| {
            (0..ITEMS).for_each(|key| assert!(table.insert_word(key, !key).unwrap()));
        });
        drop(table);
        let region = written_back(BYTES);
        let pm = region.access();
        let stores = timed(|| {
            for number in 0..ITEMS {
                let line = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let at = Addr::new(line % (BYTES / LINE) * LINE);
                pm.write_words(at, &[number; 8]).unwrap();
                pm.persist(Span::new(at, 8), Site::new("ceiling")).unwrap();
            }
        });
        let ratio = stores.1.as_secs_f64() / inserts.1.as_secs_f64();
        println!("{:?} for inserts, {:?} for lines: {ratio:.2}", inserts.1, stores.1);
        ratio
    };
    let best = (0..5).map(ratio).fold(0.0, f64::max);
    assert!(best >= 0.42, "{best}");
}
