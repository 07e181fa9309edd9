//! The named bounds of `slowfs`, each with its reason.

use std::time::Duration;

/// How long names and attributes are trusted: as a network file system's default minimum.
pub const VALID: Duration = Duration::from_secs(1);

/// Unused bandwidth that may be caught up with: enough for late wake-ups of a busy machine, too little to show in a
/// measurement of a second.
pub const BURST: Duration = Duration::from_millis(20);

/// Operations under way at once; each sleeps in its thread.
pub const THREADS: usize = 128;

/// Asynchronous requests under way: read-ahead and direct I/O of a few streams.
pub const BACKGROUND: u16 = 64;

/// Bytes of directory entries read from the lower directory at a time.
pub const LISTING_BYTES: usize = 32 << 10;
