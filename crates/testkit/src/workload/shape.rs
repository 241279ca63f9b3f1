//! The bytes behind the numbers of a workload.

use everhash_index::Form;

/// Lengths of variable keys, beside the longest: around words, and around a line.
///
/// Unit: bytes. Source: ours.
const KEY_LENGTHS: [usize; 8] = [8, 2, 7, 9, 16, 3, 17, 40];

/// Lengths of variable values, beside the longest: nothing, around words, and around a line.
///
/// Unit: bytes. Source: ours.
const VALUE_LENGTHS: [usize; 10] = [8, 0, 9, 1, 16, 7, 31, 64, 4, 65];

/// Fills what a number does not; no byte of a key's or value's number can be mistaken for it.
const FILL: u8 = 0xee;

/// Turns the numbers of a workload into keys and values of a form.
///
/// Different numbers give different keys, and different values where the length allows it. Among
/// the keys are those that designs like to reserve: all zeros, all ones, and the empty one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The form of the pairs.
    pub form: Form,
    /// The longest key of the variable form, at least 2. Unit: bytes.
    pub longest_key: usize,
    /// The longest value of the variable form. Unit: bytes.
    pub longest_value: usize,
}

impl Shape {
    /// Returns the shape for images of some 64 KiB.
    pub fn tiny(form: Form) -> Shape {
        Shape { form, longest_key: 100, longest_value: 300 }
    }

    /// Returns the key of a number.
    pub fn key(&self, number: u16) -> Vec<u8> {
        match self.form {
            Form::Fixed { key_bytes, .. } => fixed_key(key_bytes as usize, number),
            Form::Variable => self.variable_key(number),
        }
    }

    /// Returns the value of a number.
    pub fn value(&self, number: u32) -> Vec<u8> {
        match self.form {
            Form::Fixed { value_bytes, .. } => {
                // Every word is a function of the number: a value put together from two is seen.
                let words = (0u64..).flat_map(|word| {
                    (spread(u64::from(number)) ^ word.wrapping_mul(0x5555_5555)).to_le_bytes()
                });
                words.take(value_bytes as usize).collect()
            }
            Form::Variable => self.variable_value(number),
        }
    }

    fn variable_key(&self, number: u16) -> Vec<u8> {
        let name = number.to_le_bytes();
        let length = match number {
            0 => return Vec::new(),
            1 => return vec![1],
            n if n % 11 == 10 => self.longest_key,
            n => KEY_LENGTHS[usize::from(n) % KEY_LENGTHS.len()].min(self.longest_key),
        };
        let mut key = vec![FILL; length];
        // At the end for every other key: a comparison that looks at a prefix only is seen.
        let at = if number.is_multiple_of(2) { 0 } else { length - name.len() };
        key[at..at + name.len()].copy_from_slice(&name);
        key
    }

    fn variable_value(&self, number: u32) -> Vec<u8> {
        let length = match number % 13 {
            12 => self.longest_value,
            n => VALUE_LENGTHS[n as usize % VALUE_LENGTHS.len()].min(self.longest_value),
        };
        let bytes =
            (0u64..).flat_map(|word| spread(u64::from(number) + (word << 32)).to_le_bytes());
        bytes.take(length).collect()
    }
}

/// Keys that share one half and differ in the other are common: a comparison of one word is seen.
fn fixed_key(length: usize, number: u16) -> Vec<u8> {
    if length < 8 {
        return number.to_le_bytes().into_iter().chain([FILL; 6]).take(length).collect();
    }
    let (first, second) = if length < 16 { (number, 0) } else { (number / 3, number % 3) };
    let words = [spread(u64::from(first)), spread(u64::from(second))];
    words
        .into_iter()
        .chain([0].into_iter().cycle())
        .flat_map(u64::to_le_bytes)
        .take(length)
        .collect()
}

/// Spreads small numbers; 0 becomes all zeros and 1 all ones. A bijection on numbers below 2^48.
fn spread(number: u64) -> u64 {
    match number {
        1 => u64::MAX,
        number => number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn different_numbers_are_different_keys_of_the_right_form() {
        // Fails if two keys of a workload could be one, which would make every judge wrong.
        for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
            let shape = Shape::tiny(form);
            let keys: BTreeSet<_> = (0..2000).map(|number| shape.key(number)).collect();
            assert_eq!(keys.len(), 2000, "{form}");
            for key in &keys {
                everhash_index::admit(form, key, &shape.value(7)).unwrap();
            }
        }
    }

    #[test]
    fn values_differ_wherever_their_length_allows_it() {
        // Fails if a lost update could go unseen because the new value equals the old one.
        for form in [Form::WORDS, Form::DOUBLE_WORDS, Form::Variable] {
            let shape = Shape::tiny(form);
            let values: Vec<_> =
                (0..2000).map(|n| shape.value(n)).filter(|v| v.len() >= 4).collect();
            let distinct: BTreeSet<_> = values.iter().collect();
            assert_eq!(distinct.len(), values.len(), "{form}");
            assert!(values.len() >= 1000, "{form}");
        }
        let lengths: BTreeSet<_> =
            (0..100).map(|n| Shape::tiny(Form::Variable).value(n).len()).collect();
        assert!([0, 1, 7, 9, 65, 300].iter().all(|length| lengths.contains(length)));
    }

    #[test]
    fn keys_and_values_differ_in_every_part() {
        // Fails if a comparison of a prefix, of one word or of short keys only would go unseen, or
        // a value that is put together from two.
        let pairs = Shape::tiny(Form::DOUBLE_WORDS);
        let (one, other) = (pairs.key(7), pairs.key(8));
        assert!(one[..8] == other[..8] && one[8..] != other[8..]);
        assert!((2..40).all(|n| pairs.key(n)[..8] != pairs.key(n + 3)[..8]));
        for half in [0..8, 8..16] {
            let halves: BTreeSet<_> =
                (0..40).map(|n| pairs.value(n)[half.clone()].to_vec()).collect();
            assert_eq!(halves.len(), 40);
        }
        let shape = Shape::tiny(Form::Variable);
        let keys: Vec<_> = (2..200).map(|number| shape.key(number)).collect();
        assert!(keys.iter().any(|key| key.len() == shape.longest_key));
        let shares = |part: fn(&[u8]) -> &[u8]| {
            keys.iter().enumerate().any(|(place, one)| {
                let others = keys[place + 1..].iter().filter(|other| other.len() == one.len());
                one.len() > 6 && others.clone().any(|other| part(other) == part(one))
            })
        };
        assert!(shares(|key| &key[..3]) && shares(|key| &key[key.len() - 3..]));
    }
}
