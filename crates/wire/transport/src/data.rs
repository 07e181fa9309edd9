//! The data of a request: bytes, or what is sent from where it lies.

use std::io;
use std::os::fd::BorrowedFd;

/// Data that goes with a request, at most `DATA_BYTES_MAX`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// What is sent from where it lies.
    Gathered(&'a dyn Gathered),
}

/// Data in memory to which no reference can be made, as others may write there.
pub trait Gathered {
    /// How many bytes.
    fn bytes(&self) -> usize;
    /// Sends a first part of what is behind `skip` bytes, as sendmsg(2) does, and copies it: whatever is written there afterwards is not
    /// sent. `EFAULT`: it is not there any more; whoever asked is told, and what was sent of the request is none.
    fn send(&self, socket: BorrowedFd<'_>, skip: usize) -> io::Result<usize>;
}

impl Data<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Gathered(data) => data.bytes(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Data<'a> {
        Data::Bytes(bytes)
    }
}
