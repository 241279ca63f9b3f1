//! What the machine tells: which boot this is, and random numbers.

use everhash_pmem::Boot;

use crate::{Error, Result};

/// Returns the present boot of the machine, or the one without a name where the system does not
/// tell: every unclean close then counts as power loss.
pub(crate) fn boot() -> Boot {
    // Source: Linux, random(4): a UUID that is drawn anew at every boot.
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    parse_boot(&text)
}

fn parse_boot(text: &str) -> Boot {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(number) if digits.len() == 32 => Boot([(number >> 64) as u64, number as u64]),
        _ => Boot::default(),
    }
}

/// Returns `N` random words from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = getrandom::u64().map_err(|error| Error::Random { source: error.into() })?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_the_number_that_the_system_prints() {
        // Fails if a malformed text named a boot: two boots could then look like one.
        let text = "00000000-0000-0001-0000-00000000000a\n";
        assert_eq!(parse_boot(text), Boot([1, 10]));
        assert_eq!(parse_boot(""), Boot::default());
        assert_eq!(parse_boot("1-2"), Boot::default());
        assert_eq!(parse_boot(&text.replace('a', "x")), Boot::default());
        assert_eq!(boot(), boot());
    }

    #[test]
    fn random_words_differ() {
        // Fails if every database got one hash key.
        let [a, b] = random().unwrap();
        assert_ne!(a, b);
    }
}
