//! What is compared on flash devices.

use everhash_pmem::Result;
use everhash_pmem::profile::{FlashDevice, Victim};

use super::{Found, Topic};
use crate::figure::{Figure, Scale};
use crate::programs::pages::{Heat, UNIFORM, sized, steady_state, updates};
use crate::published;
use crate::table::{Row, Tolerance};

/// Runs everything that says something about the profile `name`.
pub(super) fn probe(name: &str, device: &FlashDevice) -> Result<Found> {
    let mut found = (Vec::new(), Vec::new());
    if name == "flash" || name == "tiered" {
        found = collection(device);
        found.0.extend(streams(device));
    }
    found.0.extend(in_place(device)?);
    found.0.extend(repetition(device)?);
    if name == "tiered-fit" {
        found.0.push(fit(device));
    }
    Ok(found)
}

/// Garbage collection of uniform writes by spare space.
fn collection(device: &FlashDevice) -> Found {
    let topic = Topic {
        topic: "Write amplification of uniform writes",
        unit: "ratio",
        source: "Xiang and Kurkoski, arXiv 1110.4245; simulation",
    };
    let random = Topic { source: "closed form (1 + spare) / spare", ..topic };
    let mut figure = Figure {
        name: "collection",
        title: "Pages written to flash per page of the host, uniform writes".to_string(),
        x: "spare space over logical space",
        x_scale: Scale::Linear,
        y: "flash pages per page",
        series: Vec::new(),
    };
    let mut rows = Vec::new();
    let close = Tolerance::Relative(0.03);
    for (word, victim, table) in
        [("greedy", Victim::Greedy, published::GREEDY), ("fifo", Victim::Fifo, published::FIFO)]
    {
        let mut curve = Vec::new();
        for (spare, published) in table {
            let measured = steady_state(&sized(device, victim, *spare, 1), UNIFORM, 3);
            curve.push((*spare, measured));
            rows.push(topic.row(format!("{word}, spare {spare}"), *published, measured, close));
        }
        figure = figure.pair(word, table.to_vec(), curve);
    }
    for spare in [0.20, 0.50] {
        let measured = steady_state(&sized(device, Victim::Random, spare, 1), UNIFORM, 4);
        let published = (1.0 + spare) / spare;
        rows.push(random.row(format!("random, spare {spare}"), published, measured, close));
    }
    (rows, vec![figure])
}

/// What streams are worth under two policies.
fn streams(device: &FlashDevice) -> Vec<Row> {
    let topic = Topic {
        topic: "Write amplification with streams, spare 0.2",
        unit: "ratio",
        source: "independent simulation",
    };
    let mut rows = Vec::new();
    for (space, writes, published) in published::STREAMS {
        let policies = [
            ("greedy", Victim::Greedy, 1),
            ("greedy", Victim::Greedy, 2),
            ("cost-benefit", Victim::CostBenefit, 1),
            ("cost-benefit", Victim::CostBenefit, 2),
        ];
        for ((word, victim, streams), published) in policies.into_iter().zip(published) {
            let heat = Heat { space: *space, writes: *writes };
            let measured = steady_state(&sized(device, victim, 0.20, streams), heat, 5);
            let what = format!("{writes} of writes to {space}, {word}, streams {streams}");
            rows.push(topic.row(what, *published, measured, Tolerance::Relative(0.10)));
        }
    }
    rows
}

/// Words of random pages updated in place, one page write each.
fn in_place(device: &FlashDevice) -> Result<Vec<Row>> {
    let topic = Topic {
        topic: "Updates in place",
        unit: "ms",
        source: "Tiered Hashing: latency is external amplification times page write and read",
    };
    let (counters, summary) = updates(device)?;
    let amplification = counters.external_write_amplification(summary.operations);
    let expected = amplification * (device.page_write_us + device.page_read_us) / 1000.0;
    let measured = summary.mean_ns() * 1e-6;
    Ok(vec![topic.row("mean latency", expected, measured, Tolerance::Relative(0.15))])
}

/// The calibration of the spare space to the paper's write amplification.
fn fit(device: &FlashDevice) -> Row {
    let topic = Topic {
        topic: "Calibration",
        unit: "ratio",
        source: "Tiered Hashing, Fig. 8: Cuckoo and Linear; the spare space is fitted to it",
    };
    let one_stream = FlashDevice { streams: 1, ..device.clone() };
    let measured = steady_state(&one_stream, UNIFORM, 2);
    topic.row("internal write amplification", 26.7, measured, Tolerance::Relative(0.10))
}

/// The same run twice.
fn repetition(device: &FlashDevice) -> Result<Vec<Row>> {
    let topic = Topic { topic: "Repetition", unit: "", source: "ours: a seed decides everything" };
    let (first, second) = (updates(device)?, updates(device)?);
    let same = (first == second) as u64;
    let what = "results that differ between two runs";
    Ok(vec![topic.row(what, 0.0, 1.0 - same as f64, Tolerance::Absolute(0.0))])
}
