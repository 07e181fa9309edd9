//! Bounds of the node's side, each with its reason.

use std::time::Duration;

/// Longest time that the release of an open file waits for the server. Afterwards it becomes a deferred request.
pub const RELEASE: Duration = Duration::from_secs(1);

/// Longest time for one deferred request before the others get their turn.
pub const ERRAND: Duration = Duration::from_secs(1);

/// Interval at which a deferred request is repeated that the server did not take, and an interrupt whose request is not
/// yet answered. The death of a waiting caller is noticed then.
pub const ERRAND_POLL: Duration = Duration::from_millis(50);

/// Interval at which an interrupt that arrived before its request is sent again: about one round trip.
pub const INTERRUPT_AGAIN: Duration = Duration::from_millis(5);

/// Longest try to attach at the server before the request that needs it checks its own limit.
pub const ATTACH: Duration = Duration::from_secs(2);

/// Interval at which a thread that waits for another to attach checks whether its caller was killed.
pub const LOOK: Duration = Duration::from_millis(100);

/// Interval at which a node repeats a lock request in the grace period.
pub const GRACE_POLL: Duration = Duration::from_millis(50);

/// Most locks that a node claims, at one round trip each: some seconds. Files with more are lost with the server.
pub const LOCKS_CLAIMED_MAX: usize = 1 << 14;

/// Longest time for the farewell of a node that has unmounted. A server that does not receive it finds out by itself.
pub const DETACH: Duration = Duration::from_secs(2);

/// Most lookups given back with one message: as many as fit into a piece.
pub const FORGETS_PER_MESSAGE: usize = 240;

/// Bytes of a message that are sent as its head if the rest is sent as data: the header and the arguments of a write.
pub const HEAD_BYTES: usize = fuse_protocol::view::WriteView::HEAD_BYTES;

/// Most groups of a caller that are sent: as many as fit into a piece. A caller with more lacks the access that only
/// the rest allows.
pub const GROUPS_MAX: usize = wire::limits::PIECE_BYTES_MAX / 4;

/// Size of the buffer for an answer's data, bytes.
pub const ANSWER_BYTES: usize = wire::limits::DATA_BYTES_MAX as usize;
