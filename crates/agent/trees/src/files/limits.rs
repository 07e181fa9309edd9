//! Bounds of the data of a tree's files.

use std::time::Duration;

/// Bytes that are copied at once between a local file and the global store.
pub const COPY_BYTES: u64 = 1 << 20;
/// Time after which an open looks again whether another one has copied the file, and whether its program was interrupted.
pub const MAKER_POLL: Duration = Duration::from_millis(1);
/// Parts of the table of open files, each with a lock of its own.
pub const TABLE_PARTS: usize = 16;
