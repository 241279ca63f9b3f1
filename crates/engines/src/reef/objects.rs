//! Objects: a key and a value, or a tombstone, as they lie in a segment.
//!
//! An object is written once and never changed. Its check binds it to its place and to one life of
//! its segment, so that a reader without a lock knows whether what it read was an object.

use everhash_index::{Form, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result};
use everhash_pmem::{Access, Addr, Block, Media, Span, WORD, little_endian_bytes};

use super::layout::{self, FixedHead, KEY_BYTES, Kind, ObjectHead, VALUE_BYTES};
use super::setup::fixed_words;

/// Words of the longest object of a fixed form.
const FIXED: usize = 5;

/// Words of the longest object of variable length that is stored at once.
///
/// Unit: words. Source: ours; those of usual keys and values, in a buffer of a few cache lines.
const AT_ONCE: usize = 32;

/// How long an object is, at least, whose reads are announced: a medium may read each of its pages
/// by itself.
///
/// Unit: words. Source: ours; a page. A shorter one is read in less time than the hint takes.
const LONG: u64 = 512;

/// What a look at an object told of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It is of that key. Unit of its length: words.
    Equal(u64),
    /// It is sound, and of another key.
    Other,
    /// It is damaged, or was no object any more when it was read.
    Unsound,
}

/// The head of an object; its lengths are possible ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The word with the check.
    pub word: u64,
    /// What the object says; `None` of room that is not used.
    pub kind: Option<Kind>,
    /// Length of the key. Unit: bytes.
    pub key_bytes: u64,
    /// Length of the value. Unit: bytes.
    pub value_bytes: u64,
    /// Length of the object. Unit: words.
    pub words: u64,
}

/// The objects of a form.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    form: Form,
}

impl Objects {
    /// Returns the objects of a form.
    pub fn new(form: Form) -> Self {
        Objects { form }
    }

    /// Returns how long an object is. Unit: words.
    #[inline(always)]
    pub fn words(&self, kind: Kind, key: &[u8], value: &[u8]) -> u64 {
        layout::object_words(self.form, kind, key.len() as u64, value.len() as u64)
    }

    /// Stores an object, in a segment with this checksum; `code` says its kind, and whether it
    /// belongs to an atomic batch. A crash leaves any part of it.
    ///
    /// # Errors
    /// If `at` lies outside the medium.
    #[inline(always)]
    pub fn write<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        (kind, code): (Kind, u64),
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let head = self.write_body(pm, (at, seal), (kind, code), key, value)?;
        Ok(pm.store(at, head)?)
    }

    /// As [`Objects::write`], but for the first word, which it returns.
    #[inline(always)]
    pub fn write_body<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        (kind, code): (Kind, u64),
        key: &[u8],
        value: &[u8],
    ) -> Result<u64> {
        let bound = layout::bound(seal, at);
        if let Form::Fixed { .. } = self.form {
            let mut words = [0; FIXED];
            let mut count = FixedHead::WORDS;
            for chunk in key.as_chunks().0.iter().chain(value.as_chunks().0) {
                words[count] = u64::from_le_bytes(*chunk);
                count += 1;
            }
            pm.write_words(at.plus(FixedHead::WORDS as u64), &words[FixedHead::WORDS..count])?;
            return Ok(layout::fixed_head(bound, code, &words[FixedHead::WORDS..count]));
        }
        let lengths = VALUE_BYTES.set(KEY_BYTES.set(0, key.len() as u64), value.len() as u64);
        let check = layout::variable_head(bound, code, key, value);
        let words = self.words(kind, key, value) as usize;
        let behind_check = at.plus(ObjectHead::LENGTHS as u64);
        if words <= AT_ONCE {
            let mut object = [0; AT_ONCE];
            object[ObjectHead::LENGTHS] = lengths;
            let (key_words, value_words) =
                object[ObjectHead::WORDS..].split_at_mut(key.len().div_ceil(8));
            pack(key, key_words);
            pack(value, value_words);
            pm.write_words(behind_check, &object[ObjectHead::LENGTHS..words])?;
            return Ok(check);
        }
        pm.store(behind_check, lengths)?;
        let key_at = at.plus(ObjectHead::WORDS as u64);
        pm.write_bytes(key_at, key)?;
        pm.write_bytes(key_at.plus(key.len().div_ceil(8) as u64), value)?;
        Ok(check)
    }

    /// Reads the head of an object; `None` if it cannot be one.
    ///
    /// # Errors
    /// If `at` lies outside the medium.
    #[inline(always)]
    pub fn head<M: Media>(&self, pm: &Access<'_, M>, at: Addr) -> Result<Option<Head>> {
        if let Form::Fixed { .. } = self.form {
            let word = pm.load(at)?;
            let (key, value) = fixed_words(self.form);
            return Ok(Kind::of(word).map(|kind| self.headed(word, kind, 8 * key, 8 * value)));
        }
        let block = pm.block::<{ ObjectHead::WORDS }>(at)?;
        Ok(self.variable(block.load(ObjectHead::CHECK), block.load(ObjectHead::LENGTHS)))
    }

    /// Returns the head that these words of an object of variable length are.
    #[inline(always)]
    fn variable(&self, word: u64, lengths: u64) -> Option<Head> {
        let (key, value) = (KEY_BYTES.get(lengths) as usize, VALUE_BYTES.get(lengths) as usize);
        let kind = Kind::of(word).filter(|_| key <= MAX_KEY_BYTES && value <= MAX_VALUE_BYTES)?;
        Some(self.headed(word, kind, key, value))
    }

    #[inline(always)]
    fn headed(&self, word: u64, kind: Kind, key_bytes: usize, value_bytes: usize) -> Head {
        let value_bytes = if kind == Kind::Put { value_bytes as u64 } else { 0 };
        let key_bytes = key_bytes as u64;
        let words = layout::object_words(self.form, kind, key_bytes, value_bytes);
        Head { word, kind: Some(kind), key_bytes, value_bytes, words }
    }

    /// Reads a whole object: replaces `key` and `value`. `None` if it is damaged, or none any more.
    ///
    /// # Errors
    /// If it lies outside the medium.
    pub fn read<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<Head>> {
        key.clear();
        value.clear();
        let Some(head) = self.head(pm, at)? else { return Ok(None) };
        pm.read_bytes(at.plus(self.head_words()), head.key_bytes, key)?;
        let value_at = at.plus(self.head_words() + head.key_bytes.div_ceil(WORD));
        pm.read_bytes(value_at, head.value_bytes, value)?;
        let bound = layout::bound(seal, at);
        let check = match self.form {
            Form::Fixed { .. } => {
                let mut words = [0; FIXED];
                let chunks = key.as_chunks().0.iter().chain(value.as_chunks().0);
                let count = chunks.zip(&mut words).map(|(chunk, word)| {
                    *word = u64::from_le_bytes(*chunk);
                });
                let count = count.count();
                layout::fixed_head(bound, layout::code_of(head.word), &words[..count])
            }
            Form::Variable => layout::variable_head(bound, layout::code_of(head.word), key, value),
        };
        Ok((check == head.word).then_some(head))
    }

    /// Returns the head of the object, or of the room that is not used, with which bytes of a
    /// segment begin; `None` if it cannot be one.
    #[inline(always)]
    pub fn head_in(&self, bytes: &[u8]) -> Option<Head> {
        let (words, _) = bytes.as_chunks();
        let word = u64::from_le_bytes(*words.get(ObjectHead::CHECK)?);
        if let Some(words) = layout::unused_words(word) {
            return Some(Head { word, kind: None, key_bytes: 0, value_bytes: 0, words });
        }
        if let Form::Fixed { .. } = self.form {
            let (key, value) = fixed_words(self.form);
            return Kind::of(word).map(|kind| self.headed(word, kind, 8 * key, 8 * value));
        }
        self.variable(word, u64::from_le_bytes(*words.get(ObjectHead::LENGTHS)?))
    }

    /// Returns the key of the object with which bytes of a segment begin, and which has this head,
    /// an empty one of room that is not used; `None` if it is damaged.
    #[inline(always)]
    pub fn key_in<'b>(
        &self,
        bytes: &'b [u8],
        head: &Head,
        (at, seal): (Addr, u64),
    ) -> Option<&'b [u8]> {
        let bytes = bytes.get(..(head.words * WORD) as usize)?;
        let (bound, code) = (layout::bound(seal, at), layout::code_of(head.word));
        if head.kind.is_none() {
            let is_sound = layout::unused_head(bound, head.words) == head.word;
            return is_sound.then_some(&[]);
        }
        let (_, body) = bytes.split_at((self.head_words() * WORD) as usize);
        let (key, rest) = body.split_at_checked(head.key_bytes as usize)?;
        let check = match self.form {
            Form::Fixed { .. } => {
                let mut words = [0; FIXED];
                let pieces = body.as_chunks().0;
                let words = words.get_mut(..pieces.len())?;
                words.iter_mut().zip(pieces).for_each(|(word, piece)| {
                    *word = u64::from_le_bytes(*piece);
                });
                layout::fixed_head(bound, code, words)
            }
            Form::Variable => {
                let padding = key.len().next_multiple_of(8) - key.len();
                let value = rest.get(padding..)?.get(..head.value_bytes as usize)?;
                layout::variable_head(bound, code, key, value)
            }
        };
        (check == head.word).then_some(key)
    }

    /// Returns the key and the value of the object with which bytes begin: it has this head, and is
    /// sound.
    #[inline(always)]
    pub fn held<'b>(&self, bytes: &'b [u8], head: &Head) -> (&'b [u8], &'b [u8]) {
        let (_, body) = bytes.split_at((self.head_words() * WORD) as usize);
        let value_at = head.key_bytes.next_multiple_of(WORD) as usize;
        (&body[..head.key_bytes as usize], &body[value_at..][..head.value_bytes as usize])
    }

    /// Looks whether the pair at `at` is of `key`, and reads its value if `value` is wanted.
    /// Without it, the value of an equal key is not looked at. What `value` is otherwise says
    /// nothing.
    ///
    /// # Errors
    /// If it lies outside the medium.
    #[inline(always)]
    pub fn look<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        key: &[u8],
        mut value: Option<&mut Vec<u8>>,
    ) -> Result<Look> {
        if let Form::Fixed { .. } = self.form {
            return self.look_fixed(pm, (at, seal), key, value);
        }
        let Some(head) = self.head(pm, at)? else { return Ok(Look::Unsound) };
        let is_alike = head.kind == Some(Kind::Put) && head.key_bytes == key.len() as u64;
        if is_alike {
            let is_it = match value.as_deref_mut() {
                Some(value) => {
                    head.words <= AT_ONCE as u64
                        && self.read_short(pm, (at, seal), &head, key, value)?
                }
                None => equals(pm, at.plus(ObjectHead::WORDS as u64), key)?,
            };
            if is_it {
                return Ok(Look::Equal(head.words));
            }
        }
        if head.words > LONG {
            pm.media().will_read_each(core::iter::once(Span::new(at, head.words)));
        }
        // One in a million, or long: all of it is read, so that damage is not passed over.
        let (mut found_key, mut found_value) = (Vec::new(), Vec::new());
        let found_value = value.unwrap_or(&mut found_value);
        Ok(match self.read(pm, (at, seal), &mut found_key, found_value)? {
            Some(Head { kind: Some(Kind::Put), words, .. }) if found_key == key => {
                Look::Equal(words)
            }
            Some(Head { kind: Some(Kind::Put), .. }) => Look::Other,
            _ => Look::Unsound,
        })
    }

    /// Reads the value of an object whose key may be this one; returns whether it is, and the
    /// object sound.
    #[inline(always)]
    fn read_short<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        head: &Head,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut words = [0; AT_ONCE];
        let words = &mut words[..head.words as usize - ObjectHead::WORDS];
        pm.read_words(at.plus(ObjectHead::WORDS as u64), words)?;
        let (found_key, found_value) =
            little_endian_bytes(words).split_at(key.len().next_multiple_of(8));
        let found_value = &found_value[..head.value_bytes as usize];
        let (bound, code) = (layout::bound(seal, at), layout::code_of(head.word));
        let is_it = found_key[..key.len()] == *key
            && layout::variable_head(bound, code, key, found_value) == head.word;
        if is_it {
            value.clear();
            value.extend_from_slice(found_value);
        }
        Ok(is_it)
    }

    #[inline(always)]
    fn look_fixed<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        key: &[u8],
        value: Option<&mut Vec<u8>>,
    ) -> Result<Look> {
        let (key_words, value_words) = fixed_words(self.form);
        let count = 1 + key_words + value_words;
        let mut words = [0; FIXED];
        pm.read_words(at, &mut words[..count])?;
        let bound = layout::bound(seal, at);
        let is_put = Kind::of(words[0]) == Some(Kind::Put);
        let code = layout::code_of(words[0]);
        if !is_put || layout::fixed_head(bound, code, &words[1..count]) != words[0] {
            return Ok(Look::Unsound);
        }
        let pairs = words[1..].iter().zip(key.as_chunks().0);
        let mut differs = 0;
        pairs.for_each(|(word, chunk)| differs |= word ^ u64::from_le_bytes(*chunk));
        if differs != 0 {
            return Ok(Look::Other);
        }
        if let Some(value) = value {
            value.clear();
            words[1 + key_words..count]
                .iter()
                .for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
        }
        Ok(Look::Equal(count as u64))
    }

    /// Returns the value of a pair of words at `at` if it is sound and of `key`.
    #[inline(always)]
    pub fn word_of<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        key: u64,
    ) -> Option<u64> {
        let ([found, value], is_sound) = pair_in(&pm.try_block::<3>(at)?, seal);
        (found == key && is_sound).then_some(value)
    }

    /// As [`Objects::look`] for pairs of words; returns the value beside.
    #[inline(always)]
    pub fn look_word<M: Media>(
        &self,
        pm: &Access<'_, M>,
        (at, seal): (Addr, u64),
        key: u64,
    ) -> Result<(Look, u64)> {
        Ok(match pair_in(&pm.block::<3>(at)?, seal) {
            (_, false) => (Look::Unsound, 0),
            ([found, value], true) if found == key => (Look::Equal(3), value),
            ([_, value], true) => (Look::Other, value),
        })
    }

    fn head_words(&self) -> u64 {
        match self.form {
            Form::Fixed { .. } => FixedHead::WORDS as u64,
            Form::Variable => ObjectHead::WORDS as u64,
        }
    }
}

/// Returns the pair of words that lies in a block, and whether that is a sound object with a pair.
#[inline(always)]
fn pair_in<B: Block<3>>(block: &B, seal: u64) -> ([u64; 2], bool) {
    let [head, key, value] = [0, 1, 2].map(|index| block.load_relaxed(index));
    let (bound, code) = (layout::bound(seal, block.start()), layout::code_of(head));
    let is_put = Kind::of(head) == Some(Kind::Put);
    ([key, value], is_put && layout::fixed_head(bound, code, &[key, value]) == head)
}

/// Packs bytes into words; the rest of the last one stays as it is.
#[inline(always)]
fn pack(bytes: &[u8], words: &mut [u64]) {
    let (whole, rest) = bytes.as_chunks();
    words.iter_mut().zip(whole).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    if !rest.is_empty() {
        words[whole.len()] = everhash_pmem::word_of(rest);
    }
}

/// Returns whether these bytes lie at `at`.
#[inline(always)]
fn equals<M: Media>(pm: &Access<'_, M>, at: Addr, bytes: &[u8]) -> Result<bool> {
    let mut buffer = [0; 8];
    for (number, part) in bytes.chunks(8 * buffer.len()).enumerate() {
        let words = &mut buffer[..part.len().div_ceil(8)];
        pm.read_words(at.plus(8 * number as u64), words)?;
        let (whole, rest) = part.as_chunks();
        let mut differs = 0;
        for (word, chunk) in words.iter().zip(whole) {
            differs |= word ^ u64::from_le_bytes(*chunk);
        }
        if let [word] = words[whole.len()..] {
            // Only the bytes of the key: no check covers those that fill up its last word.
            let filled = u64::MAX >> (8 * (8 - rest.len()));
            differs |= (word ^ everhash_pmem::word_of(rest)) & filled;
        }
        if differs != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
