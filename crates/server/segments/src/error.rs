//! Failures of the store.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::key::ObjectKey;

/// Failure of an operation on the store.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The object is longer than the store takes.
    #[error("an object of {bytes} bytes is too large for a segment: at most {most}")]
    TooLarge {
        /// Length of the object in bytes.
        bytes: u64,
        /// Longest object in bytes that the store takes.
        most: u64,
    },
    /// A system call failed.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// Step that failed.
        step: &'static str,
        /// File or directory of the step.
        path: PathBuf,
        /// Failure that the system told.
        source: io::Error,
    },
    /// The bytes of an object are not those that were put.
    #[error("the object {} at byte {} of {}: {}", .0.key, .0.offset, .0.path.display(), .0.reason)]
    Damaged(DamagedObject),
    /// A segment was written by another version of the program, or with other settings than this program takes.
    #[error("the segment {path} has format {found}, this program knows {known}: use the version that wrote it")]
    Format {
        /// File of the segment.
        path: PathBuf,
        /// Format found in the file.
        found: u32,
        /// Format that this program knows.
        known: u32,
    },
}

/// An object whose bytes are not those that were put, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedObject {
    /// Name of the object.
    pub key: ObjectKey,
    /// File of the segment.
    pub path: PathBuf,
    /// Offset of the object's header in the file, in bytes.
    pub offset: u64,
    /// Defect that was found.
    pub reason: &'static str,
}

impl SegmentError {
    /// Returns the number of the error as system calls give it: `EFBIG` for an object that is too large, `EIO` for a damaged
    /// one, `EINVAL` for an unknown format, and otherwise that of the call that failed.
    pub fn errno(&self) -> i32 {
        match self {
            SegmentError::TooLarge { .. } => Errno::FBIG.raw_os_error(),
            SegmentError::Io { source, .. } => source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            SegmentError::Damaged(_) => Errno::IO.raw_os_error(),
            SegmentError::Format { .. } => Errno::INVAL.raw_os_error(),
        }
    }

    /// Returns the error once more, for another caller that waited for the failed step.
    pub(crate) fn again(&self) -> SegmentError {
        match self {
            SegmentError::TooLarge { bytes, most } => SegmentError::TooLarge { bytes: *bytes, most: *most },
            SegmentError::Io { step, path, source } => {
                let source = match source.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(source.kind(), source.to_string()),
                };
                SegmentError::Io { step, path: path.clone(), source }
            }
            SegmentError::Damaged(object) => SegmentError::Damaged(object.clone()),
            SegmentError::Format { path, found, known } => {
                SegmentError::Format { path: path.clone(), found: *found, known: *known }
            }
        }
    }
}

/// Returns the function that names the step and the file of a failed call.
pub(crate) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SegmentError {
    let path = path.to_owned();
    move |source| SegmentError::Io { step, path, source }
}

pub(crate) fn errno(number: Errno) -> io::Error {
    io::Error::from_raw_os_error(number.raw_os_error())
}
