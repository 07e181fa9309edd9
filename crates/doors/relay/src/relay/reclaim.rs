//! Reclaim of the kernel's nodes, open files and locks at a server that has forgotten them. docs/adr/0011 lists the
//! steps, and the state after a crash in each.

use std::os::unix::ffi::OsStringExt;

use fuse_protocol::{FileReclaim, LockChange, LockedFile, release};
use transport::{Call, CallError, SessionInstance};
use wire::Message;

use super::{Relay, piece, unexpected};
use crate::deferred::DeferredRequest;
use crate::limits::{ATTACH, LOCKS_CLAIMED_MAX};

fn message(claim: &FileReclaim) -> Message {
    let FileReclaim { node, lookups, identity, hint, open } = claim.clone();
    let (handle, flags) = open.unwrap_or_default();
    let hint = wire::Path::new(hint.into_os_string().into_vec()).unwrap_or_default();
    Message::Reclaim { node, lookups, identity, hint, handle, flags: flags.cast_unsigned() }
}

fn lock(node: u64, change: &LockChange) -> Message {
    Message::ReclaimLock { head: piece(&change.message(node)) }
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
        let (mut claimed, mut lost) = (0, claims.lost.len());
        claims.lost.into_iter().for_each(|held| self.closed(Some(held)));
        // Locked files are claimed first: other nodes wait for their locks, and only for the grace period.
        let mut locked = Vec::new();
        for file in claims.locked {
            match self.claim_locked(&file, interrupted)? {
                true => locked.push(file),
                false => lost += self.lose(&file, interrupted)?,
            }
        }
        let in_time = self.claim(&Message::LocksReclaimed {}, interrupted)?;
        for file in locked {
            match in_time {
                true => claimed += file.opens.len(),
                false => lost += self.lose(&file, interrupted)?,
            }
        }
        for claim in &claims.others {
            if self.claim(&message(claim), interrupted)? {
                claimed += 1;
            } else {
                lost += 1;
                self.closed(claim.open.and_then(|(handle, _)| self.kernel.loses_open(handle)));
            }
        }
        // Not ended by a signal: the server now lets the kernel in, and a caller that does not know that would claim
        // again.
        self.claim(&Message::Reclaimed {}, &|| self.has_ended())?;
        let server = self.client.address();
        tracing::warn!(
            %server,
            claimed,
            lost,
            "the server had forgotten this node: its open files were restored, except the lost ones"
        );
        Ok(())
    }

    /// Claims a file with all its locks. Returns false if any of them cannot be had again.
    fn claim_locked(&self, file: &LockedFile, interrupted: &dyn Fn() -> bool) -> Result<bool, CallError> {
        let locks = file.locks.iter().map(|change| lock(file.node, change));
        for claim in file.opens.iter().map(message).chain(locks) {
            if !self.claim(&claim, interrupted)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives up a file: undoes its claimed opens and locks. Returns the number of its open files.
    fn lose(&self, file: &LockedFile, interrupted: &dyn Fn() -> bool) -> Result<usize, CallError> {
        let unlocks = file.locks.iter().map(|change| lock(file.node, &LockChange { kind: None, ..*change }));
        let handles = file.opens.iter().filter_map(|claim| claim.open);
        let closes = handles.map(|(handle, _)| Message::ReclaimLock { head: piece(&release(file.node, handle)) });
        for undone in unlocks.chain(closes) {
            // Undoing a claim that was never made has no effect.
            self.claim(&undone, interrupted)?;
        }
        let lost = self.kernel.loses_file(file.node);
        let count = lost.len();
        lost.into_iter().for_each(|held| self.closed(Some(held)));
        Ok(count)
    }

    /// Makes one claim. Returns whether it was granted. Errors: `TimedOut` if it may be granted later.
    fn claim(&self, message: &Message, interrupted: &dyn Fn() -> bool) -> Result<bool, CallError> {
        match self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(message) }) {
            Ok(answer) => match answer.message {
                Message::Done {} => Ok(true),
                Message::Unknown {} => Err(CallError::TimedOut),
                other => Err(unexpected(&other)),
            },
            // The next reclaim makes all claims again.
            Err(CallError::Failed { errno, .. }) if passes(errno) => Err(CallError::TimedOut),
            Err(CallError::Failed { .. }) => Ok(false),
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
