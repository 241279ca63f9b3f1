//! Lifetime hints for a file (`F_SET_RW_HINT`), for which there is no safe wrapper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The command of `fcntl` that sets the hint of an inode. Source: Linux, `uapi/linux/fcntl.h`.
const F_SET_RW_HINT: i32 = 1024 + 12;

unsafe extern "C" {
    fn fcntl(file: i32, command: i32, ...) -> i32;
}

/// Tells the kernel how long the data of `file` lives: 2 short, 3 medium, 4 long, 5 extreme.
pub(crate) fn set_lifetime(file: BorrowedFd<'_>, lifetime: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed; the command reads one u64 through the pointer
    // and keeps it no longer than the call.
    let result = unsafe { fcntl(file.as_raw_fd(), F_SET_RW_HINT, core::ptr::from_ref(&lifetime)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
