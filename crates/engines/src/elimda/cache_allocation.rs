//! Cache allocation (ElimDA 3.7): whether the machine can keep ways of its last-level cache for the
//! process, so that collecting logs stay there.
//!
//! On Linux that is what `resctrl` offers. It belongs to the whole machine and to its
//! administrator: the engine says what there is, and takes nothing.

use core::fmt;
use std::fs;
use std::path::Path;

/// Where Linux shows it.
const ROOT: &str = "/sys/fs/resctrl";

/// What the machine offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheAllocation {
    /// The file system `resctrl` is not there, or not mounted.
    NotMounted,
    /// It is mounted, and does not hand out the last-level cache.
    NoLastLevel,
    /// Ways of the last-level cache can be set aside.
    Offered {
        /// Ways that there are.
        ways: u32,
        /// Ways that a group has at least.
        least: u32,
        /// Groups that there can be; the first one is that of all other processes.
        groups: u32,
    },
}

impl CacheAllocation {
    /// Asks the machine.
    pub fn of_machine() -> Self {
        Self::of(Path::new(ROOT))
    }

    fn of(root: &Path) -> Self {
        let info = root.join("info");
        if !info.is_dir() {
            return CacheAllocation::NotMounted;
        }
        let number = |name: &str, radix| {
            let text = fs::read_to_string(info.join("L3").join(name)).ok()?;
            u64::from_str_radix(text.trim(), radix).ok()
        };
        let numbers =
            (number("cbm_mask", 16), number("min_cbm_bits", 10), number("num_closids", 10));
        match numbers {
            (Some(mask), Some(least), Some(groups)) => CacheAllocation::Offered {
                ways: mask.count_ones(),
                least: least.min(u64::from(u32::MAX)) as u32,
                groups: groups.min(u64::from(u32::MAX)) as u32,
            },
            _ => CacheAllocation::NoLastLevel,
        }
    }

    /// Returns how many ways one group can have while all other processes keep what they need.
    pub const fn most_ways(self) -> u32 {
        match self {
            CacheAllocation::Offered { ways, least, groups } if groups > 1 && ways >= 2 * least => {
                ways - least
            }
            _ => 0,
        }
    }
}

impl fmt::Display for CacheAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheAllocation::NotMounted => write!(f, "{ROOT} is not mounted"),
            CacheAllocation::NoLastLevel => write!(f, "{ROOT} hands out no last-level cache"),
            CacheAllocation::Offered { ways, groups, .. } => write!(
                f,
                "{} of {ways} ways of the last-level cache can be set aside, in {groups} groups",
                self.most_ways()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_believed_file_by_file() {
        // Fails if a machine without the files counts as one that has ways to give away, or if a
        // mask is taken for a number.
        let root = std::env::temp_dir().join(format!("everhash-resctrl-{}", std::process::id()));
        let level = root.join("info/L3");
        assert_eq!(CacheAllocation::of(&root), CacheAllocation::NotMounted);
        fs::create_dir_all(&level).unwrap();
        assert_eq!(CacheAllocation::of(&root), CacheAllocation::NoLastLevel);
        for (name, text) in
            [("cbm_mask", "7ff\n"), ("min_cbm_bits", "1\n"), ("num_closids", "15\n")]
        {
            assert_eq!(CacheAllocation::of(&root).most_ways(), 0);
            fs::write(level.join(name), text).unwrap();
        }
        let offered = CacheAllocation::of(&root);
        assert_eq!(offered, CacheAllocation::Offered { ways: 11, least: 1, groups: 15 });
        assert_eq!(offered.most_ways(), 10);
        fs::write(level.join("num_closids"), "1\n").unwrap();
        assert_eq!(CacheAllocation::of(&root).most_ways(), 0, "others keep all they have");
        let offered = CacheAllocation::Offered { ways: 3, least: 2, groups: 4 };
        assert_eq!(offered.most_ways(), 0, "others keep as many as a group needs");
        assert_eq!(
            offered.to_string(),
            "0 of 3 ways of the last-level cache can be set aside, in 4 groups"
        );
        assert_eq!(CacheAllocation::NotMounted.to_string(), "/sys/fs/resctrl is not mounted");
        fs::write(level.join("cbm_mask"), "many").unwrap();
        assert_eq!(CacheAllocation::of(&root), CacheAllocation::NoLastLevel);
        fs::remove_dir_all(&root).unwrap();
        println!("this machine: {}", CacheAllocation::of_machine());
    }
}
