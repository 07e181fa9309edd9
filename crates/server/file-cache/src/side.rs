//! Origin of a stage-out's error: the burst buffer or the global store. The operator must repair that one.

use std::fmt;
use std::io;

use crate::cache::errno;

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

/// Returns the errno of an error, of either side, if it has one.
pub(crate) fn code(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| errno_here(error))
}

/// Returns the errno of an error of the burst buffer.
pub(crate) fn errno_here(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref::<Here>()?.0.raw_os_error()
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
