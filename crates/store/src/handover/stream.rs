//! Pairs as a stream of bytes that says where it ends.
//!
//! | part | bytes |
//! |---|---|
//! | mark | the eight of [`MARK`] |
//! | a pair | length of the key in four, length of the value in four, key, value |
//! | the end | [`END`] in four, zero in four, number of pairs in eight, sum of all pairs in eight |
//! | a failure | [`FAILED`] in four, length of its text in four, text |
//!
//! Numbers are in little-endian order.

use std::io::{self, BufReader, BufWriter, Read, Write};

use everhash_index::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::Pair;

/// What every stream begins with. The last byte is the version.
const MARK: [u8; 8] = *b"ehpairs\x01";

/// The end, in place of the length of a key.
const END: u32 = u32::MAX;

/// A failure of the sender, in place of the length of a key.
const FAILED: u32 = u32::MAX - 1;

/// How much is gathered before it is handed to the system. Unit: bytes. Source: ours; a quarter of
/// what a socket holds.
const BUFFER: usize = 64 << 10;

/// The longest text of a failure. Unit: bytes. Source: ours; a path and a sentence.
const MAX_TEXT: usize = 8 << 10;

/// A sum over all bytes of the pairs: a stream that lost some, or has others, has another one.
#[derive(Debug, Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // Each step can be undone, so that no difference is lost again.
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed.rotate_left(29);
        }
    }
}

/// The end that sends.
pub(super) struct Sender<W: Write> {
    out: BufWriter<W>,
    sum: Sum,
    pairs: u64,
}

impl<W: Write> Sender<W> {
    pub(super) fn begin(out: W) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(BUFFER, out);
        out.write_all(&MARK)?;
        Ok(Sender { out, sum: Sum::default(), pairs: 0 })
    }

    pub(super) fn pair(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut lengths = [0; 8];
        lengths[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
        lengths[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        for part in [&lengths, key, value] {
            self.sum.add(part);
            self.out.write_all(part)?;
        }
        self.pairs += 1;
        Ok(())
    }

    /// Ends the stream; returns the number of pairs.
    pub(super) fn end(mut self) -> io::Result<u64> {
        self.out.write_all(&[&END.to_le_bytes()[..], &[0; 4]].concat())?;
        self.out.write_all(&self.pairs.to_le_bytes())?;
        self.out.write_all(&self.sum.0.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.pairs)
    }

    /// Ends the stream with the reason why not all pairs can be sent.
    pub(super) fn fail(mut self, why: &str) -> io::Result<()> {
        let text = &why.as_bytes()[..why.len().min(MAX_TEXT)];
        self.out.write_all(&FAILED.to_le_bytes())?;
        self.out.write_all(&(text.len() as u32).to_le_bytes())?;
        self.out.write_all(text)?;
        self.out.flush()
    }
}

/// The end that receives.
pub(super) struct Receiver<R> {
    input: BufReader<R>,
    begun: bool,
    sum: Sum,
    pairs: u64,
}

impl<R: Read> Receiver<R> {
    pub(super) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(BUFFER, input);
        Receiver { input, begun: false, sum: Sum::default(), pairs: 0 }
    }

    /// Returns the next pair, `None` at the end, or why there is neither.
    pub(super) fn next(&mut self) -> Result<Option<Pair>, String> {
        if !self.begun {
            if self.array()? != MARK {
                return Err("it does not begin as one".to_owned());
            }
            self.begun = true;
        }
        let lengths: [u8; 8] = self.array()?;
        let [key, value] = [0, 4].map(|at| {
            let bytes = [0, 1, 2, 3].map(|byte| lengths[at + byte]);
            u32::from_le_bytes(bytes)
        });
        match key {
            END => return self.end(value).map(|()| None),
            FAILED => {
                let text = self.bytes(value as usize, MAX_TEXT)?;
                return Err(String::from_utf8_lossy(&text).into_owned());
            }
            _ => {}
        }
        let key = self.bytes(key as usize, MAX_KEY_BYTES)?;
        let value = self.bytes(value as usize, MAX_VALUE_BYTES)?;
        for part in [&lengths[..], &key, &value] {
            self.sum.add(part);
        }
        self.pairs += 1;
        Ok(Some((key, value)))
    }

    fn end(&mut self, zero: u32) -> Result<(), String> {
        let pairs = u64::from_le_bytes(self.array()?);
        let sum = u64::from_le_bytes(self.array()?);
        if (zero, pairs, sum) != (0, self.pairs, self.sum.0) {
            return Err("it has other pairs than were sent".to_owned());
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: usize, limit: usize) -> Result<Vec<u8>, String> {
        if bytes > limit {
            return Err("it has a length that no pair has".to_owned());
        }
        let mut read = vec![0; bytes];
        self.read(&mut read)?;
        Ok(read)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        self.read(&mut array)?;
        Ok(array)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("it ends after {} pairs without saying so", self.pairs)
            }
            _ => error.to_string(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]
mod tests {
    use super::*;

    fn sent() -> (Vec<Pair>, Vec<u8>) {
        let pair = |number: u8| (vec![number; usize::from(number)], vec![number; 20]);
        let pairs: Vec<_> = (0..6).map(pair).collect();
        let mut bytes = Vec::new();
        let mut sender = Sender::begin(&mut bytes).unwrap();
        pairs.iter().for_each(|(key, value)| sender.pair(key, value).unwrap());
        assert_eq!(sender.end().unwrap(), 6);
        (pairs, bytes)
    }

    /// Returns all pairs, or the first failure.
    fn received(bytes: &[u8]) -> Result<Vec<Pair>, String> {
        let (mut receiver, mut pairs) = (Receiver::new(bytes), Vec::new());
        while let Some(pair) = receiver.next()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    #[test]
    fn a_stream_that_is_cut_off_is_an_error_wherever_it_is_cut() {
        // Fails if a stream without its end were taken for a short one.
        let (pairs, bytes) = sent();
        assert_eq!(received(&bytes).unwrap(), pairs);
        for cut in 0..bytes.len() {
            assert!(received(&bytes[..cut]).is_err(), "cut at {cut} of {}", bytes.len());
        }
    }

    #[test]
    fn a_stream_with_a_wrong_bit_is_an_error_and_takes_no_memory() {
        // Fails if a bit of a key or value could differ, or if a length were believed.
        let (_, bytes) = sent();
        for bit in 0..8 * bytes.len() {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(received(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_sender_that_fails_says_why() {
        // Fails if the other end were told that something failed and not what.
        let mut bytes = Vec::new();
        let mut sender = Sender::begin(&mut bytes).unwrap();
        sender.pair(b"key", b"value").unwrap();
        sender.fail("the reason").unwrap();
        assert_eq!(received(&bytes).unwrap_err(), "the reason");
    }

    #[test]
    fn the_longest_pair_passes_and_a_longer_one_does_not() {
        // Fails if a pair that a database holds were taken for a length that no pair has.
        for (key, value, passes) in [
            (MAX_KEY_BYTES, MAX_VALUE_BYTES, true),
            (MAX_KEY_BYTES + 1, 0, false),
            (0, MAX_VALUE_BYTES + 1, false),
        ] {
            let pair = (vec![1; key], vec![2; value]);
            let mut bytes = Vec::new();
            let mut sender = Sender::begin(&mut bytes).unwrap();
            sender.pair(&pair.0, &pair.1).unwrap();
            sender.end().unwrap();
            assert!(received(&bytes).is_ok_and(|pairs| pairs == [pair]) == passes, "{key} {value}");
        }
    }

    #[test]
    fn a_long_reason_is_cut_and_not_refused() {
        // Fails if the other end were told of a wrong length instead of what happened.
        for length in [MAX_TEXT, MAX_TEXT + 1] {
            let mut bytes = Vec::new();
            Sender::begin(&mut bytes).unwrap().fail(&"x".repeat(length)).unwrap();
            assert_eq!(received(&bytes).unwrap_err(), "x".repeat(MAX_TEXT));
        }
    }
}
