//! Bounds of the namespace's vocabulary.

/// Preferred I/O size that `stat` reports of a regular file, bytes: the block of the burst buffer.
pub const PREFERRED_IO_BYTES: u32 = 1 << 20;
