//! Bounds of the server's side, each with its reason.

use std::time::Duration;

/// Longest time that the server holds a node's request for events before it answers that there are none. An orderly
/// end of the server may have to wait this long, too.
pub const LISTEN: Duration = Duration::from_millis(500);

/// Most notifications that wait to be fetched. A node that is gone fetches none and is soon forgotten. Dropping further
/// ones only leaves its kernel with names that it looks up again by itself.
pub const EVENTS_MAX: usize = 1 << 16;

/// Grace period: time after a server's start in which nodes that held locks may claim them. A running node tries to
/// connect every half second, and needs 5 s if a packet is lost. Locks are the first that it claims.
pub const GRACE: Duration = Duration::from_secs(10);

/// Interval at which removing the record of a node that is gone is tried again. A failing disk there delays every
/// request for a lock.
pub const CROSS_OUT_AGAIN: Duration = Duration::from_secs(1);
