//! Names of states: short texts that identify a state exactly.

use core::fmt;
use core::str::FromStr;

use super::memory::Place;

/// The name of one crash: its event, and the pending stores that it kept.
///
/// `57:l3.2,w40.1` is a power loss before event 57 that keeps the first 2 pending stores of line 3,
/// the first one of word 40, and no other. `57:killed` is a process killed before event 57, which
/// keeps everything visible.
///
/// ```
/// use everhash_pmem::crash::Name;
/// let name: Name = "57:l3.2,w40.1".parse()?;
/// assert_eq!(name.to_string(), "57:l3.2,w40.1");
/// assert!("57".parse::<Name>().is_err());
/// # Ok::<(), everhash_pmem::crash::BadName>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Name {
    /// Power loss.
    Power {
        /// The number of events before it.
        event: usize,
        /// The places that kept something, with the number of leading pending stores kept (under
        /// the Arm model: the number of the content).
        places: Vec<(Place, u32)>,
    },
    /// A killed process.
    Killed {
        /// The number of events before it.
        event: usize,
    },
}

/// A text is not the name of a state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" does not name a crash; write it as 57:l3.2,w40.1 or as 57:killed")]
pub struct BadName(String);

/// The log has no state of this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log has no state {0}; take the seed and the options of the report that names it")]
pub struct NoSuchState(pub Name);

impl Name {
    /// Returns the number of events before the crash.
    pub fn event(&self) -> usize {
        match self {
            Name::Power { event, .. } | Name::Killed { event } => *event,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (event, places) = match self {
            Name::Power { event, places } => (event, places),
            Name::Killed { event } => return write!(f, "{event}:killed"),
        };
        write!(f, "{event}:")?;
        for (index, (place, label)) in places.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match place {
                Place::Line(line) => write!(f, "{comma}l{line}.{label}")?,
                Place::Word(word) => write!(f, "{comma}w{word}.{label}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Name, BadName> {
        parse(text).ok_or_else(|| BadName(text.to_string()))
    }
}

fn parse(text: &str) -> Option<Name> {
    let (event, rest) = text.split_once(':')?;
    let event = event.parse().ok()?;
    if rest == "killed" {
        return Some(Name::Killed { event });
    }
    let parts = rest.split(',').filter(|part| !part.is_empty());
    let places = parts.map(parse_place).collect::<Option<Vec<_>>>()?;
    Some(Name::Power { event, places })
}

fn parse_place(part: &str) -> Option<(Place, u32)> {
    let (place, label) = part.split_once('.')?;
    let index = place.get(1..)?.parse().ok()?;
    let place = match place.as_bytes()[0] {
        b'l' => Place::Line(index),
        b'w' => Place::Word(index),
        _ => return None,
    };
    Some((place, label.parse().ok()?))
}
