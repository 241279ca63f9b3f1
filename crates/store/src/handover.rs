//! A snapshot for another process, as a stream of its pairs.
//!
//! The file is mapped as shared memory and what a snapshot keeps lies in the memory of its process:
//! a child of `fork` cannot read the two together. So the parent reads, and the child is told.

mod stream;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use everhash_index::Cursor;

use crate::error::Shown;
use crate::snapshot::Place;
use crate::{Error, Pair, Result, Snapshot};
use stream::{Receiver, Sender};

/// A snapshot that is about to be handed to a child of this process; see [`Snapshot::hand_over`].
pub struct Handover {
    snapshot: Option<Snapshot>,
    /// The end of the process that has the database.
    parent: UnixStream,
    /// The end of its child.
    child: UnixStream,
}

/// The pairs of a snapshot while they are sent to a child; see [`Handover::send`].
#[derive(Debug)]
#[must_use = "the sending may fail"]
pub struct Sending {
    thread: JoinHandle<Result<u64>>,
    path: Shown,
}

/// The pairs that another process sends, in no order; see [`Handover::receive`] and
/// [`Snapshot::send_to`].
///
/// A pair may come twice, with the same value, as from [`Snapshot::iter`]. The iterator ends with
/// an error unless all pairs have come: [`Error::Incomplete`]. What came before is a part of the
/// snapshot then, and no snapshot.
pub struct ReceivedPairs<R = UnixStream> {
    /// `None`: it has ended.
    receiver: Option<Receiver<R>>,
}

impl Snapshot {
    /// Sends all pairs to `out`, in no order, for [`ReceivedPairs::new`] at the other end; returns
    /// how many were sent. `out` may be a pipe, a socket, a file.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pairs.ehdb");
    /// use everhash_store::{Db, ReceivedPairs};
    ///
    /// let db = Db::create(&path)?;
    /// db.put("tree", "oak")?;
    /// let mut stream = Vec::new();
    /// assert_eq!(db.snapshot()?.send_to(&mut stream)?, 1);
    /// let pairs: Vec<_> = ReceivedPairs::new(&stream[..]).collect::<Result<_, _>>()?;
    /// assert_eq!(pairs, [(b"tree".to_vec(), b"oak".to_vec())]);
    /// assert!(ReceivedPairs::new(&stream[..20]).any(|pair| pair.is_err()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] if `out` fails; its [`Error::io_error`] says how. Those of
    /// [`Snapshot::iter`], of which the other end is told.
    pub fn send_to(&self, out: impl Write) -> Result<u64> {
        let failed = |error| Error::of_system(self.path(), "sending a snapshot", error);
        let mut sender = Sender::begin(out).map_err(failed)?;
        let mut place = Place::Table(Cursor::default());
        while !matches!(place, Place::End) {
            let mut sent = Ok(());
            let step = self.step(&mut place, |stored, value| {
                if let (Some((key, value)), Ok(())) = (self.pair(stored, value), &sent) {
                    sent = sender.pair(key, value);
                }
            });
            if let Err(error) = step {
                // The reason that is returned is the first one.
                let _ = sender.fail(&error.to_string());
                return Err(error);
            }
            sent.map_err(failed)?;
        }
        sender.end().map_err(failed)
    }

    /// Prepares to hand this snapshot to a child of the process, for servers that save from one.
    ///
    /// Call it before the fork. Afterwards the parent calls [`Handover::send`], and goes on as if
    /// nothing were; the child calls [`Handover::receive`], and uses nothing else of the database,
    /// which refuses it with [`Error::Forked`].
    ///
    /// What a child of a process with several threads may do after `fork` is the caller's to know.
    /// Receiving allocates memory, reads from a socket, and takes no lock. Other children that are
    /// forked before this one has received everything hold its connection open: if the parent is
    /// killed meanwhile, this child does not notice before they end or execute another program.
    ///
    /// # Errors
    /// [`Error::File`] if the system gives no socket, and [`Error::Forked`].
    pub fn hand_over(self) -> Result<Handover> {
        self.check_process()?;
        let ends = UnixStream::pair();
        let failed = |error| Error::of_system(self.path(), "making a socket", error);
        let (parent, child) = ends.map_err(failed)?;
        Ok(Handover { snapshot: Some(self), parent, child })
    }
}

/// The end of the process that sends, which is shut down when that is over, be it by a panic.
struct SendingEnd(UnixStream);

impl Drop for SendingEnd {
    fn drop(&mut self) {
        // Whoever else has a copy of this end: the other one sees the end of the stream.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Handover {
    /// Begins to send, in a thread of its own: for the parent. The child has its own copy of the
    /// other end.
    ///
    /// The snapshot is held until everything is sent or the child has ended; a child that does not
    /// read keeps it. A child that ends early makes the sending fail, and nothing else.
    ///
    /// # Errors
    /// [`Error::Forked`] in the child, and [`Error::File`] if the system gives no thread.
    pub fn send(mut self) -> Result<Sending> {
        let snapshot = self.snapshot.take().expect("it is only taken when it is used up");
        if let Err(error) = snapshot.check_process() {
            drop(snapshot);
            return Err(error);
        }
        let path = Shown(snapshot.path().to_owned());
        let Handover { parent, child, .. } = self;
        drop(child);
        let end = SendingEnd(parent);
        let builder = std::thread::Builder::new().name("everhash-sending".into());
        let thread = builder.spawn(move || {
            let end = end;
            snapshot.send_to(&end.0)
        });
        let failed = |error| Error::of_system(&path.0, "starting a thread that sends", error);
        let thread = thread.map_err(failed)?;
        Ok(Sending { thread, path })
    }

    /// Returns the pairs that the parent sends: for the child. In the parent itself they are
    /// incomplete.
    pub fn receive(self) -> ReceivedPairs {
        let Handover { snapshot, parent, child } = self;
        drop((snapshot, parent));
        ReceivedPairs::new(child)
    }
}

impl Sending {
    /// Waits until everything is sent; returns how many pairs that were.
    ///
    /// # Errors
    /// As [`Snapshot::send_to`]: if the child ended before, with a broken pipe or a connection
    /// that was reset.
    pub fn wait(self) -> Result<u64> {
        let ended = self.thread.join();
        let panicked = || io::Error::other("the thread that sends panicked");
        let failed = |_| Error::of_system(&self.path.0, "sending a snapshot", panicked());
        ended.map_err(failed)?
    }

    /// Returns whether [`Sending::wait`] would not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

impl<R: Read> ReceivedPairs<R> {
    /// Returns the pairs that [`Snapshot::send_to`] writes at the other end of `input`.
    pub fn new(input: R) -> ReceivedPairs<R> {
        ReceivedPairs { receiver: Some(Receiver::new(input)) }
    }
}

impl<R: Read> Iterator for ReceivedPairs<R> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        let next = self.receiver.as_mut()?.next();
        if !matches!(next, Ok(Some(_))) {
            self.receiver = None;
        }
        next.map_err(|cause| Error::Incomplete { cause }).transpose()
    }
}

impl core::fmt::Debug for Handover {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl<R> core::fmt::Debug for ReceivedPairs<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReceivedPairs").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::faulty;

    #[test]
    fn a_sender_that_panics_ends_the_stream_whoever_has_a_copy_of_its_end() {
        // Fails if the child waited until all other children of its parent have ended.
        let (_directory, faults, db) = faulty::quiet(false);
        let handover = db.snapshot().unwrap().hand_over().unwrap();
        let of_another_child = handover.parent.try_clone().unwrap();
        let child = handover.child.try_clone().unwrap();
        child.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        *faults.scan_ends.lock().unwrap() = Some(|| panic!("inside the engine"));
        let sending = handover.send().unwrap();
        let error = ReceivedPairs::new(child).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("it ends after 0 pairs"), "{error}");
        assert!(sending.wait().is_err());
        drop(of_another_child);
    }
}
