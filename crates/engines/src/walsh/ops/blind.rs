//! The paper's own updates and deletes (3.1.4): they append, and do not look for the key.
//!
//! The caller knows that the key is there. If it is not, an update adds it and a removal changes
//! nothing that a reader sees, but the area's count of live pairs is wrong from then on. An area
//! says so in its info, durably, before the first such write, and its count is not judged any
//! more; a rehash brings it near the truth again, and clearing the table makes it exact.
//!
//! Without a look there is no version to pass over either: a key that is written again and
//! again lengthens its chain until the next rehash.

use everhash_index::{BareTable, Form, Result, Table, admit};
use everhash_pmem::{Media, word_of};

use super::{Before, NewVersion, Room};
use crate::walsh::directory::Slot;
use crate::walsh::layout::{Directory, Kind};
use crate::walsh::object::Content;
use crate::walsh::state::{NewInfo, Walsh};

impl<M: Media> Walsh<M> {
    /// Appends a version of a key, whatever is there.
    fn append_blindly(&self, room: Room, new: &NewVersion<'_>) -> Result<()> {
        let hash = new.hash;
        let area = self.area(hash);
        let pm = self.pool.access();
        let mut state = self.lock_to_write(area)?;
        pm.locked(area.number);
        if !state.info.estimated {
            let new = NewInfo { estimated: true, ..state.info };
            self.write_info(&pm, area, &mut state, &new)?;
        }
        state.is_counted = false;
        let slot = self.slot(area, hash, state.view);
        let directory = slot.map_or_else(Directory::default, Slot::read);
        let before = Before { slot, directory, version: None };
        self.write_and_maintain(&pm, area, state, (new, &before), room)
    }

    fn write_blindly(&self, key: &[u8], kind: Kind, value: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        let content = match self.form {
            // In a tombstone the place of the value is zero.
            Form::WORDS if value.is_empty() => Content::Words([word_of(key), 0]),
            Form::WORDS => Content::Words([word_of(key), word_of(value)]),
            _ => Content::Bytes { key, value },
        };
        let new = NewVersion { hash, kind, content };
        self.with_room(|room| self.append_blindly(room, &new))
    }
}

impl<M: Media> BareTable for Walsh<M> {
    // The paper's insert looks for the key.
    fn insert_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Table::insert(self, key, value).map(drop)
    }

    fn update_blind(&self, key: &[u8], value: &[u8]) -> Result<()> {
        admit(self.form, key, value)?;
        self.write_blindly(key, Kind::Replaced, value)
    }

    fn remove_blind(&self, key: &[u8]) -> Result<()> {
        match self.may_hold(key) {
            true => self.write_blindly(key, Kind::Removed, &[]),
            false => Ok(()),
        }
    }
}
