//! Failures of commands: an exit status of sysexits.h, a sentence, and what to do.

pub use placement::failure::{
    CANT_CREATE, Failure, NO_INPUT, NO_PERMISSION, SOFTWARE, UNAVAILABLE, UNDRAINED, USAGE, reason,
};

/// The command of `run` cannot be executed, as shells say it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` does not exist, as shells say it.
pub const NOT_FOUND: u8 = 127;

/// The exit status of what has ended; a failure is told.
pub fn status(done: Result<u8, Failure>) -> u8 {
    done.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            say!("{failure}");
        }
        failure.code
    })
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

pub fn out_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::new(SOFTWARE, e.to_string()))?;
    out!("{text}");
    Ok(())
}
