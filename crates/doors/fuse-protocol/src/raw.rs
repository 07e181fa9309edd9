//! A session whose requests go to somebody who takes them as they are: over a network, to a session like ours.

use crate::{Envelope, Errno, NodeId, Parked};

/// Takes the kernel's messages. All calls but [`Raw::init`] come from many threads.
pub trait Raw: Send + Sync + 'static {
    /// The kernel's first message, INIT, whole; its answer, whole.
    fn init(&self, message: &[u8]) -> Result<Vec<u8>, Errno>;

    /// A request, whole. It is answered through `reply`, now or later; the call may block its thread, as a handler may.
    fn request(&self, envelope: &Envelope, message: &[u8], reply: Parked);

    /// The kernel gives lookups of a node back. Must not block.
    fn forget(&self, node: NodeId, count: u64);

    /// The caller of a request that is not answered got a signal. Must not block.
    fn interrupt(&self, unique: u64);

    /// Whether the handler of a request waits until the kernel has written or read pages, which are requests as well: then another thread
    /// stands in for it. Must not block.
    fn waits_for_kernel(&self, _unique: u64) -> bool {
        false
    }

    /// The session has ended; no call follows.
    fn destroy(&self) {}
}
