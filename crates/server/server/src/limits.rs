//! The server's bounds, each with its reason.

use std::time::Duration;

/// Open handles of one client: more open files than a busy node's programs have.
pub const HANDLES_MAX: usize = 1 << 18;

/// Jobs of one client at once: each is a thread. A client that drains asks for one file after the other.
pub const JOBS_MAX: usize = 64;

/// How long one question about a job waits for its end.
pub const JOB_WAIT: Duration = Duration::from_millis(500);

/// A job that nobody has asked about for so long is given up.
pub const JOB_FORGOTTEN: Duration = Duration::from_secs(30);

/// Different rules that are remembered in their parsed form; beyond it all are forgotten.
pub const POLICIES_MAX: usize = 1024;

/// Versions of files whose numbers are looked through before those that are gone are dropped.
pub const VERSIONS_SWEPT: usize = 4096;

/// Files of clients that fell silent of which it is kept what others change, some 300 bytes each: more than the windows of a large
/// cluster's nodes, which all are silent when the server is started again.
pub const DEPARTED_FILES_MAX: usize = 1 << 16;

/// Ranges of all of these: some 40 MiB. Those of the file that has one too many, for all or for an answer, become one.
pub const DEPARTED_RANGES_MAX: usize = 1 << 20;

/// Reads of fewer bytes are copied: the pages of larger ones are lent to the socket, which costs something for each.
pub const IN_FILE_BYTES_MIN: usize = 32 << 10;

/// What is written down of clients with windows is written anew when it is four times as long as it was then, or as this.
pub const KEPT_BYTES_MIN: u64 = 256 << 10;

/// When that is tried again after it failed.
pub const KEPT_AGAIN: Duration = Duration::from_secs(1);
