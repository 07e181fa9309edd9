//! For whom a thread works: where the data is behind a server, a program that dies must not wait for that.

use std::rc::Rc;

use fuse_protocol::Request;

use crate::door::Door;

/// The kernel's bit of SIGKILL in a set of signals. Whatever signal ends a process, it finds this one pending.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// While it lives, waits of this thread for a server end when the caller dies.
pub struct Working(());

impl Door {
    /// This thread works for the caller of a request; nothing to do where no server is waited for.
    pub(crate) fn work_for(&self, req: &Request) -> Option<Working> {
        if !self.agent.cache().is_shared() {
            return None;
        }
        let (interrupted, thread) = (req.interruption(), req.pid);
        // A signal that the program handles must not fail a write, which no plain file system lets happen.
        agent::set_interruption(Some(Rc::new(move || interrupted() && is_dying(thread))));
        Some(Working(()))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        agent::set_interruption(None);
    }
}

/// Whether a thread of this machine has been killed; true for one that is gone or that we cannot see.
pub fn is_dying(thread: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    [pending("SigPnd:"), pending("ShdPnd:")].into_iter().flatten().any(|set| set & SIGKILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_lives_is_not_dying_and_one_that_is_gone_is() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
    }
}
