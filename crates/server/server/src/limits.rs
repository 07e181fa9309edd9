//! Bounds of the server, each with its reason.

use std::time::Duration;

/// Most open handles of one client: more open files than a busy node's programs have.
pub const HANDLES_MAX: usize = 1 << 18;

/// Most jobs of one client at once: each is a thread. A client that drains asks for one file after the other.
pub const JOBS_MAX: usize = 64;

/// Longest time that one poll of a job waits for its end.
pub const JOB_WAIT: Duration = Duration::from_millis(500);

/// Time after which a job that nobody polls is given up.
pub const JOB_FORGOTTEN: Duration = Duration::from_secs(30);

/// Number of different policies kept in parsed form. Beyond it all are forgotten.
pub const POLICIES_MAX: usize = 1024;

/// Number of versions that are scanned before those of closed files are dropped.
pub const VERSIONS_SWEPT: usize = 4096;

/// Most files of silent clients for which changes by others are remembered. Each takes some 300 bytes. There are more
/// of them than windows on the nodes of a large cluster, all of which are silent after a restart of the server.
pub const DEPARTED_FILES_MAX: usize = 1 << 16;

/// Most ranges of all these files together, some 40 MiB. If one range is too many, for all files or for one answer,
/// those of the file become one.
pub const DEPARTED_RANGES_MAX: usize = 1 << 20;

/// Smallest read whose bytes are sent from the page cache without a copy. Smaller reads are copied, for lending pages
/// to the socket has a cost per page.
pub const IN_FILE_BYTES_MIN: usize = 32 << 10;

/// A quarter of the size up to which the log of clients with windows is never rewritten. Beyond that the log is
/// rewritten when it is four times as long as after its last rewrite.
pub const KEPT_BYTES_MIN: u64 = 256 << 10;

/// Time between two attempts to rewrite the log after a failure.
pub const KEPT_AGAIN: Duration = Duration::from_secs(1);
