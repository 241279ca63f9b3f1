//! Lines that are mutated and read as an import reads them.

use core::ops::Range;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use everhash_testkit::random::Random;

use crate::input::Lines;
use crate::records::{Format, Pair};

/// Lines from which others are made: what export writes, and what goes wrong by hand.
const SEEDS: [&[u8]; 8] = [
    b"key\tvalue\n",
    b"a\\tb\tc\\n\\\\d\r\n",
    b"\t\n",
    b"{\"key\":\"k\",\"value\":\"v\"}\n",
    b"{\"key_hex\":\"00ff\",\"value_hex\":\"\"}\n",
    b"{\"key\":\"\\u00e9\\ud83d\\ude00\",\"value\":\"\\\\\"}\n",
    b"{\"value\":\"v\",\"key_hex\":\"0g\"}\n",
    b"\xff\xfe\t\x00\n",
];

/// What is put into lines: what the formats give a meaning.
const PIECES: [&[u8]; 12] = [
    b"\t",
    b"\\",
    b"\n",
    b"\r\n",
    b"\"",
    b"{",
    b"}",
    b"\\u",
    b"\\ud800",
    b"_hex",
    b"\xf0\x9f",
    b"\x00",
];

/// Mutates and reads the inputs of some numbers.
///
/// What can be read must come back when it is written and read again.
///
/// # Errors
/// The first input at which a reader panics, or that does not come back.
pub fn read(seed: u64, numbers: Range<u64>) -> Result<(), String> {
    for number in numbers {
        let mut random = Random::new(seed.rotate_left(32) ^ number);
        let input = mutated(&mut random);
        for format in [Format::Tsv, Format::Jsonl] {
            let read = catch_unwind(AssertUnwindSafe(|| all(format, input.clone())));
            let told =
                |what| format!("input {number} of seed {seed}, {format:?}: {what}: {input:?}");
            let pairs = read.map_err(|_| told("a panic"))?;
            let mut written = Vec::new();
            for (key, value) in &pairs {
                format.write(key, value, &mut written).expect("memory takes every byte");
            }
            if all(format, written) != pairs {
                return Err(told("what was read does not come back"));
            }
        }
    }
    Ok(())
}

/// Returns the records up to the first wrong line.
fn all(format: Format, input: Vec<u8>) -> Vec<Pair> {
    let mut lines = Lines::of(Box::new(Cursor::new(input)), "mutated", None);
    let mut pairs = Vec::new();
    while let Ok(Some(pair)) = format.read(&mut lines) {
        pairs.push(pair);
    }
    pairs
}

fn mutated(random: &mut Random) -> Vec<u8> {
    let mut input: Vec<u8> =
        (0..=random.below(3)).flat_map(|_| random.pick(&SEEDS).to_vec()).collect();
    for _ in 0..random.below(6) {
        let at = random.below(input.len() as u64 + 1) as usize;
        match random.below(4) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 if at < input.len() => drop(input.remove(at)),
            2 => input.truncate(at.max(1)),
            _ => drop(input.splice(at..at, random.pick(&PIECES).iter().copied())),
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_lines_are_refused_or_come_back() {
        // Fails if some line makes a reader panic, or is read as what writing it does not give; or
        // if hardly any line is read at all: then each comes back.
        read(0, 0..4000).unwrap();
        for format in [Format::Tsv, Format::Jsonl] {
            let inputs = (0..4000).map(|number| mutated(&mut Random::new(number)));
            let pairs: usize = inputs.map(|input| all(format, input).len()).sum();
            assert!(pairs > 300, "{format:?}: {pairs}");
        }
    }
}
