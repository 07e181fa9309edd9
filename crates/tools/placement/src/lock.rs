//! The lock of a burst buffer.

use std::fs::File;
use std::path::Path;

use file_cache::OpenError;
use types::Shown;

use crate::failure::{self, Failure};

/// Takes the lock of the burst buffer `buffer`, which an agent holds as long as it serves it. Dropping the file gives the lock back.
///
/// Errors: `UNAVAILABLE` if the burst buffer is in use, `CANT_CREATE` if it is not one of ours.
pub fn lock(buffer: &Path) -> Result<File, Failure> {
    file_cache::lock(buffer).map_err(|error| match error {
        OpenError::InUse { .. } => {
            Failure::new(failure::UNAVAILABLE, format!("the burst buffer {} is in use", buffer.shown()))
                .remedy("an agent in use checks itself: forebay status")
        }
        OpenError::Io { path, step, source } => Failure::io(format_args!("{step} {}", path.shown()), &source),
        other => Failure::new(failure::CANT_CREATE, other.to_string()),
    })
}
