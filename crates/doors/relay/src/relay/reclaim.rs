//! Reclaim of the kernel's nodes, open files and locks at a server that has forgotten them. docs/adr/0011 lists the
//! steps, and the state after a crash in each.

use std::os::unix::ffi::OsStringExt;

use fuse_protocol::{FileReclaim, LockChange, release};
use peer::{ClaimAnswer, LockedClaims, LostClaim, Reclaim, ReclaimStep};
use transport::{Call, CallError, SessionInstance};
use wire::Message;

use super::{Relay, piece, unexpected};
use crate::deferred::DeferredRequest;
use crate::limits::{ATTACH, LOCKS_CLAIMED_MAX};

/// One claim: a directory or open file, or a lock on a node.
enum Claim {
    File(FileReclaim),
    Lock(u64, LockChange),
}

impl Claim {
    fn message(&self) -> Message {
        match self {
            Claim::File(claim) => {
                let FileReclaim { node, lookups, identity, hint, open } = claim.clone();
                let (handle, flags) = open.unwrap_or_default();
                let hint = wire::Path::new(hint.into_os_string().into_vec()).unwrap_or_default();
                Message::Reclaim { node, lookups, identity, hint, handle, flags: flags.cast_unsigned() }
            }
            Claim::Lock(node, change) => on_kernel(&change.message(*node)),
        }
    }

    /// Returns the request that gives back what was claimed.
    fn undo(&self) -> Message {
        match self {
            Claim::File(claim) => on_kernel(&release(claim.node, self.handle().unwrap_or_default())),
            Claim::Lock(node, change) => Claim::Lock(*node, LockChange { kind: None, ..*change }).message(),
        }
    }

    /// Returns the handle of a claimed open file.
    fn handle(&self) -> Option<u64> {
        match self {
            Claim::File(FileReclaim { open: Some((handle, _)), .. }) => Some(*handle),
            _ => None,
        }
    }
}

fn on_kernel(message: &[u8]) -> Message {
    Message::ReclaimLock { head: piece(message) }
}

/// Returns whether a claim that failed with this error may be granted later, since the server lacks a resource. A
/// problem with one file must not keep the others from being claimed.
fn passes(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

impl Relay {
    /// Claims everything from `memory` and lets the kernel continue. Errors: `TimedOut` also if the server has
    /// crashed again, and the next reclaim starts from the beginning.
    pub(super) fn reclaim(&self, memory: SessionInstance, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        let mut withdrawn = Vec::new();
        // Deferred requests had a meaning only for the former session instance.
        let claims = self.kernel.claims(memory, LOCKS_CLAIMED_MAX, || withdrawn = self.deferred.clear());
        withdrawn.into_iter().for_each(|number| self.open.end(number));
        // Requests that wait continue to wait. They are queued now: if this call is interrupted after the server lets
        // the kernel in, no further reclaim would do it.
        self.waiting.parked().into_iter().for_each(|unique| self.deferred.add(DeferredRequest::Await(unique)));
        let mut lost = claims.lost.len();
        claims.lost.into_iter().for_each(|held| self.closed(Some(held)));
        let locked = claims.locked.into_iter().map(|file| LockedClaims {
            file: file.node,
            opens: file.opens.into_iter().map(Claim::File).collect(),
            locks: file.locks.into_iter().map(|change| Claim::Lock(file.node, change)).collect(),
        });
        let others = claims.others.into_iter().map(Claim::File).collect();
        let mut reclaim = Reclaim::new(locked.collect(), others);
        while let Some(step) = reclaim.select() {
            let answer = match step {
                ReclaimStep::Claim(claim) => self.claim(&claim.message(), interrupted),
                ReclaimStep::Undo(claim) => self.claim(&claim.undo(), interrupted),
                ReclaimStep::LocksClaimed => self.claim(&Message::LocksReclaimed {}, interrupted),
                // Not ended by a signal: the server then lets the kernel in, and a caller that does not know that
                // would claim again.
                ReclaimStep::AllClaimed => self.claim(&Message::Reclaimed {}, &|| self.has_ended()),
            };
            lost += match reclaim.apply(answer?) {
                Some(LostClaim::File(node)) => self.lose(node),
                Some(LostClaim::One(claim)) => {
                    self.closed(claim.handle().and_then(|handle| self.kernel.loses_open(handle)));
                    1
                }
                None => 0,
            };
        }
        let (server, claimed) = (self.client.address(), reclaim.claimed());
        tracing::warn!(
            %server,
            claimed,
            lost,
            "the server had forgotten this node: its open files were restored, except the lost ones"
        );
        Ok(())
    }

    /// Gives up a file whose claims were undone. Returns the number of its open files.
    fn lose(&self, node: u64) -> usize {
        let lost = self.kernel.loses_file(node);
        let count = lost.len();
        lost.into_iter().for_each(|held| self.closed(Some(held)));
        count
    }

    /// Makes one claim. Errors: `TimedOut` if it may be granted later.
    fn claim(&self, message: &Message, interrupted: &dyn Fn() -> bool) -> Result<ClaimAnswer, CallError> {
        match self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(message) }) {
            Ok(answer) => match answer.message {
                Message::Done {} => Ok(ClaimAnswer::Granted),
                Message::Unknown {} => Err(CallError::TimedOut),
                other => Err(unexpected(&other)),
            },
            // The next reclaim makes all claims again.
            Err(CallError::Failed { errno, .. }) if passes(errno) => Err(CallError::TimedOut),
            Err(CallError::Failed { .. }) => Ok(ClaimAnswer::Refused),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S49
    fn a_server_in_want_of_something_is_asked_again_and_what_is_wrong_with_a_file_holds_up_no_other() {
        assert!([libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::EINTR].into_iter().all(passes));
        assert!(![libc::ESTALE, libc::EIO, libc::EBUSY, libc::EACCES, libc::ENOENT].into_iter().any(passes));
    }
}
