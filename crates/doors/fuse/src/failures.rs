//! Failed requests: the kernel hands on an errno alone, so the step that failed is logged.

use std::io;

use agent::Node;
use concurrency::Mutex;
use fuse_protocol::Errno;
use types::{HasErrno, Identity, Shown, names_step};

use crate::door::Door;

/// The last failure that was logged. A program that tries again and again does not fill the log.
#[derive(Default)]
pub(crate) struct LastFailure(Mutex<Option<(Identity, String)>>);

impl LastFailure {
    /// Notes a failure. Returns false if it is the last one once more.
    fn is_new(&self, file: &Identity, error: &str) -> bool {
        let mut last = self.0.lock();
        if last.as_ref().is_some_and(|(before, told)| before == file && told == error) {
            return false;
        }
        *last = Some((file.clone(), error.to_owned()));
        true
    }
}

/// Returns whether programs meet this errno in everyday work.
fn is_expected(errno: Option<i32>) -> bool {
    matches!(
        errno,
        Some(libc::EACCES | libc::EPERM | libc::EINTR | libc::ENOENT | libc::EINVAL | libc::ENXIO | libc::EOPNOTSUPP)
    )
}

impl Door {
    /// Returns a function that converts an error of a request about a file for the kernel, and logs it if it names the
    /// step that failed.
    pub(crate) fn failed<'a>(&'a self, request: &'static str, node: &'a Node) -> impl FnOnce(io::Error) -> Errno + 'a {
        move |error| {
            if names_step(&error) && !is_expected(error.errno()) {
                let text = error.to_string();
                if self.last_failure.is_new(node.identity(), &text) {
                    let path = self.agent.path_of(node).unwrap_or_default();
                    tracing::warn!(request, path = %path.shown(), error = text, "a request failed");
                }
            }
            error.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_again_when_another_came_in_between() {
        let [one, other] = [1, 2].map(|byte| Identity::new(vec![byte]).unwrap());
        let last = LastFailure::default();
        assert!(last.is_new(&one, "full") && !last.is_new(&one, "full"));
        assert!(last.is_new(&one, "broken") && last.is_new(&other, "broken") && last.is_new(&one, "full"));
    }
}
