//! Bytes that are written or sent from where they lie.

use std::io;
use std::os::fd::BorrowedFd;

/// Bytes in memory that others may write at any time, so that no reference to them may exist.
pub trait Gathered: Sync {
    /// Returns the length, bytes.
    fn bytes(&self) -> usize;
    /// Writes the bytes at `offset` of `file`. Returns whether all were written. If not, any part of them may have been:
    /// the memory may be gone.
    fn write(&self, file: BorrowedFd<'_>, offset: u64) -> bool;
    /// Sends a first part of the bytes behind `skip` of them and returns its length, as sendmsg(2) does. The bytes are
    /// copied: later writes to the memory are not sent. Errors: those of sendmsg(2); `EFAULT` if the memory is gone.
    fn send(&self, socket: BorrowedFd<'_>, skip: usize) -> io::Result<usize>;
}
