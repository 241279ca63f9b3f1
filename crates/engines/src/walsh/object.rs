//! Objects (3.1.2, 3.1.6): what one write leaves in an object log, and how it is read.
//!
//! An object never changes once it can be reached. Each is bound to its place by a check: sixteen
//! bits in the link word of all, and 64 bits over key and value of those of variable length.

use everhash_index::{Error, Form, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Block, Media, word_of};
use xxhash_rust::xxh3::Xxh3;

use super::layout::{self, Link, ObjectHead, Tag, WordObject, mix};
use super::setup::object_head_words;

/// The longest object of a fixed form: link, two words of key, two of value. Unit: words.
const MOST_FIXED_WORDS: usize = 5;

/// How the objects of a pool are read and written.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    form: Form,
    seed: u64,
    head_words: usize,
    /// Words behind each object.
    seal_words: u64,
}

/// An object as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// What its first word says.
    pub link: Link,
    /// Its length, the seal behind it included. Unit: words.
    pub words: u64,
}

/// The pair of an object.
#[derive(Clone, Copy, Debug)]
pub enum Content<'c> {
    /// Of a pool of words.
    Words([u64; 2]),
    /// Of any form.
    Bytes {
        /// The key.
        key: &'c [u8],
        /// The value; of a tombstone it is empty.
        value: &'c [u8],
    },
}

impl Content<'_> {
    /// Returns whether the key is that of another pair of the pool.
    #[inline(always)]
    pub fn has_key_of(&self, other: &Content<'_>) -> bool {
        match (self, other) {
            (Content::Words([key, _]), Content::Words([other, _])) => key == other,
            _ => self.with_key(|key| other.with_key(|other| key == other)),
        }
    }

    /// Shows the key as bytes.
    pub fn with_key<T>(&self, show: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Content::Words([key, _]) => show(&key.to_le_bytes()),
            Content::Bytes { key, .. } => show(key),
        }
    }
}

/// The object of a pair of words, as it lies on the medium: nobody has looked at its check.
#[derive(Clone, Copy)]
pub struct WordPair {
    /// Its first word.
    link: u64,
    /// Its key.
    pub key: u64,
    /// Its value; of a tombstone zero.
    pub value: u64,
}

impl WordPair {
    /// Returns where the next object of its chain lies, if the link is sound, or [`Addr::NULL`].
    #[inline(always)]
    pub fn next(&self) -> Addr {
        Link::next_of(self.link)
    }
}

/// The two lengths of an object of variable length.
#[derive(Clone, Copy)]
struct Lengths {
    key: usize,
    value: usize,
}

impl Lengths {
    fn word(self) -> u64 {
        (self.value as u64) << 32 | self.key as u64
    }

    fn of(word: u64) -> Option<Lengths> {
        let lengths = Lengths { key: word as u32 as usize, value: (word >> 32) as usize };
        (lengths.key <= MAX_KEY_BYTES && lengths.value <= MAX_VALUE_BYTES).then_some(lengths)
    }

    fn words(self) -> u64 {
        (ObjectHead::WORDS + self.key.div_ceil(8) + self.value.div_ceil(8)) as u64
    }
}

/// Returns whether an object of variable length, whose key is as long as `key`, has that key;
/// `there` gets the key that is there.
#[inline(always)]
fn has_key<M: Media>(
    pm: &Access<'_, M>,
    at: Addr,
    key: &[u8],
    there: &mut Vec<u8>,
) -> Result<bool> {
    there.clear();
    pm.read_bytes(at.plus(ObjectHead::WORDS as u64), key.len() as u64, there)?;
    Ok(there == key)
}

fn damaged(at: Addr) -> Error {
    Error::Corrupt { at: at.byte(), broken: "the check of an object matches" }
}

impl Objects {
    /// Makes the reader of a pool's objects.
    pub fn new(form: Form, seed: u64, durability: u64) -> Objects {
        let seal_words = layout::seal_words(durability);
        Objects { form, seed, head_words: object_head_words(form) as usize, seal_words }
    }

    /// Returns how long the object of a pair is, the seal behind it included. Unit: words.
    #[inline(always)]
    pub fn words(&self, content: &Content<'_>) -> u64 {
        let words = match (self.form, content) {
            (Form::Variable, Content::Bytes { key, value }) => {
                Lengths { key: key.len(), value: value.len() }.words()
            }
            _ => self.head_words as u64,
        };
        words + self.seal_words
    }

    /// Returns the seal of the object that was written at `at`, in the log whose head has checksum
    /// `log`.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn seal<M: Media>(&self, pm: &Access<'_, M>, at: Addr, log: u64) -> Result<u64> {
        let mut words = [0; MOST_FIXED_WORDS];
        let words = &mut words[..self.head_words];
        pm.read_words(at, words)?;
        Ok(layout::seal_object(log, at, words))
    }

    /// Writes the seal behind an object of `words` words, if there is one.
    ///
    /// # Errors
    /// Those of the medium.
    #[inline]
    pub fn write_seal<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        words: u64,
        log: u64,
    ) -> Result<()> {
        if self.seal_words > 0 {
            pm.store(at.plus(words - 1), self.seal(pm, at, log)?)?;
        }
        Ok(())
    }

    /// Returns whether the seal behind an object of `words` words matches.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn is_sealed<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        words: u64,
        log: u64,
    ) -> Result<bool> {
        Ok(pm.load(at.plus(words - 1))? == self.seal(pm, at, log)?)
    }

    /// Returns the shortest object. Unit: words.
    pub fn least_words(&self) -> u64 {
        self.head_words as u64 + self.seal_words
    }

    /// Writes an object. A crash may leave any part of it: nothing leads to it yet.
    ///
    /// In a fixed form the words of an empty value are zero.
    ///
    /// # Errors
    /// Those of the medium.
    #[inline(always)]
    pub fn write<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        link: Link,
        content: &Content<'_>,
    ) -> everhash_pmem::Result<()> {
        match content {
            Content::Words(pair) => self.write_word(pm, at, link, pair),
            Content::Bytes { key, value } if self.form == Form::Variable => {
                self.write_variable(pm, at, link, key, value)
            }
            Content::Bytes { key, value } => self.write_fixed(pm, at, link, key, value),
        }
    }

    #[inline(always)]
    fn write_word<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        link: Link,
        pair: &[u64; 2],
    ) -> everhash_pmem::Result<()> {
        let object = pm.block::<{ WordObject::WORDS }>(at)?;
        object.store(WordObject::LINK, link.encode(self.bound(at, pair)));
        object.store(WordObject::KEY, pair[0]);
        object.store(WordObject::VALUE, pair[1]);
        Ok(())
    }

    fn write_fixed<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        link: Link,
        key: &[u8],
        value: &[u8],
    ) -> everhash_pmem::Result<()> {
        let mut words = [0; MOST_FIXED_WORDS];
        let parts = key.chunks_exact(8).chain(value.chunks_exact(8));
        for (word, part) in words[1..].iter_mut().zip(parts) {
            *word = word_of(part);
        }
        let words = &mut words[..self.head_words];
        words[0] = link.encode(self.bound(at, &words[1..]));
        pm.write_words(at, words)
    }

    fn write_variable<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        link: Link,
        key: &[u8],
        value: &[u8],
    ) -> everhash_pmem::Result<()> {
        let lengths = Lengths { key: key.len(), value: value.len() };
        let mut head = [0; ObjectHead::WORDS];
        head[ObjectHead::LENGTHS] = lengths.word();
        head[ObjectHead::CHECKSUM] = self.checksum(at, lengths, key, value);
        head[ObjectHead::LINK] = link.encode(self.bound(at, &head[1..]));
        pm.write_words(at, &head)?;
        let key_at = at.plus(ObjectHead::WORDS as u64);
        pm.write_bytes(key_at, key)?;
        pm.write_bytes(key_at.plus(key.len().div_ceil(8) as u64), value)
    }

    /// Reads an object's link, and says whether the object is of the key with that hash. If it is,
    /// `value` gets its value.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the object is damaged and may be of that key, or if it is none:
    /// a reader without a lock may come too late.
    #[inline]
    pub fn probe<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        (hash, key): (u64, &[u8]),
        value: &mut Vec<u8>,
    ) -> Result<(Found, bool)> {
        if self.form == Form::Variable {
            return self.probe_variable(pm, at, (hash, key), value);
        }
        let mut words = [0; MOST_FIXED_WORDS];
        let words = &mut words[..self.head_words];
        pm.read_words(at, words)?;
        let link =
            Link::decode(words[0], self.bound(at, &words[1..])).ok_or_else(|| damaged(at))?;
        let found = Found { link, words: words.len() as u64 + self.seal_words };
        let key_words = key.len() / 8;
        let equal = key.chunks_exact(8).zip(&words[1..]).all(|(part, word)| word_of(part) == *word);
        if equal {
            value.clear();
            let rest = &words[1 + key_words..];
            rest.iter().for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
        }
        Ok((found, equal))
    }

    /// Reads the object of a pair of words, without a look at its check; `None` if it would not lie
    /// inside the medium: a reader without a lock may come too late.
    #[inline(always)]
    pub fn try_read_word<M: Media>(&self, pm: &Access<'_, M>, at: Addr) -> Option<WordPair> {
        let object = pm.try_block::<{ WordObject::WORDS }>(at)?;
        // Ordered by the load of the head that leads here, and by the look at the view behind.
        Some(WordPair {
            link: object.load_relaxed(WordObject::LINK),
            key: object.load_relaxed(WordObject::KEY),
            value: object.load_relaxed(WordObject::VALUE),
        })
    }

    /// As [`Objects::try_read_word`], with what its link says; also `None` if its check does not
    /// match.
    #[inline(always)]
    pub fn try_open_word<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
    ) -> Option<(Link, WordPair)> {
        let pair = self.try_read_word(pm, at)?;
        let link = Link::decode(pair.link, self.bound(at, &[pair.key, pair.value]))?;
        Some((link, pair))
    }

    /// Returns how long the object of a pair of words is, the seal behind it included. Unit: words.
    #[inline(always)]
    pub fn pair_words(&self) -> u64 {
        WordObject::WORDS as u64 + self.seal_words
    }

    /// Reads the object of a pair of words.
    ///
    /// # Errors
    /// As [`Objects::probe`].
    #[inline(always)]
    pub fn read_word<M: Media>(&self, pm: &Access<'_, M>, at: Addr) -> Result<(Found, WordPair)> {
        let (link, pair) = self.try_open_word(pm, at).ok_or_else(|| damaged(at))?;
        Ok((Found { link, words: self.pair_words() }, pair))
    }

    /// As [`Objects::probe`] for a pair of words, without slices.
    ///
    /// # Errors
    /// As [`Objects::probe`].
    #[inline(always)]
    pub fn probe_word<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        key: u64,
        value: &mut u64,
    ) -> Result<(Found, bool)> {
        let (found, pair) = self.read_word(pm, at)?;
        if pair.key == key {
            *value = pair.value;
        }
        Ok((found, pair.key == key))
    }

    /// As [`Objects::probe`], without a look at the value; `key_there` is a buffer.
    ///
    /// A damaged value is not noticed.
    ///
    /// # Errors
    /// As [`Objects::probe`].
    #[inline]
    pub fn probe_key<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        (hash, key): (u64, &[u8]),
        key_there: &mut Vec<u8>,
    ) -> Result<(Found, bool)> {
        if self.form != Form::Variable {
            return self.probe(pm, at, (hash, key), key_there);
        }
        let (found, lengths, checksum) = self.head(pm, at)?;
        if found.link.tag != Tag::of(hash) {
            return Ok((found, false));
        }
        if lengths.key == key.len() && has_key(pm, at, key, key_there)? {
            return Ok((found, true));
        }
        self.verify(pm, at, lengths, checksum)?;
        Ok((found, false))
    }

    fn probe_variable<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        (hash, key): (u64, &[u8]),
        value: &mut Vec<u8>,
    ) -> Result<(Found, bool)> {
        let (found, lengths, checksum) = self.head(pm, at)?;
        if found.link.tag != Tag::of(hash) {
            return Ok((found, false));
        }
        if lengths.key != key.len() || !has_key(pm, at, key, value)? {
            self.verify(pm, at, lengths, checksum)?;
            return Ok((found, false));
        }
        value.clear();
        let value_at = at.plus((ObjectHead::WORDS + lengths.key.div_ceil(8)) as u64);
        pm.read_bytes(value_at, lengths.value as u64, value)?;
        if self.checksum(at, lengths, key, value) != checksum {
            return Err(damaged(at));
        }
        Ok((found, true))
    }

    /// Demands that the checksum of an object matches whose tag is that of another key: if its own
    /// key is damaged, it may be the newest object of that other one.
    #[cold]
    fn verify<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        lengths: Lengths,
        checksum: u64,
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.read_pair(pm, at, lengths, checksum, (&mut key, &mut value))
    }

    /// Reads the key and the value behind a head.
    fn read_pair<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        lengths: Lengths,
        checksum: u64,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<()> {
        let key_at = at.plus(ObjectHead::WORDS as u64);
        pm.read_bytes(key_at, lengths.key as u64, key)?;
        let value_at = key_at.plus(lengths.key.div_ceil(8) as u64);
        pm.read_bytes(value_at, lengths.value as u64, value)?;
        if self.checksum(at, lengths, key, value) != checksum {
            return Err(damaged(at));
        }
        Ok(())
    }

    /// Reads an object with its key and its value.
    ///
    /// # Errors
    /// As [`Objects::probe`].
    pub fn read<M: Media>(
        &self,
        pm: &Access<'_, M>,
        at: Addr,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Found> {
        key.clear();
        value.clear();
        if let Form::Fixed { key_bytes, .. } = self.form {
            let mut words = [0; MOST_FIXED_WORDS];
            let words = &mut words[..self.head_words];
            pm.read_words(at, words)?;
            let bound = self.bound(at, &words[1..]);
            let link = Link::decode(words[0], bound).ok_or_else(|| damaged(at))?;
            let (key_part, value_part) = words[1..].split_at(key_bytes as usize / 8);
            key_part.iter().for_each(|word| key.extend_from_slice(&word.to_le_bytes()));
            value_part.iter().for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
            return Ok(Found { link, words: words.len() as u64 + self.seal_words });
        }
        let (found, lengths, checksum) = self.head(pm, at)?;
        self.read_pair(pm, at, lengths, checksum, (key, value))?;
        Ok(found)
    }

    fn head<M: Media>(&self, pm: &Access<'_, M>, at: Addr) -> Result<(Found, Lengths, u64)> {
        let mut head = [0; ObjectHead::WORDS];
        pm.read_words(at, &mut head)?;
        let bound = self.bound(at, &head[1..]);
        let link = Link::decode(head[ObjectHead::LINK], bound).ok_or_else(|| damaged(at))?;
        let lengths = Lengths::of(head[ObjectHead::LENGTHS]).ok_or_else(|| damaged(at))?;
        let found = Found { link, words: lengths.words() + self.seal_words };
        Ok((found, lengths, head[ObjectHead::CHECKSUM]))
    }

    /// Returns what the check of a link covers beside the link: the place and the words behind.
    #[inline(always)]
    fn bound(&self, at: Addr, words: &[u64]) -> u64 {
        words.iter().fold(mix(self.seed, at.byte()), |bound, word| mix(bound, *word))
    }

    fn checksum(&self, at: Addr, lengths: Lengths, key: &[u8], value: &[u8]) -> u64 {
        let mut hasher = Xxh3::with_seed(mix(mix(self.seed, at.byte()), lengths.word()));
        hasher.update(key);
        hasher.update(value);
        hasher.digest()
    }
}

#[cfg(test)]
mod tests {
    use everhash_pmem::{Image, Region, Std};

    use super::super::layout::Kind;
    use super::*;

    #[test]
    fn every_flipped_bit_of_an_object_is_noticed() {
        // Fails if a byte that influences an answer is outside the check. Sixteen bits let one
        // flip in 65,536 pass: with these words none does.
        let at = Addr::new(256);
        let link = Link { next: Addr::new(128), kind: Kind::Added, tag: Tag::of(1 << 13) };
        for (form, key, value) in [
            (Form::WORDS, b"a key wi".to_vec(), b"th value".to_vec()),
            (Form::DOUBLE_WORDS, vec![3; 16], vec![4; 16]),
            (Form::Variable, b"a key".to_vec(), b"and a longer value".to_vec()),
        ] {
            let region = Region::new(Image::<Std>::new(4096, 4096));
            let (pm, objects) = (region.access(), Objects::new(form, 5, 0));
            let content = Content::Bytes { key: &key, value: &value };
            objects.write(&pm, at, link, &content).unwrap();
            let mut found = (Vec::new(), Vec::new());
            let read = objects.read(&pm, at, &mut found.0, &mut found.1).unwrap();
            assert_eq!((read.link, &found.0, &found.1), (link, &key, &value));
            assert_eq!(read.words, objects.words(&content));
            for bit in 0..read.words * 64 {
                let word = at.plus(bit / 64);
                let before = pm.load(word).unwrap();
                pm.store(word, before ^ 1 << (bit % 64)).unwrap();
                let read = objects.read(&pm, at, &mut found.0, &mut found.1);
                // Behind the last byte of a string nothing is read.
                let same = form == Form::Variable && found == (key.clone(), value.clone());
                assert!(read.is_err() || same, "{form}, bit {bit}");
                pm.store(word, before).unwrap();
            }
        }
    }
}
