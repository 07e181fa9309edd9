//! Conversions between the messages of the wire and the types of the file cache.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use types::HasErrno;

use data_store::{Overlay, Residency, Stuck};
use wire::{Code, Message, Text};

pub(crate) fn path(bytes: &wire::Path) -> &Path {
    Path::new(OsStr::from_bytes(bytes.as_slice()))
}

/// Converts a path that is shown to people or used as a hint. A path that is too long is left out.
fn told(path: &Path) -> wire::Path {
    wire::Path::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Returns the number of a residency on the wire: its position in the file cache's own list.
pub(crate) fn residency(state: Residency) -> u8 {
    match state {
        Residency::Absent => 0,
        Residency::Fetching => 1,
        Residency::Clean => 2,
        Residency::Dirty => 3,
        Residency::Queued => 4,
        Residency::Draining => 5,
        Residency::Conflict => 6,
        Residency::Failed => 7,
    }
}

pub(crate) fn overlay(staged_count: u64, overlay: Option<Overlay>) -> Message {
    let Overlay { ahead, size, blocks, mtime, ctime, below } = overlay.unwrap_or_default();
    // For a file that is not ahead, the field `mtime` carries the change time of the global copy.
    let mtime = if ahead { mtime } else { below.unwrap_or_default() };
    Message::Overlay { staged_count, known: ahead, size, blocks, mtime, ctime }
}

pub(crate) fn stuck(stuck: &Stuck) -> Message {
    Message::Stuck {
        identity: stuck.identity.clone(),
        hint: told(&stuck.path_hint),
        state: residency(stuck.state),
        orphaned: stuck.orphaned,
        code: Code::from_errno(stuck.errno),
        reason: Text::cut(stuck.reason.as_str()),
        replica: told(&stuck.replica),
    }
}

pub(crate) fn failed(error: &io::Error) -> Message {
    let errno = match (error.errno(), error.kind()) {
        (Some(errno), _) => errno,
        (None, io::ErrorKind::NotFound) => libc::ENOENT,
        (None, io::ErrorKind::InvalidInput) => libc::EINVAL,
        (None, _) => libc::EIO,
    };
    Message::failed(errno, error.to_string())
}
