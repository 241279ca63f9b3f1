//! The operations (3.1.4): every write appends one object to the head of its chain.
//!
//! All writes look for the key first: the contract wants to know whether it was there (the paper
//! looks for inserts only).

mod blind;

use std::borrow::Cow;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Lock, Media, WORD};

use super::directory::{Directory, Slot};
use super::layout::{Kind, Link};
use super::logs::Object;
use super::object::Content;
use super::reserve::Purpose;
use super::search::Version;
use super::state::{Area, GuardOf, State, Walsh};

/// How often room is made for a write at most.
///
/// Source: ours; what the first round frees may be what the second needs to free more.
const ROUNDS: u32 = 3;

/// What a write appends.
#[derive(Clone, Copy)]
struct NewVersion<'v> {
    hash: u64,
    kind: Kind,
    content: Content<'v>,
}

/// What a write found: where its key's directory lies, if it has one, what that says, and the
/// newest object of the key.
struct Before<'b, M: Media> {
    slot: Option<Slot<'b, M::Sync>>,
    directory: Directory,
    version: Option<Version>,
}

/// What a write does, once it knows what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step<'v> {
    Keep,
    Put(Cow<'v, [u8]>),
    Remove,
}

/// What is done with a pair of words, each with the value if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WordEdit {
    Insert(u64),
    Put(u64),
    Update(u64),
    Remove,
}

impl WordEdit {
    /// Returns the answer, and what becomes of the key: a new value, or none; or `None` if nothing
    /// does.
    #[inline(always)]
    fn decide(self, is_present: bool) -> (bool, Option<Option<u64>>) {
        match (self, is_present) {
            (WordEdit::Insert(_), true) => (false, None),
            (WordEdit::Insert(value), false) => (true, Some(Some(value))),
            (WordEdit::Put(value), _) => (is_present, Some(Some(value))),
            (WordEdit::Update(value), true) => (true, Some(Some(value))),
            (WordEdit::Remove, true) => (true, Some(None)),
            (WordEdit::Update(_) | WordEdit::Remove, false) => (false, None),
        }
    }
}

impl<M: Media> Walsh<M> {
    /// Lets `decide` see a key's value and say what becomes of it: one step for everybody else.
    pub(super) fn edit<'v, T>(
        &self,
        key: (u64, &[u8]),
        decide: impl FnOnce(Option<&[u8]>) -> Result<(T, Step<'v>)>,
    ) -> Result<T> {
        self.edit_with(key, Some(Vec::new()), decide)
    }

    /// As [`Walsh::edit`], for those who need to know only whether the key is present.
    fn edit_unseen<'v, T>(
        &self,
        key: (u64, &[u8]),
        decide: impl FnOnce(bool) -> (T, Step<'v>),
    ) -> Result<T> {
        self.edit_with(key, None, |present| Ok(decide(present.is_some())))
    }

    /// As [`Walsh::edit`]; without a buffer for it, the value of a present key is empty.
    fn edit_with<'v, T>(
        &self,
        (hash, key): (u64, &[u8]),
        mut buffer: Option<Vec<u8>>,
        decide: impl FnOnce(Option<&[u8]>) -> Result<(T, Step<'v>)>,
    ) -> Result<T> {
        let area = self.area(hash);
        let pm = self.pool.access();
        let state = self.lock(area)?;
        pm.locked(area.number);
        let before = self.before(&pm, area, &state, (hash, key), buffer.as_mut())?;
        let live = before.version.is_some_and(|version| version.is_live());
        let (answer, step) = decide(live.then_some(buffer.as_deref().unwrap_or_default()))?;
        let (kind, value) = match &step {
            Step::Keep => return Ok(answer),
            Step::Remove if !live => return Ok(answer),
            // In a tombstone the place of the value is zero.
            Step::Remove => (Kind::Removed, [].as_slice()),
            Step::Put(value) => (if live { Kind::Replaced } else { Kind::Added }, value.as_ref()),
        };
        let new = NewVersion { hash, kind, content: Content::Bytes { key, value } };
        self.write_and_maintain(&pm, area, state, &new, &before)?;
        Ok(answer)
    }

    /// Looks for a key under the area's lock, and keeps its value if there is a buffer for it.
    fn before(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &State,
        (hash, key): (u64, &[u8]),
        value: Option<&mut Vec<u8>>,
    ) -> Result<Before<'_, M>> {
        let slot = self.slot(area, hash, state.view);
        let directory = slot.map_or_else(Directory::default, Slot::read);
        let version = match value {
            Some(value) => self.search_locked(pm, area, state.view, (hash, key), value),
            None => self.search_key_locked(pm, area, state.view, (hash, key)),
        }?;
        Ok(Before { slot, directory, version })
    }

    /// Does something with a pair of words, in one step for everybody else; returns the answer of
    /// the operation.
    ///
    /// The next operation overlaps with this one only as far as the processor looks ahead: what is
    /// seldom needed is in functions of its own.
    #[inline(always)]
    pub(super) fn edit_word(&self, key: (u64, u64), edit: WordEdit) -> Result<bool> {
        match self.try_edit_word(key, edit) {
            Ok(answer) => Ok(answer),
            Err(error) => self.edit_word_with_room(key, edit, error),
        }
    }

    #[cold]
    fn edit_word_with_room(&self, key: (u64, u64), edit: WordEdit, error: Error) -> Result<bool> {
        match error {
            Error::Full { .. } => self.with_room(|| self.try_edit_word(key, edit)),
            error => Err(error),
        }
    }

    #[inline(always)]
    fn try_edit_word(&self, (hash, key): (u64, u64), edit: WordEdit) -> Result<bool> {
        let area = self.area(hash);
        let pm = self.pool.access();
        let state = self.lock(area)?;
        pm.locked(area.number);
        let view = state.view;
        let slot = self.slot(area, hash, view);
        let directory = slot.map_or_else(Directory::default, Slot::read);
        pm.dram(1);
        let found = match view.is_plain() && !directory.may_hold(hash) {
            true => None,
            false => self.search_word(&pm, area, view, directory, (hash, key))?,
        };
        let is_present = found.is_some_and(|version| version.is_live());
        let (answer, value) = edit.decide(is_present);
        let Some(value) = value else { return Ok(answer) };
        let kind = match value {
            Some(_) if is_present => Kind::Replaced,
            Some(_) => Kind::Added,
            None => Kind::Removed,
        };
        // In a tombstone the place of the value is zero.
        let content = Content::Words([key, value.unwrap_or(0)]);
        let before = Before { slot, directory, version: found };
        self.write_and_maintain(&pm, area, state, &NewVersion { hash, kind, content }, &before)?;
        Ok(answer)
    }

    /// Writes a version, in the room of the area's own garbage if there is no other, and does what
    /// is due then.
    #[inline(always)]
    fn write_and_maintain<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        mut state: GuardOf<'a, M>,
        new: &NewVersion<'_>,
        before: &Before<'_, M>,
    ) -> Result<()> {
        if let Err(error) = self.write(pm, area, &mut state, new, before) {
            self.write_in_garbage(pm, area, &mut state, new, error)?;
        }
        pm.unlocking(area.number);
        if self.needs_maintenance(area, &state) {
            self.maintain_after_write(pm, area, state)?;
        } else {
            drop(state);
            self.help(pm)?;
        }
        self.bound_pending()
    }

    /// Writes a version that found no room, after the area has been collected.
    #[cold]
    fn write_in_garbage(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        new: &NewVersion<'_>,
        error: Error,
    ) -> Result<()> {
        let is_full = matches!(error, Error::Full { .. });
        if !is_full || !self.is_collectable(state) || !self.collect(pm, area, state, false)? {
            return Err(error);
        }
        let before =
            new.content.with_key(|key| self.before(pm, area, state, (new.hash, key), None))?;
        self.write(pm, area, state, new, &before)
    }

    /// Appends a version of a key and makes it the head of its chain.
    #[inline(always)]
    fn write(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        new: &NewVersion<'_>,
        before: &Before<'_, M>,
    ) -> Result<()> {
        let NewVersion { hash, kind, content } = *new;
        let purpose = if kind.is_live() { Purpose::Add } else { Purpose::Remove };
        let head = before.directory.head;
        // A key that is written again and again must not lengthen its chain: the version at the
        // head is passed over.
        let again = before.version.filter(|version| version.at == head);
        let next = again.map_or(head, |version| version.found.link.next);
        let object = Object { hash, link: Link { next, kind }, content };
        let at = self.append(pm, area, state, purpose, &object)?;
        if self.settings.durability == 1 {
            // Readers see it when it is durable, and not before.
            self.secure(pm, state)?;
        }
        self.make_head(area, state, before.slot, hash, at)?;
        let not_durable = state.open.as_ref().map_or(0, |log| log.fill - log.durable_fill) * WORD;
        if not_durable * self.areas.len() as u64 > self.settings.flush_bytes {
            // More than the area's share of what may be lost.
            self.flush(pm, area, state)?;
        }
        state.chained += u64::from(again.is_none());
        state.items = state.items.saturating_add_signed(kind.items());
        if kind.is_live() {
            state.item_bytes += self.objects.words(&content) * WORD;
        }
        if let Some(version) = before.version.filter(Version::is_live) {
            state.item_bytes = state.item_bytes.saturating_sub(version.found.words * WORD);
        }
        Ok(())
    }

    /// Makes an object the head of the newest chain of its hash; `slot` is where that begins, if
    /// its directory is there.
    #[inline(always)]
    pub(super) fn make_head(
        &self,
        area: &Area<M>,
        state: &State,
        slot: Option<Slot<'_, M::Sync>>,
        hash: u64,
        at: Addr,
    ) -> Result<()> {
        if let Some(slot) = slot {
            slot.push(hash, at);
            return Ok(());
        }
        let view = state.view;
        self.blocks.push(&area.sides[view.side()], view.level(), hash, at)
    }

    /// Inserts a pair; here and in the other operations the hash of the key comes with it.
    pub(super) fn insert_bytes(&self, key: (u64, &[u8]), value: &[u8]) -> Result<bool> {
        let put = || Step::Put(Cow::Borrowed(value));
        self.with_room(|| {
            self.edit_unseen(key, |is_there| match is_there {
                true => (false, Step::Keep),
                false => (true, put()),
            })
        })
    }

    pub(super) fn put_bytes(&self, key: (u64, &[u8]), value: &[u8]) -> Result<bool> {
        let put = || Step::Put(Cow::Borrowed(value));
        self.with_room(|| self.edit_unseen(key, |is_there| (is_there, put())))
    }

    pub(super) fn update_bytes(&self, key: (u64, &[u8]), value: &[u8]) -> Result<bool> {
        let put = || Step::Put(Cow::Borrowed(value));
        self.with_room(|| {
            self.edit_unseen(key, |is_there| match is_there {
                true => (true, put()),
                false => (false, Step::Keep),
            })
        })
    }

    pub(super) fn remove_bytes(&self, key: (u64, &[u8])) -> Result<bool> {
        self.with_room(|| self.edit_unseen(key, |is_there| (is_there, Step::Remove)))
    }

    /// Does a write, and again when room was made for it.
    #[inline(always)]
    fn with_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        match write() {
            Err(Error::Full { .. }) => self.write_making_room(write),
            outcome => outcome,
        }
    }

    /// Makes room, and does a write that found none; one thread at a time, so that none takes the
    /// room that another one is making.
    #[cold]
    fn write_making_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        let _one = self.rescue.lock()?;
        let mut outcome = Err(Error::Full { needed: 0 });
        for _ in 0..ROUNDS {
            let any = self.make_room()?;
            outcome = write();
            if !any || !matches!(outcome, Err(Error::Full { .. })) {
                break;
            }
        }
        outcome
    }
}
