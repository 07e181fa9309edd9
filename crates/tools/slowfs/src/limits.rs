//! The named bounds of `slowfs`, each with its reason.

use std::time::Duration;

/// Unused bandwidth that may be caught up with: enough for late wake-ups of a busy machine, too little to show in a
/// measurement of a second.
pub const BURST: Duration = Duration::from_millis(20);

/// Operations under way at once; each sleeps in its thread.
pub const THREADS: usize = 128;

/// Threads that read while others sleep, so that what comes at once is begun at once.
pub const READERS: usize = 8;

/// Asynchronous requests under way: read-ahead and direct I/O of a few streams.
pub const BACKGROUND: u16 = 64;

/// Bytes of directory entries read from the lower directory at a time.
pub const LISTING_BYTES: usize = 32 << 10;

/// A read this near to where the last one ended is no seek: the kernel sends its read-ahead of 128 KiB in parallel, so
/// that neighbours change places.
pub const ADJACENT_BYTES: u64 = 256 << 10;

/// Grants of one file that are kept; beyond, the oldest is given up, as a server short of memory does.
pub const GRANTS_MAX: usize = 4096;

/// Targets and servers: more would only cost memory.
pub const PARTS_MAX: u64 = 1024;

/// Fault points of one mount: each operation looks at all of them.
pub const FAULTS_MAX: usize = 64;

/// How often an operation that hangs looks whether it still is to.
pub const HANG_POLL: Duration = Duration::from_millis(5);

/// Descriptors for which there is room from the start.
pub const TABLE_SLOTS: u64 = 65_536;
