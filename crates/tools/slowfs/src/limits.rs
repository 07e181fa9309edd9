//! Every bound of `slowfs`, with its reason.

use std::time::Duration;

/// Unused bandwidth that may be made up for. Enough for late wake-ups of a busy machine, too little to show in a
/// measurement of a second.
pub const BURST: Duration = Duration::from_millis(20);

/// Most operations in progress at once; each sleeps in its own thread.
pub const THREADS: usize = 128;

/// Threads that read requests while others sleep, so that simultaneous requests start at once.
pub const READERS: usize = 8;

/// Most asynchronous requests in progress: read-ahead and direct I/O of a few streams.
pub const BACKGROUND: u16 = 64;

/// Bytes of directory entries read from the lower directory at a time.
pub const LISTING_BYTES: usize = 32 << 10;

/// Distance up to which a read after the previous one counts as adjacent, without a seek. The kernel sends its
/// read-ahead of 128 KiB in parallel, so neighbouring requests may be swapped.
pub const ADJACENT_BYTES: u64 = 256 << 10;

/// Most lock grants of one file. Beyond, the oldest is dropped, as a server short of memory does.
pub const GRANTS_MAX: usize = 4096;

/// Most targets or servers; more would only cost memory.
pub const PARTS_MAX: u64 = 1024;

/// Most fault points of one mount; each operation checks all of them.
pub const FAULTS_MAX: usize = 64;

/// Pause between two checks whether a hanging operation is to continue.
pub const HANG_POLL: Duration = Duration::from_millis(5);

/// Descriptors for which the table has room from the start.
pub const TABLE_SLOTS: u64 = 65_536;
