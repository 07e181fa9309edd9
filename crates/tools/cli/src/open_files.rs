//! The limit of open files: all that is allowed for the agent, the caller's own for the command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that was in force before [`raise`].
#[derive(Debug, Clone, Copy)]
pub struct Before(Rlimit);

/// Raises the soft limit to the hard one; a failure leaves it as it is.
pub fn raise() -> Before {
    let before = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    Before(before)
}

impl Before {
    /// Puts the limit back, for a program that is about to be executed: some break when it is huge.
    pub fn restore(&self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
