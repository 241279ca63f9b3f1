//! The probe: which programs are run on which profile, and what their results are compared with.

mod flash;
mod indexes;
mod memory;

use everhash_pmem::Result;
use everhash_pmem::profile::Profile;

use crate::figure::Figure;
use crate::table::{Row, Table, Tolerance};

/// Published results that need whole indexes: they are measured where those are.
pub const WAITING: &[&str] = &[
    "WALSH, Fig. 2: write amplification of engines and rivals (synthetic indexes stand in here)",
    "ElimDA, Fig. 4: write and read amplification of engines and rivals (likewise)",
    "WOPHI, Fig. 4 to 6: latencies against Level and PFHT-Log (the flat model itself is probed)",
    "Tiered Hashing, Table 3: external over internal write amplification of the rivals",
    "Tiered Hashing, Fig. 8: the rivals' internal write amplification and latency (a synthetic \
     index stands in here)",
];

/// What a probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The name of the profile.
    pub profile: String,
    /// The profile in one line.
    pub title: String,
    /// Every value with its verdict.
    pub table: Table,
    /// Curves of some of them.
    pub figures: Vec<Figure>,
}

/// Runs every program that says something about `profile`.
///
/// Rows that belong to a built-in profile compare with what was published about that machine; any
/// other profile is held to its own numbers: the device must show the latencies, bandwidths and
/// ratios that it was described with.
///
/// # Errors
/// Errors of the medium.
pub fn probe(profile: &Profile) -> Result<Probe> {
    let (rows, figures) = match (profile.memory(), profile.flash()) {
        (Ok(device), _) => memory::probe(profile.name(), device)?,
        (_, Ok(device)) => flash::probe(profile.name(), device)?,
        (Err(error), Err(_)) => return Err(error),
    };
    Ok(Probe {
        profile: profile.name().to_string(),
        title: profile.title().to_string(),
        table: Table { rows },
        figures,
    })
}

/// What a program came to.
type Found = (Vec<Row>, Vec<Figure>);

/// Makes rows of one topic and source.
struct Topic {
    topic: &'static str,
    unit: &'static str,
    source: &'static str,
}

impl Topic {
    fn row(
        &self,
        what: impl Into<String>,
        published: f64,
        measured: f64,
        tolerance: Tolerance,
    ) -> Row {
        let Topic { topic, unit, source } = *self;
        Row { topic, what: what.into(), unit, published, measured, tolerance, source }
    }
}
