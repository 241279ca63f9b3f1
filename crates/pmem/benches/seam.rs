//! What the seam costs: bounds-checked windows and sited verbs against raw pointers.
//!
//! `cargo bench -p everhash-pmem --bench seam`; about half a minute. `-- --strict` fails if a
//! bucket probe takes more than 10% longer than through raw pointers.

mod support;

use everhash_pmem::raw::{BUCKET_WORDS, Ceilings, RawTable, RawTarget, Stream};
use everhash_pmem::raw::{ceilings, key_of, matching_slot};
use everhash_pmem::{Addr, Block, Counted, Dram, DramOptions, Hints, LINE, Media, Region, Result};
use everhash_pmem::{Site, Span, WriteBack};
use support::compare;

const SITE: Site = Site::new("bench");

/// A probe may take this many times as long as through raw pointers. Source: the project's goal.
const LIMIT: f64 = 1.10;

fn main() -> Result<()> {
    let strict = std::env::args().any(|argument| argument == "--strict");
    let mut worst: f64 = 0.0;
    for (name, buckets) in [
        ("probe, table of 16 KiB (level 1)", 1 << 8),
        ("probe, table of 1 MiB (level 2)", 1 << 14),
        ("probe, table of 1 GiB (memory)", 1 << 24),
    ] {
        worst = worst.max(probe(name, buckets, 400_000)?);
    }
    for kind in [WriteBack::Clwb, WriteBack::Clflushopt].into_iter().filter(|k| k.is_supported()) {
        persist(kind)?;
    }
    counting()?;
    limits()?;
    if strict && worst > LIMIT {
        println!("a probe takes {worst:.3} times as long as through raw pointers");
        std::process::exit(1);
    }
    Ok(())
}

fn dram(bytes: u64, write_back: WriteBack) -> Result<Dram> {
    let options = DramOptions {
        capacity_bytes: 4 << 30,
        write_back,
        huge_pages: true,
        ..DramOptions::default()
    };
    let dram = Dram::with_options(bytes, options)?;
    dram.touch(Span::of_bytes(Addr::NULL, bytes));
    Ok(dram)
}

/// Fills the table as `RawTable::new` does.
fn fill<M: Media>(region: &Region<M>, buckets: u64) -> Result<()> {
    let pm = region.access();
    for bucket in 0..buckets {
        let block = pm.block::<BUCKET_WORDS>(Addr::new(bucket * LINE))?;
        for slot in 0..4 {
            block.store(2 * slot, key_of(bucket, slot as u64));
            block.store(2 * slot + 1, bucket);
        }
    }
    Ok(())
}

/// Looks `count` random keys up, one access per lookup, as an engine does.
#[inline(never)]
fn lookups<M: Media>(region: &Region<M>, buckets: u64, count: u64, seed: u64) -> u64 {
    let mut stream = Stream::new(seed);
    let mut sum = 0u64;
    for _ in 0..count {
        let draw = stream.draw();
        let bucket = draw & (buckets - 1);
        sum = sum.wrapping_add(lookup(region, bucket, key_of(bucket, draw >> 62)).unwrap_or(0));
    }
    sum
}

#[inline(always)]
fn lookup<M: Media>(region: &Region<M>, bucket: u64, key: u64) -> Result<u64> {
    let pm = region.access();
    let block = pm.block::<BUCKET_WORDS>(Addr::new(bucket * LINE))?;
    Ok(matching_slot(key, |index| block.load(index)).map_or(0, |slot| block.load(2 * slot + 1)))
}

fn probe(name: &str, buckets: u64, count: u64) -> Result<f64> {
    let region = Region::new(dram(buckets * LINE, WriteBack::None)?);
    fill(&region, buckets)?;
    let raw = RawTable::new(buckets, true)?;
    Ok(compare(
        name,
        count,
        |seed| lookups(&region, buckets, count, seed),
        |seed| raw.probe(count, seed),
    ))
}

/// Stores, flushes and fences one word of a random line, `count` times.
#[inline(never)]
fn persists(region: &Region<Dram>, lines: u64, count: u64, seed: u64) -> Result<u64> {
    let mut stream = Stream::new(seed);
    for _ in 0..count {
        let pm = region.access();
        let draw = stream.draw();
        let at = Addr::new((draw & (lines - 1)) * LINE);
        pm.store(at, draw)?;
        pm.flush(Span::new(at, 1), SITE);
        pm.fence(SITE)?;
    }
    Ok(0)
}

fn persist(kind: WriteBack) -> Result<()> {
    let lines = 1 << 22;
    let count = 50_000;
    let region = Region::new(dram(lines * LINE, kind)?);
    let raw = RawTarget::new(lines, kind, true)?;
    compare(
        &format!("store, {kind:?}, fence; 256 MiB"),
        count,
        |seed| persists(&region, lines, count, seed).expect("the address is below the length"),
        |seed| {
            raw.persist(count, 1, seed);
            0
        },
    );
    Ok(())
}

/// Shows what counting costs, against the same medium without it.
fn counting() -> Result<()> {
    let (buckets, count) = (1 << 14, 200_000);
    let counted = Region::new(Counted::new(dram(buckets * LINE, WriteBack::None)?));
    let plain = Region::new(dram(buckets * LINE, WriteBack::None)?);
    fill(&counted, buckets)?;
    fill(&plain, buckets)?;
    compare(
        "counted probe against a plain one, 1 MiB",
        count,
        |seed| lookups(&counted, buckets, count, seed),
        |seed| lookups(&plain, buckets, count, seed),
    );
    Ok(())
}

/// Prints the ceilings of the machine, for 1, 2, ... threads.
fn limits() -> Result<()> {
    let kind = WriteBack::best().unwrap_or(WriteBack::None);
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    println!("ceilings on 256 MiB with {kind:?}, million operations per second:");
    for threads in 1..=processors {
        let Ceilings { reads, persists, double_persists } =
            ceilings(256 << 20, threads, 1_000_000, kind)?;
        println!(
            "  {threads} threads: random 8-byte reads {:.1}, persists {:.2}, double persists {:.2}",
            reads / 1e6,
            persists / 1e6,
            double_persists / 1e6
        );
    }
    Ok(())
}
