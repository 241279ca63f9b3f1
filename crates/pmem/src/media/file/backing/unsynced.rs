//! What a failed sync leaves: pages that the page cache shows, that the kernel takes for clean, and
//! that the device does not hold. No later sync writes them, until something is stored to them.
//!
//! So a failed sync leaves a note in the file, for the next one to open it, who writes everything
//! again. The note goes through the page cache and is not synced: it matters only as long as the
//! page cache does.

use std::io;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{Backing, is, is_full, may_write, read_only};
use crate::media::file::system::{Call, perform};
use crate::{Addr, Error, Result, WORD};

/// What is written again by one call.
///
/// Unit: bytes. Source: ours; large enough that the calls cost little beside the copying.
const PIECE: usize = 256 << 10;

/// A note that a failed sync leaves: where, and which word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    at: Addr,
    word: u64,
}

impl Backing {
    /// From here on, a sync that fails stores `word` at `at`.
    pub(crate) fn note_failed_syncs(&self, at: Addr, word: u64) {
        // A poisoned lock would take a panic between two assignments.
        if let Ok(mut note) = self.note.lock() {
            *note = Some(Note { at, word });
        }
    }

    /// Leaves the note of a failed sync. Best effort: where it fails, the file cannot be written.
    ///
    /// By a call and not by a store: a page of a file system that has become read-only ends the
    /// process when it is stored to.
    pub(super) fn leave_note(&self) {
        let Ok(Some(Note { at, word })) = self.note.lock().map(|note| *note) else { return };
        let _ = perform(&*self.plan.system, Call::Note, || {
            may_write(at.byte())?;
            Ok(rustix::io::pwrite(&self.file.file, &word.to_le_bytes(), at.byte())? as u64)
        });
    }

    /// Writes everything that the file holds again, with the content that it has: all its pages
    /// count as changed then. Holes stay holes. Nobody else may store meanwhile.
    pub(crate) fn rewrite(&self) -> Result<()> {
        if !self.plan.writable {
            return Err(read_only());
        }
        self.group.check()?;
        let end = self.mapping.bytes();
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        // Ends: each round goes on behind the one before, and each piece has at least a byte.
        while let Some(data) = self.find(Call::FindData, at)?.filter(|data| *data < end) {
            // A file system that finds a hole where it has just found data knows of none.
            let hole = self.find(Call::FindHole, data)?.filter(|hole| *hole > data);
            let hole = hole.unwrap_or(end).min(end);
            at = data;
            while at < hole {
                let bytes = (hole - at).min(PIECE as u64) as usize;
                at += self.rewrite_piece(at, &mut piece[..bytes])?;
            }
        }
        Ok(())
    }

    /// Writes a piece again, or the beginning of it; returns how many bytes those were.
    fn rewrite_piece(&self, at: u64, piece: &mut [u8]) -> Result<u64> {
        // Not through the mapping: a page that cannot be read is an error here, and not a signal.
        let written = perform(&*self.plan.system, Call::Rewrite, || {
            may_write(at)?;
            let count = rustix::io::pread(&self.file.file, &mut *piece, at)?;
            Ok(rustix::io::pwrite(&self.file.file, &piece[..count], at)? as u64)
        });
        match written {
            Ok(count) if count > 0 => Ok(count),
            Err(error) if is_full(&error) => Err(Error::Full { needed: piece.len() as u64 }),
            failed => {
                let source = failed.err().unwrap_or(io::ErrorKind::UnexpectedEof.into());
                Err(Error::System { doing: "write the file again", source })
            }
        }
    }

    /// Returns where the next data or the next hole begins, from `from` on; `None` if there is no
    /// more of it. Unit: bytes.
    pub(super) fn find(&self, call: Call, from: u64) -> Result<Option<u64>> {
        let target =
            if call == Call::FindData { SeekFrom::Data(from) } else { SeekFrom::Hole(from) };
        let found =
            perform(&*self.plan.system, call, || Ok(rustix::fs::seek(&self.file.file, target)?));
        match found {
            Ok(found) => Ok(Some(found.max(from))),
            Err(error) if is(&error, &[Errno::NXIO]) => Ok(None),
            Err(source) => Err(Error::System { doing: "find what the file holds", source }),
        }
    }
}

const _: () = assert!((PIECE as u64).is_multiple_of(WORD), "whole words are written again");
