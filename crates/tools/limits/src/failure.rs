//! Failure of a command: a sentence and an exit status of sysexits.h.

use std::fmt;

/// Reason why a command ends without its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    /// Exit status of a sweep with missing cells: try again (75).
    pub const INCOMPLETE: u8 = 75;

    /// Creates the failure for wrong command line arguments (64).
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { code: 64, message: message.to_string() }
    }

    /// Creates the failure for an input that cannot be read or understood (66).
    pub fn input(message: impl fmt::Display) -> Failure {
        Failure { code: 66, message: message.to_string() }
    }

    /// Creates the failure for a resource of this machine that does not work (69).
    pub fn unavailable(message: impl fmt::Display) -> Failure {
        Failure { code: 69, message: message.to_string() }
    }

    /// Creates the failure for a defect of this program (70).
    pub fn defect(message: impl fmt::Display) -> Failure {
        Failure { code: 70, message: message.to_string() }
    }

    /// Creates the failure for an output that cannot be written (73).
    pub fn output(message: impl fmt::Display) -> Failure {
        Failure { code: 73, message: message.to_string() }
    }
}

/// Creates the failure of a step (69), with the reason.
pub fn failed(what: impl fmt::Display, error: impl fmt::Display) -> Failure {
    Failure::unavailable(format!("{what}: {error}"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
