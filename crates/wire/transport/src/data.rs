//! The data of a request or an answer: bytes, or what is sent from where it lies.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Data that goes with a request, at most `DATA_BYTES_MAX`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// Bytes in a slice.
    Bytes(&'a [u8]),
    /// Memory of other writers, sent without being copied here first.
    Gathered(&'a dyn Gathered),
}

/// Data in memory that others may write at any time, so that no reference to it may exist.
pub trait Gathered {
    /// Returns the length, bytes.
    fn bytes(&self) -> usize;
    /// Sends a first part of the data behind `skip` bytes and returns its length, as sendmsg(2) does. The bytes are
    /// copied: later writes to the memory are not sent. Errors: `EFAULT` if the memory is gone. The call then fails,
    /// and the server does not execute the partly sent request.
    fn send(&self, socket: BorrowedFd<'_>, skip: usize) -> io::Result<usize>;
}

/// Bytes of a file that go into an answer without being copied here.
#[derive(Debug, Clone)]
pub struct InFile {
    /// Open for reading.
    pub file: Arc<OwnedFd>,
    /// The first of them.
    pub offset: u64,
    /// How many; not 0.
    pub bytes: usize,
}

impl Data<'_> {
    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Gathered(data) => data.bytes(),
        }
    }

    /// Returns whether the data has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        Data::Bytes(bytes)
    }
}
