//! The operations (3.1.4): every write appends one object to the head of its chain.
//!
//! All writes look for the key first: the contract wants to know whether it was there (the paper
//! looks for inserts only).

mod blind;

use std::borrow::Cow;

use everhash_index::{Error, Result};
use everhash_pmem::{Access, Addr, Lock, Media, WORD};

use super::concurrency::View;
use super::directory::Slot;
use super::layout::{Directory, Kind, Link, Tag};
use super::logs::Object;
use super::object::Content;
use super::reserve::Purpose;
use super::resize::Effort;
use super::search::Version;
use super::state::{Area, GuardOf, State, Walsh};
use crate::common::edit::{self, Edit};

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

impl<M: Media> Before<'_, M> {
    /// Returns whether there is a directory that still says what it said.
    #[inline(always)]
    fn is_current(&self) -> bool {
        self.slot.is_some_and(|slot| slot.read() == self.directory)
    }
}

/// What a write does, once it knows what is there.
pub(super) type Step<'v> = edit::Step<Cow<'v, [u8]>>;

/// Whether room has been made for a write, whose thread then holds `rescue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Usual,
    Made,
    /// No more can be made.
    Last,
}

impl<M: Media> Walsh<M> {
    /// Lets `decide` see a key's value and say what becomes of it: one step for everybody else.
    ///
    /// It is asked once. If there was no room, what it decided is done when there is, provided that
    /// the key still has the value that it saw.
    pub(super) fn edit<'v>(
        &self,
        key: (u64, &[u8]),
        decide: impl FnOnce(Option<&[u8]>) -> Result<Step<'v>>,
    ) -> Result<()> {
        let mut decide = Some(decide);
        let mut decided: Option<(Option<Vec<u8>>, Step<'v>)> = None;
        self.with_room(|room| {
            self.edit_with(room, key, Some(Vec::new()), |present| {
                if let Some(decide) = decide.take() {
                    let step = decide(present)?;
                    decided = Some((present.map(<[u8]>::to_vec), step));
                }
                match &decided {
                    Some((seen, step)) if seen.as_deref() == present => Ok(((), step.clone())),
                    _ => Err(Error::Full { needed: 0 }),
                }
            })
        })
    }

    /// Does something with a pair of any form, without a look at its value; returns the answer.
    pub(super) fn edit_bytes(&self, key: (u64, &[u8]), edit: Edit<&[u8]>) -> Result<bool> {
        self.with_room(|room| {
            self.edit_with(room, key, None, |present| {
                let (answer, step) = edit.decide(present.is_some());
                let step = match step {
                    edit::Step::Keep => Step::Keep,
                    edit::Step::Put(value) => Step::Put(Cow::Borrowed(value)),
                    edit::Step::Remove => Step::Remove,
                };
                Ok((answer, step))
            })
        })
    }

    /// Does what `decide` says of a key; without a buffer for it, the value of a present key is
    /// empty.
    fn edit_with<'v, T>(
        &self,
        room: Room,
        (hash, key): (u64, &[u8]),
        mut buffer: Option<Vec<u8>>,
        decide: impl FnOnce(Option<&[u8]>) -> Result<(T, Step<'v>)>,
    ) -> Result<T> {
        let area = self.area(hash);
        let pm = self.pool.access();
        // As in `try_edit_word`.
        let view = area.view.latest();
        let ahead =
            view.is_plain().then(|| self.before(&pm, area, view, (hash, key), buffer.as_mut()));
        let state = self.lock_to_write(area)?;
        pm.locked(area.number);
        let before = match ahead {
            Some(Ok(before)) if before.is_current() && area.view.shows(view) => before,
            _ => self.before(&pm, area, state.view, (hash, key), buffer.as_mut())?,
        };
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
        self.write_and_maintain(&pm, area, state, (&new, &before), room)?;
        Ok(answer)
    }

    /// Looks for a key, and keeps its value if there is a buffer for it. Without the area's lock
    /// it counts under the conditions of [`Walsh::try_before_word`].
    fn before(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        (hash, key): (u64, &[u8]),
        value: Option<&mut Vec<u8>>,
    ) -> Result<Before<'_, M>> {
        let slot = self.slot(area, hash, view);
        let directory = slot.map_or_else(Directory::default, Slot::read);
        let version = match value {
            Some(value) => self.search_pair(pm, area, view, (hash, key), value),
            None => self.search_key(pm, area, view, (hash, key)),
        }?;
        Ok(Before { slot, directory, version })
    }

    /// Does something with a pair of words, in one step for everybody else; returns the answer of
    /// the operation.
    ///
    /// The next operation overlaps with this one only as far as the processor looks ahead: what is
    /// seldom needed is in functions of its own.
    #[inline(always)]
    pub(super) fn edit_word(&self, key: (u64, u64), edit: Edit<u64>) -> Result<bool> {
        match self.try_edit_word(Room::Usual, key, edit) {
            Err(Error::Full { .. }) => {
                self.write_making_room(|room| self.try_edit_word(room, key, edit))
            }
            outcome => outcome,
        }
    }

    #[inline(always)]
    fn try_edit_word(&self, room: Room, (hash, key): (u64, u64), edit: Edit<u64>) -> Result<bool> {
        let area = self.area(hash);
        let pm = self.pool.access();
        // Before the lock: its exchange waits until what this thread wrote before has left the
        // processor, and what is loaded until then costs nothing.
        let view = area.view.latest();
        let ahead = self.try_before_word(&pm, area, view, (hash, key));
        let state = self.lock_to_write(area)?;
        pm.locked(area.number);
        match ahead {
            Some(before) if before.is_current() && area.view.shows(view) => {
                self.end_edit_word(&pm, area, state, (hash, key), (&before, edit), room)
            }
            _ => self.edit_word_locked(&pm, area, state, (hash, key), edit, room),
        }
    }

    /// Looks for a pair of words without the area's lock; `None` if that takes more than a look at
    /// few objects. What is found counts if view and directory are the same under the lock: the
    /// objects of a chain never change, and a longer one has another head.
    #[inline(always)]
    fn try_before_word(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        view: View,
        (hash, key): (u64, u64),
    ) -> Option<Before<'_, M>> {
        if !view.is_plain() {
            return None;
        }
        let slot = self.slot(area, hash, view)?;
        let directory = slot.read();
        pm.dram(1);
        let start = directory.start(hash);
        let version = match start.is_null() {
            true => None,
            false => self.search_word_ahead(pm, start, key)?,
        };
        Some(Before { slot: Some(slot), directory, version })
    }

    /// Looks for a pair of words under the area's lock, and does something with it.
    #[cold]
    fn edit_word_locked<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        state: GuardOf<'a, M>,
        (hash, key): (u64, u64),
        edit: Edit<u64>,
        room: Room,
    ) -> Result<bool> {
        let slot = self.slot(area, hash, state.view);
        let directory = slot.map_or_else(Directory::default, Slot::read);
        let version = self.search_word(pm, area, state.view, (hash, key))?;
        let before = Before { slot, directory, version };
        self.end_edit_word(pm, area, state, (hash, key), (&before, edit), room)
    }

    /// Does something with a pair of words that was looked for.
    #[inline(always)]
    fn end_edit_word<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        state: GuardOf<'a, M>,
        (hash, key): (u64, u64),
        (before, edit): (&Before<'_, M>, Edit<u64>),
        room: Room,
    ) -> Result<bool> {
        let is_present = before.version.is_some_and(|version| version.is_live());
        let (answer, step) = edit.decide(is_present);
        let (kind, value) = match step {
            edit::Step::Keep => return Ok(answer),
            edit::Step::Put(value) if is_present => (Kind::Replaced, value),
            edit::Step::Put(value) => (Kind::Added, value),
            // In a tombstone the place of the value is zero.
            edit::Step::Remove => (Kind::Removed, 0),
        };
        let new = NewVersion { hash, kind, content: Content::Words([key, value]) };
        self.write_and_maintain(pm, area, state, (&new, before), room)?;
        Ok(answer)
    }

    /// Writes a version and does what is due then.
    ///
    /// # Errors
    /// [`Error::Full`]; everything is as it was then.
    #[inline(always)]
    fn write_and_maintain<'a>(
        &self,
        pm: &Access<'_, M>,
        area: &'a Area<M>,
        mut state: GuardOf<'a, M>,
        (new, before): (&NewVersion<'_>, &Before<'_, M>),
        room: Room,
    ) -> Result<()> {
        if let Err(error) = self.write(pm, area, &mut state, (new, before), Purpose::Write) {
            match (room, error) {
                (Room::Made | Room::Last, Error::Full { .. }) if new.kind == Kind::Removed => {
                    self.remove_in_reserve(pm, area, &mut state, (new, before), room)?;
                }
                (_, error) => return Err(error),
            }
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

    /// Removes a pair where there is no room for a write: in the smallest log, or else its
    /// tombstone is the first object of a collection of the area, if that frees room. If no
    /// collection of any area does, it takes what is left.
    #[cold]
    fn remove_in_reserve(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        (new, before): (&NewVersion<'_>, &Before<'_, M>),
        room: Room,
    ) -> Result<()> {
        // A blind removal has not looked: where nothing is to be removed, it needs no room.
        let look = |state: &State| {
            new.content.with_key(|key| self.before(pm, area, state.view, (new.hash, key), None))
        };
        let looked = match before.version {
            None => Some(look(state)?),
            Some(_) => None,
        };
        let before = looked.as_ref().unwrap_or(before);
        if !before.version.is_some_and(|version| version.is_live()) {
            return Ok(());
        }
        match self.write(pm, area, state, (new, before), Purpose::Spare) {
            Err(Error::Full { .. }) => {}
            outcome => return outcome,
        }
        self.count_anew(pm, area, state)?;
        let is_last = room == Room::Last;
        let collects = self.frees_room(state) && self.begin_to_collect(pm, area, state, is_last)?;
        if !collects && !is_last {
            self.note_short()?;
            return Err(Error::Full { needed: 0 });
        }
        // The collection has new directories.
        let before = look(state)?;
        self.write(pm, area, state, (new, &before), Purpose::Rescue)?;
        match collects {
            // If it finds no room after all, it is ended when there is some.
            true => self.end_to_collect(pm, area, state).map(drop),
            false => Ok(()),
        }
    }

    /// Appends a version of a key and makes it the head of its chain.
    #[inline(always)]
    fn write(
        &self,
        pm: &Access<'_, M>,
        area: &Area<M>,
        state: &mut State,
        (new, before): (&NewVersion<'_>, &Before<'_, M>),
        purpose: Purpose,
    ) -> Result<()> {
        let NewVersion { hash, kind, content } = *new;
        let head = before.directory.head();
        // A key that is written again and again must not lengthen its chain: the version at the
        // head is passed over.
        let again = before.version.filter(|version| version.at == head);
        let next = again.map_or(head, |version| version.found.link.next);
        let object = Object { hash, link: Link { next, kind, tag: Tag::of(hash) }, content };
        let at = self.append(pm, area, state, purpose, &object)?;
        if self.settings.durability == 1 {
            // Readers see it when it is durable, and not before.
            self.secure(pm, state)?;
        }
        let directory = match again {
            Some(_) => before.directory.with_newest(at),
            None => before.directory.with(hash, at),
        };
        self.make_head(area, state, before.slot, directory, (hash, at))?;
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

    /// Makes an object the head of the newest chain of its hash. `slot` is where its directory
    /// lies, if that is there, and `directory` what it says then.
    #[inline(always)]
    pub(super) fn make_head(
        &self,
        area: &Area<M>,
        state: &State,
        slot: Option<Slot<'_, M::Sync>>,
        directory: Directory,
        (hash, at): (u64, Addr),
    ) -> Result<()> {
        if let Some(slot) = slot {
            slot.write(directory);
            return Ok(());
        }
        let view = state.view;
        self.blocks.push(&area.sides[view.side()], view.level(), hash, at)
    }

    /// Does a write, and again when room was made for it.
    #[inline(always)]
    pub(super) fn with_room<T>(&self, mut write: impl FnMut(Room) -> Result<T>) -> Result<T> {
        match write(Room::Usual) {
            Err(Error::Full { .. }) => self.write_making_room(write),
            outcome => outcome,
        }
    }

    /// Makes room, and does a write that found none and changed nothing; one thread at a time, so
    /// that none takes the room that another one is making.
    #[cold]
    fn write_making_room<T>(&self, mut write: impl FnMut(Room) -> Result<T>) -> Result<T> {
        let _one = self.rescue.lock()?;
        let mut outcome = Err(Error::Full { needed: 0 });
        for effort in [Effort::Garbage, Effort::Compact, Effort::Everything] {
            // Little garbage is worth its collection to a removal only.
            if effort == Effort::Everything && !self.take_short()? {
                break;
            }
            if self.make_room(effort)? {
                let is_last = effort == Effort::Everything;
                outcome = write(if is_last { Room::Last } else { Room::Made });
            }
            if !matches!(outcome, Err(Error::Full { .. })) {
                break;
            }
        }
        outcome
    }
}
