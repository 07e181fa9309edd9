//! Errors of both sides, the burst buffer and the global store: their origin, and what they say.

use std::fmt;
use std::io;
use types::HasErrno;

/// An error of the burst buffer. All other errors are of the global store.
#[derive(Debug)]
struct Here(io::Error);

impl fmt::Display for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Here {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Marks an error as the burst buffer's.
pub(crate) fn here(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Here(error))
}

/// Returns the errno of an error that is the burst buffer's.
pub(crate) fn errno_here(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref::<Here>()?.0.errno()
}

/// Fails with an errno.
pub(crate) fn os<T>(code: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(code))
}

pub(crate) fn errno(error: &io::Error) -> i32 {
    error.errno().unwrap_or(libc::EIO)
}

pub(crate) fn clone_error(error: &io::Error) -> io::Error {
    let copy = io::Error::from_raw_os_error(errno(error));
    if errno_here(error).is_some() { here(copy) } else { copy }
}

/// Returns whether an error says that the burst buffer has no room, so the file goes through.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Returns whether an error may come from a file system that takes no writes any more, including the first errors
/// after it found damage.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::EROFS | libc::EIO)) || is_damage(error)
}

/// Returns whether an error says that a file system found damage in itself. Writes may work nevertheless.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::EUCLEAN | libc::EBADMSG))
}

/// The reason of a failed stage-out, for status and commands.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    side: &'static str,
    errno: i32,
    /// The reason, with its origin.
    pub(crate) reason: String,
}

impl Trouble {
    pub(crate) fn of(error: &io::Error) -> Trouble {
        let side = if errno_here(error).is_some() { "the burst buffer" } else { "the global store" };
        Trouble { side, errno: errno(error), reason: format!("{side}: {error}") }
    }

    /// Returns advice, if more can be said than that the reason must be repaired.
    pub(crate) fn remedy(&self) -> Option<String> {
        let full = matches!(self.errno, libc::ENOSPC | libc::EDQUOT);
        full.then(|| format!("make room in {}, or have its quota raised; it is tried again by itself", self.side))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_which_it_is_known_whose_it_is_may_be_a_refusal_as_well() {
        let of = |errno| here(io::Error::from_raw_os_error(errno));
        assert!([libc::EROFS, libc::EIO, libc::EUCLEAN, libc::EBADMSG].map(of).iter().all(is_refusal));
        assert!(![of(libc::ENOSPC), io::Error::other("something else")].iter().any(is_refusal));
    }
}
