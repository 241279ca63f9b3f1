//! What is compared on byte-addressable devices.

use everhash_pmem::media::emulated::{Counters, Timing};
use everhash_pmem::profile::{Clwb, Flushing, MemoryDevice, Model};
use everhash_pmem::{Addr, LINE, Result, Span};

use super::{Found, Topic, indexes};
use crate::figure::{Figure, Scale};
use crate::programs::buffers::{Storing, crowd, halves, stores};
use crate::programs::times::{
    Order, Verb, cached_write, flush_again, groups, random, sequential_loads,
    sequential_stores_past_caches,
};
use crate::programs::{SITE, region};
use crate::published;
use crate::table::Tolerance;

/// Runs everything that says something about the profile `name`.
pub(super) fn probe(name: &str, device: &MemoryDevice) -> Result<Found> {
    let mut found = (Vec::new(), Vec::new());
    let mut add = |(rows, figures): Found| {
        found.0.extend(rows);
        found.1.extend(figures);
    };
    if device.model == Model::Flat {
        add(flat(device)?);
        return Ok(found);
    }
    add(own_numbers(device)?);
    match name {
        "optane-100" | "walsh" => {
            add(write_buffer(device)?);
            add(amplification(device)?);
            add(crowded(device)?);
            add(walsh_table(device)?);
            add(indexes::log(device)?);
        }
        "optane-100-256gb" => {
            add(write_buffer(device)?);
            add(one_module(device)?);
        }
        "turbohash" => add(probing(device)?),
        "elimda" | "optane-200-eadr" => add(indexes::tables(device)?),
        _ => {}
    }
    if name == "optane-100" || name == "optane-200" {
        add(twice_flushed(device)?);
    }
    add(indexes::repetition(device)?);
    Ok(found)
}

/// The latencies and bandwidths that the profile states.
fn own_numbers(device: &MemoryDevice) -> Result<Found> {
    let latency = Topic { topic: "Latency", unit: "ns", source: "the profile's own number" };
    let close = Tolerance::Relative(0.03);
    let load = random(device, Verb::Read, 8, 1)?.mean_ns();
    let sequential = sequential_loads(device)?;
    let mut rows = vec![
        latency.row("random load", device.read_random_ns, load, close),
        latency.row("sequential load", device.read_sequential_ns, sequential, close),
    ];
    if device.guarantees().domain != everhash_pmem::Domain::Eadr {
        let write = cached_write(device)?;
        let past = sequential_stores_past_caches(device)?;
        rows.push(latency.row("store, flush, fence, cached", device.flush_ns, write, close));
        // A full unit goes to the media every so many lines, and may take longer than the stores.
        let unit_lines = (device.media_unit_bytes / LINE) as f64;
        let stated = device.stream_store_ns.max(device.media_write_ns / unit_lines);
        rows.push(latency.row("sequential store past the caches, fence", stated, past, close));
    }
    let bandwidth = Topic { topic: "Bandwidth", unit: "GB/s", ..latency };
    let unit = device.media_unit_bytes as f64;
    for (what, verb, service) in [
        ("random reads of a unit", Verb::Read, device.media_read_ns),
        ("random writes of a unit", Verb::WritePastCaches, device.media_write_ns),
    ] {
        // So many threads that the modules and not the latencies are the limit.
        let alone = random(device, verb, device.media_unit_bytes, 1)?.mean_ns();
        let stated = unit / service * device.dimms as f64;
        let threads = (10.0 * stated * alone / unit).ceil() as u64;
        let shown = random(device, verb, device.media_unit_bytes, threads)?;
        let shown = shown.operations_per_second() * unit * 1e-9;
        let what = format!("{what}, {threads} threads");
        rows.push(bandwidth.row(what, stated, shown, Tolerance::Relative(0.10)));
    }
    Ok((rows, Vec::new()))
}

/// The curve from which the write buffer was inferred.
fn write_buffer(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Write-combining buffer",
        unit: "ratio",
        source: "Yang et al., FAST 2020, inferred write buffer",
    };
    let (mut rows, mut curve, mut squares) = (Vec::new(), Vec::new(), 0.0);
    for (kib, published) in published::WRITE_BUFFER {
        let measured = halves(device, (*kib as u64) << 10)?;
        squares += (measured - published).powi(2);
        curve.push((*kib, measured));
        let what = format!("half units in turn, {kib} KiB");
        rows.push(topic.row(what, *published, measured, Tolerance::Absolute(0.20)));
    }
    let error = (squares / published::WRITE_BUFFER.len() as f64).sqrt();
    rows.push(topic.row("root mean square error", 0.0, error, Tolerance::Absolute(0.08)));
    let figure = Figure {
        name: "write-buffer",
        title: "Media bytes written per byte, half units in turn over a region".to_string(),
        x: "region, KiB",
        x_scale: Scale::Logarithmic,
        y: "media bytes per byte",
        series: Vec::new(),
    };
    Ok((rows, vec![figure.pair("", published::WRITE_BUFFER.to_vec(), curve)]))
}

/// Amplification by size and instruction.
fn amplification(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Write amplification",
        unit: "ratio",
        source: "Yang et al., FAST 2020, one module",
    };
    let walsh = Topic { source: "WALSH, Fig. 1 and section 2: up to 32", ..topic };
    let mut rows = Vec::new();
    let of_modules = Counters::device_write_amplification;
    for (bytes, published) in [(64, 4.08), (128, 2.04), (256, 1.02)] {
        for (word, storing) in
            [("flushed", Storing::Flushed), ("past the caches", Storing::PastCaches)]
        {
            let measured = of_modules(&stores(device, storing, bytes, false)?);
            let what = format!("random {bytes} B, {word}");
            rows.push(topic.row(what, published, measured, Tolerance::Relative(0.03)));
        }
    }
    let sequential = of_modules(&stores(device, Storing::Flushed, 64, true)?);
    let what = "sequential 64 B, flushed";
    rows.push(topic.row(what, 1.03, sequential, Tolerance::Relative(0.05)));
    let unflushed = of_modules(&stores(device, Storing::Unflushed, 64, true)?);
    let what = "sequential 64 B, never flushed";
    rows.push(topic.row(what, 3.7, unflushed, Tolerance::Between(2.0, 5.0)));
    let mut curve = Vec::new();
    for (bytes, published) in [(8, 32.0), (16, 16.0), (64, 4.0), (128, 2.06), (256, 1.02)] {
        let measured = stores(device, Storing::Flushed, bytes, false)?.write_amplification();
        curve.push((bytes as f64, published, measured));
        let what = format!("random {bytes} B of the program");
        rows.push(walsh.row(what, published, measured, Tolerance::Relative(0.03)));
    }
    let figure = Figure {
        name: "amplification",
        title: "Media bytes written per byte of the program, random flushed stores".to_string(),
        x: "store, bytes",
        x_scale: Scale::Logarithmic,
        y: "media bytes per byte",
        series: Vec::new(),
    };
    let published = curve.iter().map(|(x, published, _)| (*x, *published)).collect();
    let measured = curve.iter().map(|(x, _, measured)| (*x, *measured)).collect();
    Ok((rows, vec![figure.pair("", published, measured)]))
}

/// How writers on one module get in one another's way.
fn crowded(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Writers on one module",
        unit: "ratio",
        source: "Yang et al., FAST 2020, random 256 B past the caches",
    };
    let (mut rows, mut curve) = (Vec::new(), Vec::new());
    for (writers, published) in published::CROWD {
        let measured = crowd(device, *writers as u64)?;
        curve.push((*writers, measured));
        let what = format!("{writers} writers");
        rows.push(topic.row(what, *published, measured, Tolerance::Relative(0.15)));
    }
    let figure = Figure {
        name: "writers",
        title: "Media bytes written per byte, by writers on one module".to_string(),
        x: "writers",
        x_scale: Scale::Linear,
        y: "media bytes per byte",
        series: Vec::new(),
    };
    Ok((rows, vec![figure.pair("", published::CROWD.to_vec(), curve)]))
}

/// Raw throughput by threads.
fn walsh_table(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic { topic: "Throughput by threads", unit: "Mop/s", source: "WALSH, Table 3" };
    let mut figure = Figure {
        name: "threads",
        title: "Random accesses of 16 bytes on two modules".to_string(),
        x: "threads",
        x_scale: Scale::Linear,
        y: "million operations per second",
        series: Vec::new(),
    };
    let mut rows = Vec::new();
    for (word, verb, table, tolerance) in [
        ("writes", Verb::Write, published::WRITES, 0.10),
        ("reads", Verb::Read, published::READS, 0.20),
    ] {
        let mut curve = Vec::new();
        for (threads, published) in table {
            let summary = random(device, verb, 16, *threads as u64)?;
            let measured = summary.operations_per_second() * 1e-6;
            curve.push((*threads, measured));
            let what = format!("{word} of 16 B, {threads} threads");
            rows.push(topic.row(what, *published, measured, Tolerance::Relative(tolerance)));
        }
        figure = figure.pair(word, table.to_vec(), curve);
    }
    Ok((rows, vec![figure]))
}

/// One module, saturated.
fn one_module(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "One module, saturated by 64 threads",
        unit: "GB/s",
        source: "PerMA-Bench result files, VLDB 2022",
    };
    let device = MemoryDevice { dimms: 1, ..device.clone() };
    let mut rows = Vec::new();
    for (what, verb, bytes, published) in [
        ("random writes of 64 B", Verb::WritePastCaches, 64, 0.65),
        ("random writes of 256 B", Verb::WritePastCaches, 256, 2.62),
        ("random reads of 64 B", Verb::Read, 64, 2.12),
    ] {
        let summary = random(&device, verb, bytes, 64)?;
        let measured = summary.operations_per_second() * bytes as f64 * 1e-9;
        rows.push(topic.row(what, published, measured, Tolerance::Relative(0.10)));
    }
    Ok((rows, Vec::new()))
}

/// The same line, flushed once and twice.
fn twice_flushed(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "The same line flushed twice",
        unit: "ratio",
        source: "PerMA-Bench result files, VLDB 2022: time of twice over once",
    };
    let (clwb, clflushopt) = match device.clwb {
        Clwb::Invalidates => (621.0 / 480.0, 618.0 / 481.0),
        Clwb::Keeps => (603.0 / 474.0, 1238.0 / 472.0),
    };
    let mut rows = Vec::new();
    let mut shown = Vec::new();
    for (what, flush, published) in
        [("clwb", Flushing::Clwb, clwb), ("clflushopt", Flushing::Clflushopt, clflushopt)]
    {
        let ratio = flush_again(device, flush, 2)? / flush_again(device, flush, 1)?;
        shown.push(ratio);
        rows.push(topic.row(what, published, ratio, Tolerance::Relative(0.25)));
    }
    let measured = shown[1] / shown[0];
    let what = "clflushopt over clwb";
    rows.push(topic.row(what, clflushopt / clwb, measured, Tolerance::Relative(0.25)));
    Ok((rows, Vec::new()))
}

/// Groups of accesses, one behind the other and at random.
fn probing(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Sequential over random probing",
        unit: "ratio",
        source: "TurboHash, Fig. 2: 4 to 7 for groups of 16",
    };
    // Two threads for each of the 20 cores.
    let threads = 40;
    let mut figure = Figure {
        name: "probing",
        title: format!("Groups of independent accesses, {threads} threads"),
        x: "lines in a group",
        x_scale: Scale::Logarithmic,
        y: "million groups per second",
        series: Vec::new(),
    };
    let mut rows = Vec::new();
    for (word, verb) in [("reads", Verb::Read), ("writes", Verb::Write)] {
        let mut curves = [Vec::new(), Vec::new()];
        for lines in [1, 2, 4, 8, 16, 32] {
            for (curve, order) in curves.iter_mut().zip([Order::Sequential, Order::Random]) {
                let summary = groups(device, verb, lines, order, threads)?;
                curve.push((lines as f64, summary.operations_per_second() * 1e-6));
            }
        }
        let ratio = curves[0][4].1 / curves[1][4].1;
        let what = format!("{word}, groups of 16");
        rows.push(topic.row(what, 5.5, ratio, Tolerance::Between(3.0, 8.0)));
        for (curve, order) in curves.into_iter().zip(["sequential", "random"]) {
            figure = figure.pair(&format!("{order} {word}"), Vec::new(), curve);
        }
    }
    Ok((rows, vec![figure]))
}

/// The flat model: time is a straight line in both latencies.
fn flat(device: &MemoryDevice) -> Result<Found> {
    let topic = Topic {
        topic: "Flat model",
        unit: "ns",
        source: "the profile's own number; WOPHI 4 adds fixed latencies",
    };
    let time = |read: f64, write: f64| -> Result<f64> {
        let device = MemoryDevice { flat_read_ns: read, flat_write_ns: write, ..device.clone() };
        let region = region(&device, Timing::Virtual, 64 << 20);
        let pm = region.access();
        for number in 0..10_000 {
            let at = Addr::new(number * 4160);
            pm.load(at)?;
            pm.store(at, number)?;
            pm.persist(Span::new(at, 1), SITE)?;
        }
        Ok(region.media().elapsed_ps() as f64 / 1000.0 / 10_000.0)
    };
    let (read, close) = (device.flat_read_ns, Tolerance::Relative(0.001));
    let base = time(read, 0.0)?;
    let mut rows = vec![topic.row("a missing load", read, base - time(0.0, 0.0)?, close)];
    let (mut curve, mut line) = (Vec::new(), Vec::new());
    for write in [300.0, device.flat_write_ns, 900.0, 1200.0] {
        let shown = time(read, write)?;
        curve.push((write, shown));
        line.push((write, base + write));
        rows.push(topic.row(format!("a flush at {write} ns"), write, shown - base, close));
    }
    let figure = Figure {
        name: "flat",
        title: "Time of a load, a store and a flush by write latency".to_string(),
        x: "write latency, ns",
        x_scale: Scale::Linear,
        y: "time of the operation, ns",
        series: Vec::new(),
    };
    Ok((rows, vec![figure.pair("", line, curve)]))
}
