//! What the kernel has of a server that has forgotten it, claimed again: docs/adr/0011 has the steps, and what a death after each leaves.

use transport::{Call, CallError};
use wire::Message;

use super::{Relay, unexpected};
use crate::held::Claim;
use crate::limits::ATTACH;

fn message(claim: &Claim) -> Message {
    let Claim { node, lookups, identity, hint, open } = claim.clone();
    let (handle, flags) = open.unwrap_or_default();
    Message::Reclaim { node, lookups, identity, hint, handle, flags: flags.cast_unsigned() }
}

/// Whether a claim that failed so may be granted later: the server is in want of something. What is wrong with one file is no reason to
/// keep the others from being claimed.
fn passes(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

impl Relay {
    /// Claims everything and lets the kernel ask again; `TimedOut` also where the server has died again, and the next begins anew.
    pub(super) fn reclaim(&self, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        let mut withdrawn = Vec::new();
        // Whatever was to be told meant something to the former memory alone.
        let (claims, locked) = self.held.claims(|| withdrawn = self.errands.clear());
        withdrawn.into_iter().for_each(|number| self.open.end(number));
        let (mut claimed, mut lost) = (0, locked.len());
        locked.into_iter().for_each(|held| self.closed(Some(held)));
        for claim in &claims {
            match self.claim(&message(claim), interrupted) {
                Ok(()) => claimed += 1,
                // Not what may pass: who asks next claims all of it again.
                Err(CallError::Failed { errno, .. }) if passes(errno) => return Err(CallError::TimedOut),
                Err(CallError::Failed { .. }) => {
                    lost += 1;
                    self.closed(claim.open.and_then(|(handle, _)| self.held.remove(handle)));
                }
                Err(error) => return Err(error),
            }
        }
        self.claim(&Message::Reclaimed {}, interrupted)?;
        let server = self.client.address();
        tracing::warn!(%server, claimed, lost, "the server had forgotten this node: what was open is open again, but for what is lost");
        Ok(())
    }

    fn claim(&self, message: &Message, interrupted: &dyn Fn() -> bool) -> Result<(), CallError> {
        match self.client.call(Call { within: Some(ATTACH), interrupted, ..Call::new(message) })?.message {
            Message::Done {} => Ok(()),
            Message::Unknown {} => Err(CallError::TimedOut),
            other => Err(unexpected(&other)),
        }
    }
}
