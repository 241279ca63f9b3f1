//! Objects as they lie in a segment, and room there that is not used.

use everhash_index::{Form, Result, admit};
use everhash_pmem::{Addr, Media, WORD};

use super::{Judge, Segment};
use crate::reef::layout::{self, KEY_BYTES, Kind, ObjectHead, VALUE_BYTES};

/// The beginning of an object.
pub(super) struct Lengths {
    head: u64,
    /// `None` of room that is not used.
    pub(super) kind: Option<Kind>,
    pub(super) head_words: u64,
    pub(super) key_bytes: u64,
    value_bytes: u64,
    /// Of the whole object.
    pub(super) words: u64,
}

/// A sound object, or sound room that is not used.
pub(super) struct Object {
    /// `None` of that.
    pub(super) kind: Option<Kind>,
    pub(super) key: Vec<u8>,
    /// `None` of a tombstone.
    pub(super) value: Option<Vec<u8>>,
    pub(super) words: u64,
    /// Whether it belongs to an atomic batch.
    pub(super) is_batched: bool,
}

impl<M: Media> Judge<'_, M> {
    /// Returns where the next object begins: checks are bound to places, so that no other words
    /// look like one. Looks at `search` words at most.
    pub(super) fn next_object(
        &self,
        segment: &Segment,
        (from, words): (u64, u64),
        search: &mut u64,
    ) -> Result<u64> {
        for offset in from..words {
            let at = segment.at.plus(offset);
            let Some(lengths) = self.lengths(at, words - offset)? else { continue };
            let Some(left) = search.checked_sub(lengths.words) else { continue };
            *search = left;
            if self.object(at, segment.seal, words - offset)?.is_some() {
                return Ok(offset);
            }
        }
        Ok(words)
    }

    /// Reads the lengths of an object of at most `left` words; `None` if there cannot be one.
    pub(super) fn lengths(&self, at: Addr, left: u64) -> Result<Option<Lengths>> {
        let head = self.pm.load(at)?;
        if let Some(words) = layout::unused_words(head) {
            let room =
                Lengths { head, kind: None, head_words: 1, key_bytes: 0, value_bytes: 0, words };
            return Ok((words <= left).then_some(room));
        }
        let Some(kind) = Kind::of(head) else { return Ok(None) };
        let (lengths, head_words) = match self.form {
            Form::Fixed { key_bytes, value_bytes } => {
                (VALUE_BYTES.set(u64::from(key_bytes), u64::from(value_bytes)), 1)
            }
            Form::Variable if left < ObjectHead::WORDS as u64 => return Ok(None),
            Form::Variable => {
                (self.pm.load(at.plus(ObjectHead::LENGTHS as u64))?, ObjectHead::WORDS as u64)
            }
        };
        let (key_bytes, value_bytes) = (KEY_BYTES.get(lengths), VALUE_BYTES.get(lengths));
        let value_bytes = if kind == Kind::Put { value_bytes } else { 0 };
        let words = layout::object_words(self.form, kind, key_bytes, value_bytes);
        let kind = Some(kind);
        let found = Lengths { head, kind, head_words, key_bytes, value_bytes, words };
        Ok((words <= left).then_some(found))
    }

    /// Reads an object of at most `left` words; `None` if it is damaged.
    pub(super) fn object(&self, at: Addr, seal: u64, left: u64) -> Result<Option<Object>> {
        let Some(lengths) = self.lengths(at, left)? else { return Ok(None) };
        let Lengths { head, kind, head_words, key_bytes, value_bytes, words } = lengths;
        let (mut key, mut value, bound) = (Vec::new(), Vec::new(), layout::bound(seal, at));
        if kind.is_none() {
            let is_sound = layout::unused_head(bound, words) == head;
            let room = Object { kind, key, value: None, words, is_batched: false };
            return Ok(is_sound.then_some(room));
        }
        let key_at = at.plus(head_words);
        self.pm.read_bytes(key_at, key_bytes, &mut key)?;
        self.pm.read_bytes(key_at.plus(key_bytes.div_ceil(WORD)), value_bytes, &mut value)?;
        let check = match self.form {
            Form::Fixed { .. } => {
                let mut behind = vec![0; words as usize - 1];
                self.pm.read_words(key_at, &mut behind)?;
                layout::fixed_head(bound, layout::code_of(head), &behind)
            }
            Form::Variable => layout::variable_head(bound, layout::code_of(head), &key, &value),
        };
        let is_sound =
            check == head && (kind != Some(Kind::Put) || admit(self.form, &key, &value).is_ok());
        let value = (kind == Some(Kind::Put)).then_some(value);
        let is_batched = layout::is_batched(head);
        Ok(is_sound.then_some(Object { kind, key, value, words, is_batched }))
    }
}
