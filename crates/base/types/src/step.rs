//! Errors that name the step which failed, and keep their cause.

use std::error::Error;
use std::fmt;
use std::io;

/// A failed step, as the payload of an [`io::Error`].
#[derive(Debug)]
struct FailedStep {
    /// The step and its cause in words.
    text: String,
    cause: io::Error,
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for FailedStep {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

fn told(text: String, cause: io::Error) -> io::Error {
    io::Error::new(cause.kind(), FailedStep { text, cause })
}

/// Results whose errors are told which step failed.
pub trait Step {
    /// Names the step that an error comes from, as in "write the replica". The error keeps its number ([`HasErrno`]).
    #[must_use]
    fn step(self, step: &str) -> Self;
}

impl<T> Step for io::Result<T> {
    fn step(self, step: &str) -> io::Result<T> {
        self.map_err(|cause| told(format!("{step}: {cause}"), cause))
    }
}

/// Returns an error that somebody else met and has told in words.
pub fn reported(errno: i32, reason: &str) -> io::Error {
    told(reason.to_owned(), io::Error::from_raw_os_error(errno))
}

/// Errors that may have a number.
pub trait HasErrno {
    /// Returns the errno of the error or of its cause.
    fn errno(&self) -> Option<i32>;
}

impl HasErrno for io::Error {
    fn errno(&self) -> Option<i32> {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(found) = cause {
            match found.downcast_ref::<io::Error>() {
                Some(error) if error.raw_os_error().is_some() => return error.raw_os_error(),
                Some(error) => cause = error.get_ref().map(|inner| inner as _),
                None => cause = found.source(),
            }
        }
        None
    }
}

/// Returns whether an error names a step.
pub fn names_step(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<FailedStep>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_each_step_and_keeps_its_errno() {
        let plain = || io::Error::from_raw_os_error(28);
        let told = Err::<(), _>(plain()).step("write the replica").step("stage in").unwrap_err();
        assert_eq!(told.to_string(), format!("stage in: write the replica: {}", plain()));
        assert_eq!((told.errno(), told.kind(), plain().errno()), (Some(28), io::ErrorKind::StorageFull, Some(28)));
        assert!(names_step(&told) && !names_step(&plain()));
        assert_eq!(reported(5, "the medium is worn out").to_string(), "the medium is worn out");
        assert_eq!(io::Error::other("no number").errno(), None);
    }
}
