//! The client's bounds, each with its reason.

use std::time::Duration;

/// How long a query for a server's counters waits: less than a command waits for an agent that hangs.
pub const SERVER_STATUS: Duration = Duration::from_secs(5);

/// How long a release waits for the server. After that, the kernel is answered and the server is told later.
pub const SERVER_RELEASE: Duration = Duration::from_secs(2);

/// Writes of one file's windows under way to a server at once. At 2 ms a round trip these are 4,000 a second; they use
/// a third of the connections for small requests.
pub const SERVER_WRITES_AT_ONCE: usize = 8;

/// A bound that adapts to measurements.
pub struct Measured {
    /// Initial value, and the least.
    pub start: usize,
    /// Greatest value.
    pub most: usize,
}

/// Large writes of all windows under way to a server at once. With four, some cross the wire while the server handles
/// the others. Uses at most three quarters of the connections for large requests.
pub const SERVER_WIDTH: Measured = Measured { start: 4, most: 12 };

/// Memory of the node for read-ahead from a server, bytes, of all files together: eight files at full width.
pub const SERVER_AHEAD_BYTES: u64 = 256 << 20;

/// Read-ahead memory of one file, bytes. So much of a file can be read at random from memory while others still find
/// room. When memory is full, data older than `revalidate` is dropped.
pub const SERVER_AHEAD_FILE_BYTES: u64 = 128 << 20;

/// Bytes of a file's read-ahead memory above which data that was read is dropped. Processes that read just after others
/// still find the data, and memory is reused while the processor's cache holds it: half of a cache of 32 MiB.
pub const SERVER_AHEAD_READ_BYTES: u64 = 16 << 20;

/// Bytes of the read-ahead memory shared out among the open files being read. The rest is for data that was read.
pub const SERVER_AHEAD_SHARED_BYTES: u64 = 192 << 20;

/// Least share of one open file, bytes: two requests, one being read and one under way.
pub const SERVER_AHEAD_SHARE_MIN: u64 = 2 << 20;

/// Least read-ahead of a reader, bytes, however slowly it reads. Less would cost a round trip for each of its requests.
pub const SERVER_AHEAD_LEAST: u64 = 128 << 10;

/// Half of the time after which an open file that was not read no longer counts among those being read.
pub const SERVER_AHEAD_SHARE_FOR: Duration = Duration::from_millis(500);

/// Free buffers of 1 MiB kept besides those that hold data: as many as return at once when data that was read is
/// dropped.
pub const SERVER_FREE_BUFFERS: usize = 64;

/// How long an idle read-ahead thread is kept, and with the last thread its buffers: programs compute between their
/// reads.
pub const SERVER_FETCHER_RESTS: Duration = Duration::from_millis(500);

/// Read-ahead requests at once: half of the connections for large requests, so that waiting readers find one.
pub const SERVER_FETCHERS: usize = 8;

/// Most queued read-ahead requests: a few files at full width. Beyond that nothing is read ahead.
pub const SERVER_FETCHES_MAX: usize = 1024;

/// Most ranges that one open file may have requested while none of them has ended.
pub const SERVER_WANTED_MAX: usize = 256;

/// Most connections of each kind that are made before they are needed. One takes three round trips, which programs that
/// start at the same time would all wait for. The count is that of concurrent opens, because each connection is a
/// thread of the server.
pub const SERVER_READY: usize = 4;

/// Policies cached in the form in which they are sent to a server.
pub const SERVER_POLICIES_MAX: usize = 64;

/// Written files remembered before those that the server reports clean are forgotten. The next check is at twice what
/// is left.
pub const SERVER_WRITTEN: usize = 1 << 16;

/// How long a drain of everything at a server waits for files being closed: the program has ended, and its last call to
/// the server is under way. Files open for longer are in use.
pub const CLOSES_WAIT: Duration = Duration::from_millis(500);

/// How often such a wait checks: a call to the server takes no less.
pub const CLOSES_WAIT_STEP: Duration = Duration::from_millis(2);
