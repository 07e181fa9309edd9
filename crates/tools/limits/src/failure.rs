//! How the commands fail: a sentence and a code of sysexits.h.

use std::fmt;

/// Why a command ends without its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit status.
    pub code: u8,
    /// What is wrong and what to do.
    pub message: String,
}

impl Failure {
    /// Exit status of a sweep with holes: try again (75).
    pub const INCOMPLETE: u8 = 75;

    /// Wrong words on the command line (64).
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: 64, message: message.into() }
    }

    /// An input that cannot be read or understood (66).
    pub fn input(message: impl Into<String>) -> Failure {
        Failure { code: 66, message: message.into() }
    }

    /// Something on this machine that does not work (69).
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure { code: 69, message: message.into() }
    }

    /// A defect of ours (70).
    pub fn defect(message: impl Into<String>) -> Failure {
        Failure { code: 70, message: message.into() }
    }

    /// An output that cannot be written (73).
    pub fn output(message: impl Into<String>) -> Failure {
        Failure { code: 73, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
