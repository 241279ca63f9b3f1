//! Every built-in profile is held to what was published about its machine.

use everhash_device::{Profile, Table, page, probe, write_report};

/// Probes profiles and shows every table; fails if a row is outside its tolerance, or was not
/// compared at all.
fn hold(names: &[&str]) {
    let mut failures = Vec::new();
    for name in names {
        let probe = probe(&Profile::named(name).expect("it is built in")).expect("it is sound");
        println!("{name}\n{}", probe.table.text());
        assert_eq!(topics(&probe.table), compared(name), "{name}");
        // No device is exactly as published: an error of nothing was not looked for.
        let error = probe.table.rows.iter().find(|row| row.what == "root mean square error");
        assert!(error.is_none_or(|row| row.measured > 0.0), "{name}");
        if !probe.table.holds() {
            failures.push(*name);
        }
    }
    assert!(failures.is_empty(), "values outside their tolerance: {failures:?}");
}

/// Returns each topic of a table and how many rows it has.
fn topics(table: &Table) -> Vec<(&'static str, usize)> {
    table.rows.chunk_by(|a, b| a.topic == b.topic).map(|of| (of[0].topic, of.len())).collect()
}

/// Returns what a built-in profile is compared with: its own numbers, and so many values of each
/// publication.
fn compared(name: &str) -> Vec<(&'static str, usize)> {
    let buffer = ("Write-combining buffer", 11);
    let walsh = [
        buffer,
        ("Write amplification", 13),
        ("Writers on one module", 6),
        ("Throughput by threads", 14),
        ("Synthetic indexes, 40 threads", 2),
    ];
    let twice = [("The same line flushed twice", 3)];
    let tables =
        [("Synthetic indexes, one thread, writes", 4), ("Synthetic indexes, one thread, reads", 4)];
    // Where caches are durable, nobody waits for a write.
    let latencies = if matches!(name, "optane-200-eadr" | "elimda") { 2 } else { 4 };
    let own = [("Latency", latencies), ("Bandwidth", 2)];
    let again = [("Repetition", 1)];
    let in_place = [("Updates in place", 1)];
    match name {
        "optane-100" => [&own[..], &walsh, &twice, &again].concat(),
        "walsh" => [&own[..], &walsh, &again].concat(),
        "optane-100-256gb" => {
            let module = ("One module, saturated by 64 threads", 3);
            [&own[..], &[buffer, module], &again].concat()
        }
        "optane-200" => [&own[..], &twice, &again].concat(),
        "optane-200-eadr" | "elimda" => [&own[..], &tables, &again].concat(),
        "turbohash" => [&own[..], &[("Sequential over random probing", 2)], &again].concat(),
        "wophi" => vec![("Flat model", 5)],
        "tiered" => {
            let uniform = ("Write amplification of uniform writes", 18);
            let streams = ("Write amplification with streams, spare 0.2", 12);
            [&[uniform, streams][..], &in_place, &again].concat()
        }
        "tiered-fit" => [&in_place[..], &again, &[("Calibration", 1)]].concat(),
        _ => [&own[..], &again].concat(),
    }
}

#[test]
fn the_100_series_behaves_as_published() {
    // Fails if the write buffer, the read buffer, the cache or the servers are modelled otherwise.
    hold(&["optane-100", "optane-100-256gb"]);
}

#[test]
fn the_200_series_behaves_as_published() {
    // Fails if the newer processor's flushes, or the lack of them, are modelled otherwise.
    hold(&["optane-200", "optane-200-eadr"]);
}

#[test]
fn the_test_beds_of_the_papers_behave_as_published() {
    // Fails if a test bed's flush instruction, modules or flat latencies are wrong.
    hold(&["walsh", "elimda", "elimda-adr", "turbohash", "wophi"]);
}

#[test]
fn dram_and_cxl_show_the_numbers_that_they_are_described_with() {
    // Fails if a device without a media unit of its own were given one.
    hold(&["dram", "cxl-dram", "cxl-nvdimm"]);
}

#[test]
fn flash_behaves_as_published() {
    // Fails if garbage collection, streams or the serial costs are modelled otherwise.
    hold(&["tiered", "tiered-fit"]);
}

#[test]
fn a_device_with_other_numbers_is_held_to_its_own() {
    // Fails if a probe compared somebody's own device with a published one.
    let text = "name = 'mine'\ntitle = 'mine'\nbase = 'optane-100'\n\
                media_write_ns = { value = 500, unit = 'ns', source = 'measured' }";
    let probe = probe(&Profile::parse(text).unwrap()).unwrap();
    assert!(probe.table.holds(), "{}", probe.table.text());
    assert!(probe.table.rows.iter().all(|row| !row.source.contains("WALSH")));
}

#[test]
fn a_report_is_complete_without_anything_else() {
    // Fails if the page asked for a file, a font or a script of somebody else.
    let probe = probe(&Profile::named("wophi").unwrap()).unwrap();
    let page = page(&probe);
    assert!(!page.contains("<script") && !page.contains("href=") && !page.contains("src="));
    assert!(probe.table.rows.iter().all(|row| page.contains(&row.what)));
    let folder = std::env::temp_dir().join(format!("everhash-probe-{}", std::process::id()));
    let written = write_report(&probe, &folder).unwrap();
    let sizes: Vec<u64> = written.iter().map(|path| path.metadata().unwrap().len()).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(written.len(), 2 + probe.figures.len());
    assert!(sizes.iter().all(|size| *size > 500), "{sizes:?}");
}
