//! The full logs of an area (3.1.3): a queue with a word for each.

use std::collections::{BTreeMap, VecDeque};

use everhash_pmem::{Addr, Bits, LINE, Span, WORD};

/// A log that is full.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub number: u64,
    pub span: Span,
    /// Its objects.
    pub count: u64,
}

/// The full logs of an area, oldest first, a word for each: there is one for a few hundred pairs,
/// and its room is part of what each pair takes.
#[derive(Debug, Default)]
pub struct Logs {
    /// Number of the oldest; the others follow.
    first: u64,
    /// Where each begins, its objects and its length.
    words: VecDeque<u64>,
    /// The lengths that do not fit a word, by the numbers of logs. Unit: lines.
    long: BTreeMap<u64, u64>,
    /// The room that all of them take. Unit: bytes.
    pub(super) bytes: u64,
}

/// The line in which a log begins.
const LOG_LINE: Bits = Bits::new(0, 40);
/// The objects of a log.
const LOG_COUNT: Bits = Bits::new(40, 12);
/// The lines of a log, or, if there are more than fit, the largest number.
const LOG_LINES: Bits = Bits::new(52, 12);

impl Logs {
    /// Adds the log with the next number.
    pub fn push_back(&mut self, log: Log) {
        if self.words.is_empty() {
            self.first = log.number;
        }
        if self.words.len() == self.words.capacity() {
            self.words.reserve_exact(self.words.len() / 8 + 4);
        }
        let lines = log.span.bytes() / LINE;
        if lines >= LOG_LINES.max() {
            self.long.insert(log.number, lines);
        }
        let word = LOG_COUNT.set(LOG_LINE.set(0, log.span.start.line()), log.count);
        self.words.push_back(LOG_LINES.set(word, lines.min(LOG_LINES.max())));
        self.bytes += log.span.bytes();
    }

    /// Takes the oldest, if `is_it` says so.
    pub fn pop_front_if(&mut self, is_it: impl Fn(&Log) -> bool) -> Option<Log> {
        let log = self.iter().next().filter(is_it)?;
        self.words.pop_front();
        self.long.remove(&self.first);
        self.first = self.first.wrapping_add(1);
        self.bytes -= log.span.bytes();
        Some(log)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns all of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Log> {
        self.words.iter().enumerate().map(|(place, word)| self.log(place, *word))
    }

    /// Returns the DRAM that they take. Unit: bytes.
    pub fn dram_bytes(&self) -> u64 {
        // A key and a value of the map, and about as much for its own sake.
        self.words.capacity() as u64 * WORD + self.long.len() as u64 * 4 * WORD
    }

    fn log(&self, place: usize, word: u64) -> Log {
        let number = self.first.wrapping_add(place as u64);
        let lines = match LOG_LINES.get(word) {
            most if most == LOG_LINES.max() => self.long.get(&number).copied().unwrap_or(most),
            lines => lines,
        };
        let start = Addr::new(LOG_LINE.get(word) * LINE);
        Log { number, span: Span::of_bytes(start, lines * LINE), count: LOG_COUNT.get(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_come_back_as_they_were_whatever_their_lengths() {
        // Fails if a length, a count or a number is cut off, or if a long log outlives its word.
        let log = |number: u64| Log {
            number,
            span: Span::of_bytes(Addr::new(number << 20), (number % 7 * 3000 + 1) * LINE),
            count: number % 4096,
        };
        let mut logs = Logs::default();
        let numbers = 5..5000;
        numbers.clone().for_each(|number| logs.push_back(log(number)));
        let same = |found: &Log, number| {
            (found.number, found.span, found.count) == (number, log(number).span, log(number).count)
        };
        assert!(logs.iter().zip(numbers.clone()).all(|(found, number)| same(&found, number)));
        assert!(logs.len() == 4995);
        for number in numbers {
            assert!(logs.pop_front_if(|log| log.number < number).is_none());
            assert!(same(&logs.pop_front_if(|log| log.number == number).unwrap(), number));
        }
        assert!(logs.len() == 0 && logs.long.is_empty() && logs.bytes == 0);
    }
}
