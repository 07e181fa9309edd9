//! Conversions between the messages of the wire and the types of the data store.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use data_store::{NewTime, Residency};
use wire::Message;

/// Returns a path as a hint; a path that is too long is left out.
pub(crate) fn hint_of(path: &Path) -> wire::Path {
    wire::Path::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Logs an answer that does not fit its request, and returns the error for it.
pub(crate) fn unexpected(answer: &Message) -> io::Error {
    tracing::error!(answer = answer.name(), "the server gave an answer to another question");
    io::Error::from_raw_os_error(libc::EPROTO)
}

/// Returns the residency of a number on the wire.
pub(crate) fn residency(number: u8) -> Residency {
    match number {
        1 => Residency::Fetching,
        2 => Residency::Clean,
        3 => Residency::Dirty,
        4 => Residency::Queued,
        5 => Residency::Draining,
        6 => Residency::Conflict,
        7 => Residency::Failed,
        _ => Residency::Absent,
    }
}

/// Returns a time to set in the form in which it is sent.
pub(crate) fn new_time(time: Option<NewTime>) -> wire::TimeChange {
    match time {
        None => wire::TimeChange::Keep,
        Some(NewTime::Now) => wire::TimeChange::Now,
        Some(NewTime::At(at)) => wire::TimeChange::At(at),
    }
}
