//! Bounds of the store, each with its reason.

/// Longest object in bytes. Longer ones have files of their own, which kernels read without anybody's help.
pub const OBJECT_BYTES_MAX: u64 = 1 << 20;

/// Size of a segment file in bytes unless the settings say otherwise. A compaction step copies at most as much.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest size of a segment file in bytes that the settings may ask for.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Largest size of a segment file in bytes that the settings may ask for. The index keeps 27 bits of an offset in units of eight.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Segment files that a store may have at once. The index keeps 24 bits of a segment's place.
pub const SEGMENTS_MAX: usize = 1 << 24;
/// Sequence numbers lie below. The index keeps 56 bits.
pub const SEQUENCE_END: u64 = 1 << 56;

/// Share of live bytes in a segment, in percent, below which it is rewritten unless the settings say otherwise.
pub const LIVE_PERCENT: u8 = 50;

/// Parts of the index that are locked and grown each on its own. A power of two.
pub const INDEX_SHARDS: usize = 256;

/// Bytes that a scan reads at once.
pub const SCAN_BYTES: usize = 4 << 20;
/// Bytes that are read at once where the medium refused more. Unreadable ones count as damaged.
pub const SCAN_BYTES_DAMAGED: usize = 4096;

/// Damaged places that are named one by one; more of them are counted only.
pub const DAMAGED_NAMED_MAX: usize = 64;
