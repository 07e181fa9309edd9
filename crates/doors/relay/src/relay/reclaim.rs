//! What the kernel has of a server that has forgotten it, claimed again: docs/adr/0011 has the steps, and what a death after each leaves.

use fuse_protocol::{release, set_lock};
use transport::{Call, CallError, SessionInstance};
use wire::Message;

use super::{Relay, piece, unexpected};
use crate::errands::DeferredRequest;
use crate::held::{FileReclaim, LockedFile};
use crate::limits::ATTACH;
use crate::locked::LockChange;

fn message(claim: &FileReclaim) -> Message {
    let FileReclaim { node, lookups, identity, hint, open } = claim.clone();
    let (handle, flags) = open.unwrap_or_default();
    Message::Reclaim { node, lookups, identity, hint, handle, flags: flags.cast_unsigned() }
}

fn lock(node: u64, change: &LockChange) -> Message {
    Message::ReclaimLock { head: piece(&set_lock(node, change.handle, &change.args())) }
}

/// Whether a claim that failed so may be granted later: the server is in want of something. What is wrong with one file is no reason to
/// keep the others from being claimed.
fn passes(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

impl Relay {
    /// Claims everything from `memory` and lets the kernel ask again; `TimedOut` also where the server has died again, and the next begins anew.
    pub(super) fn reclaim(&self, memory: SessionInstance, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        let mut withdrawn = Vec::new();
        // Whatever was to be told meant something to the former memory alone.
        let claims = self.held.claims(memory, || withdrawn = self.errands.clear());
        withdrawn.into_iter().for_each(|number| self.open.end(number));
        // They wait on, also where this is broken off after the server opened its door: it forgets nothing then, and nobody would claim again.
        self.waiting.parked().into_iter().for_each(|unique| self.errands.add(DeferredRequest::Await(unique)));
        let (mut claimed, mut lost) = (0, claims.lost.len());
        claims.lost.into_iter().for_each(|held| self.closed(Some(held)));
        // First: other nodes wait for it, and not for ever.
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
                self.closed(claim.open.and_then(|(handle, _)| self.held.remove(handle)));
            }
        }
        // Not broken off by a signal: the server opens its door, and who does not know that would claim again.
        self.claim(&Message::Reclaimed {}, &|| self.has_ended())?;
        let server = self.client.address();
        tracing::warn!(%server, claimed, lost, "the server had forgotten this node: what was open is open again, but for what is lost");
        Ok(())
    }

    /// A file with what is locked of it; false: not all of it can be had again.
    fn claim_locked(&self, file: &LockedFile, interrupted: &dyn Fn() -> bool) -> Result<bool, CallError> {
        let locks = file.locks.iter().map(|change| lock(file.node, change));
        for claim in file.opens.iter().map(message).chain(locks) {
            if !self.claim(&claim, interrupted)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nothing of a file is open or locked any more, whatever was claimed of it. How many open files that were.
    fn lose(&self, file: &LockedFile, interrupted: &dyn Fn() -> bool) -> Result<usize, CallError> {
        let unlocks = file.locks.iter().map(|change| lock(file.node, &LockChange { kind: None, ..*change }));
        let handles = file.opens.iter().filter_map(|claim| claim.open);
        let closes = handles.map(|(handle, _)| Message::ReclaimLock { head: piece(&release(file.node, handle)) });
        for undone in unlocks.chain(closes) {
            // What is not there is undone.
            self.claim(&undone, interrupted)?;
        }
        let lost = self.held.lose(file.node);
        let count = lost.len();
        lost.into_iter().for_each(|held| self.closed(Some(held)));
        Ok(count)
    }

    /// Whether it is granted.
    fn claim(&self, message: &Message, interrupted: &dyn Fn() -> bool) -> Result<bool, CallError> {
        match self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(message) }) {
            Ok(answer) => match answer.message {
                Message::Done {} => Ok(true),
                Message::Unknown {} => Err(CallError::TimedOut),
                other => Err(unexpected(&other)),
            },
            // Not what may pass: who asks next claims all of it again.
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
