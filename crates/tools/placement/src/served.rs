//! The note in a burst buffer of the directory that it serves.

use std::fs;
use std::path::{Path, PathBuf};

use durable::{Durability, replace};

use crate::place::Place;

/// The file in a burst buffer that says which directory it serves.
const DIRECTORY: &str = "directory";

/// Notes the directory of a place in its burst buffer, durably, if another one or none is noted. A failure is logged.
///
/// The note is a hint for `forebay recover`: the file cache knows the directory by its identity.
pub fn remember_directory(place: &Place) {
    if directory_of(&place.burst_buffer).as_ref() == Some(&place.dir) {
        return;
    }
    let name = place.dir.as_os_str().as_encoded_bytes();
    if let Err(error) = replace(&place.burst_buffer.join(DIRECTORY), name, Durability::SyncedName, 0o600) {
        tracing::warn!("cannot note the directory of the burst buffer: {error}");
    }
}

/// Returns the directory that is noted in a burst buffer; `None` if there is no note.
pub fn directory_of(burst_buffer: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let bytes = fs::read(burst_buffer.join(DIRECTORY)).ok().filter(|bytes| !bytes.is_empty())?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}
