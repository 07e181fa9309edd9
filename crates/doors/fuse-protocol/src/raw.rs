//! Interface of a session that passes its requests on unchanged: over a network, to a session like this one.

use crate::{Envelope, Errno, NodeId, Parked};

/// Receiver of the kernel's messages. All calls but [`Raw::init`] come from many threads.
pub trait Raw: Send + Sync + 'static {
    /// Answers the kernel's first message, INIT. Message and answer are whole.
    fn init(&self, message: &[u8]) -> Result<Vec<u8>, Errno>;

    /// Handles a whole request, which is answered through `reply`, now or later. The call may block its thread, as a
    /// handler may.
    fn request(&self, envelope: &Envelope, message: &[u8], reply: Parked);

    /// Handles lookups of a node that the kernel gives back. Must not block.
    fn forget(&self, node: NodeId, count: u64);

    /// Handles a signal to the caller of a request that has not been answered. Must not block.
    fn interrupt(&self, unique: u64);

    /// Returns whether the handler of a request waits until the kernel has written or read pages. Those are requests as
    /// well, so another thread then works in its place. Must not block.
    fn waits_for_kernel(&self, _unique: u64) -> bool {
        false
    }

    /// Ends the session; no call follows.
    fn destroy(&self) {}
}
