//! The relay's bounds, each with its reason.

use std::time::Duration;

/// How long the server lets a node wait for events before it says that there are none. It is also what an orderly end of
/// the server may have to wait for.
pub const LISTEN: Duration = Duration::from_millis(500);

/// Notifications that wait to be fetched. A node that is gone fetches none, and is forgotten soon; what is dropped beyond
/// this only leaves its kernel with names that it looks up again by themselves.
pub const EVENTS_MAX: usize = 1 << 16;

/// How long the release of an open file waits until the server has heard of it; then it is told behind the kernel's back.
pub const RELEASE: Duration = Duration::from_secs(1);

/// How long one errand may take before the others get their turn.
pub const ERRAND: Duration = Duration::from_secs(1);

/// How often an errand is tried again that the server did not take, and an interrupt is told again whose request is not
/// answered: a caller that is killed meanwhile is noticed then.
pub const ERRAND_POLL: Duration = Duration::from_millis(50);

/// How often an interrupt is sent again that came before its request: one round trip, about.
pub const INTERRUPT_AGAIN: Duration = Duration::from_millis(5);

/// How long a try to begin anew at the server may take, before the request that needs it looks at its own patience.
pub const ATTACH: Duration = Duration::from_secs(2);

/// How often who waits for others to begin anew looks whether its caller was killed.
pub const LOOK: Duration = Duration::from_millis(100);

/// How long after the start of a server the nodes that held locks may claim them. A node that lives tries to connect every half second
/// and needs 5 s where a packet is lost; locks are the first that it claims.
pub const GRACE: Duration = Duration::from_secs(10);

/// How often a node that is gone is tried to be crossed out again: the disk that could not do it holds up who asks for locks.
pub const CROSS_OUT_AGAIN: Duration = Duration::from_secs(1);

/// How often a node asks for a lock within that time.
pub const GRACE_POLL: Duration = Duration::from_millis(50);

/// Locks that a node claims, a round trip each: some seconds. Files with more are lost with the server.
pub const LOCKS_CLAIMED_MAX: usize = 1 << 14;

/// How long the farewell of a node that has unmounted may take; a server that does not hear it finds out by itself.
pub const DETACH: Duration = Duration::from_secs(2);

/// Lookups given back with one message: as many as fit a piece.
pub const FORGETS_PER_MESSAGE: usize = 240;

/// Bytes of a message that go as its head when the rest goes as data: the header and the arguments of a write.
pub const HEAD_BYTES: usize = fuse_protocol::view::WriteView::HEAD_BYTES;

/// Groups of a caller that are told: a piece holds so many. Who has more is refused what only the rest allows.
pub const GROUPS_MAX: usize = wire::limits::PIECE_BYTES_MAX / 4;

/// Bytes of the room for an answer's data.
pub const ANSWER_BYTES: usize = wire::limits::DATA_BYTES_MAX as usize;
