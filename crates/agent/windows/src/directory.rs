//! Directories in which windows may lie.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::place::make;

/// Whether users other than the owner and root may replace files in a directory.
pub(crate) fn is_open_to_others(dir: &Metadata) -> bool {
    dir.mode() & 0o022 != 0 && dir.mode() & 0o1000 == 0
}

/// Whether this is a directory of our user in which other users cannot create or replace files.
pub(crate) fn is_ours_alone(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0
}

/// Creates a directory for windows if it is missing, and checks it as [`fits`] does.
pub fn provide(dir: &Path) -> io::Result<Metadata> {
    match make(dir, 0o711) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fits(dir),
    }
}

/// Checks a directory in which windows of this user may lie, and returns its metadata. Errors: `PermissionDenied` if
/// another user owns it or others may replace files in it; `NotADirectory`; those of `stat`.
pub fn fits(dir: &Path) -> io::Result<Metadata> {
    let meta = fs::metadata(dir)?;
    let us = rustix::process::geteuid().as_raw();
    if !meta.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no directory"));
    }
    let others = match meta.uid() {
        other if other != us && other != 0 => format!("it belongs to user {other}"),
        _ if is_open_to_others(&meta) => format!("others may write there (mode {:o})", meta.mode() & 0o7777),
        _ => return Ok(meta),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, others))
}
