//! The data of a request or an answer: bytes, or what is sent from where it lies.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use types::Gathered;

/// Data that goes with a request, at most `DATA_BYTES_MAX`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// Bytes in a slice.
    Bytes(&'a [u8]),
    /// Memory of other writers, sent without being copied here first.
    Gathered(&'a dyn Gathered),
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
