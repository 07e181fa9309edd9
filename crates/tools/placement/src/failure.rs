//! Why something that a user asked for was refused: a code of sysexits.h, a sentence, and what to do.

use std::fmt;
use std::io;

/// Wrong words on the command line.
pub const USAGE: u8 = 64;
/// An input does not exist or cannot be read.
pub const NO_INPUT: u8 = 66;
/// Something needed is not available: no agent, no FUSE, a mount that is busy.
pub const UNAVAILABLE: u8 = 69;
/// A defect of ours.
pub const SOFTWARE: u8 = 70;
/// Something cannot be created: the burst buffer is read-only or full.
pub const CANT_CREATE: u8 = 73;
/// Try again: data is still not in the global store.
pub const UNDRAINED: u8 = 75;
/// Not permitted.
pub const NO_PERMISSION: u8 = 77;

/// Why a command ends without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    /// Message in one sentence; empty if it was printed already.
    pub message: String,
    /// Advice to the user; may be empty.
    pub remedy: String,
}

impl Failure {
    /// A failure without advice.
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), remedy: String::new() }
    }

    /// The exit status alone: everything has been said.
    pub fn silent(code: u8) -> Failure {
        Failure::new(code, "")
    }

    /// Adds what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = remedy.into();
        self
    }

    /// A failed system call, its code chosen by the errno.
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

/// The error without Rust's `(os error N)`.
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
