//! Failures of commands: an exit status of sysexits.h, a sentence, and what to do.

use std::fmt;
use std::io;

/// Wrong arguments on the command line.
pub const USAGE: u8 = 64;
/// An input does not exist or cannot be read.
pub const NO_INPUT: u8 = 66;
/// Something needed is not available: no agent, no FUSE, a mount that is busy.
pub const UNAVAILABLE: u8 = 69;
/// A defect of Forebay.
pub const SOFTWARE: u8 = 70;
/// Something cannot be created: the burst buffer is read-only or full.
pub const CANT_CREATE: u8 = 73;
/// Try again: data is still not in the global store.
pub const UNDRAINED: u8 = 75;
/// Not permitted.
pub const NO_PERMISSION: u8 = 77;
/// The command of `run` cannot be executed, as shells say it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` does not exist, as shells say it.
pub const NOT_FOUND: u8 = 127;

/// Failure of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit status.
    pub code: u8,
    /// Description of the failure, one sentence; empty if it has been printed.
    pub message: String,
    /// Remedy; may be empty.
    pub remedy: String,
}

impl Failure {
    /// Creates a failure without a remedy.
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), remedy: String::new() }
    }

    /// Creates a failure that only sets the exit status: everything has been printed.
    pub fn silent(code: u8) -> Failure {
        Failure::new(code, "")
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = remedy.into();
        self
    }

    /// Creates a failure from a failed system call; its errno decides the exit status.
    pub fn io(step: impl fmt::Display, error: &io::Error) -> Failure {
        let code = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => NO_INPUT,
            io::ErrorKind::PermissionDenied => NO_PERMISSION,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull => CANT_CREATE,
            _ => UNAVAILABLE,
        };
        Failure::new(code, format!("cannot {step}: {}", reason(error)))
    }
}

/// Returns the exit status of a finished command; prints the failure, if any.
pub fn status(done: Result<u8, Failure>) -> u8 {
    done.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            say!("{failure}");
        }
        failure.code
    })
}

/// Returns the error's text without Rust's `(os error N)`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forebay: {}", self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "\n  {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Writes a line to stderr. A closed stderr is no reason to stop: the exit status still tells.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
/// Writes a line to stdout. A closed pipe (`| head`) is no error.
macro_rules! out {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}
pub(crate) use {out, say};
