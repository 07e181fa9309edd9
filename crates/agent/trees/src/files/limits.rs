//! Bounds of the data of a tree's files.

use std::time::Duration;

/// Bytes that are copied at once between a local file and the global store.
pub const COPY_BYTES: u64 = 1 << 20;
/// Time after which an open looks again whether another one has copied the file, and whether its program was interrupted.
pub const MAKER_POLL: Duration = Duration::from_millis(1);
/// Parts of the table of open files, each with a lock of its own.
pub const TABLE_PARTS: usize = 16;
/// Emptied local files, with their descriptors, that are kept for the next ones. A directory tree that is removed gives them back
/// faster than programs ask for new ones.
pub const READY_MAX: usize = 256;
/// Ready local files of all trees of the process, at least one of each apart. Each has a descriptor.
pub const READY_OF_ALL: usize = 3072;
/// Ready local files of a tree below which more are made.
pub const READY_LOW: usize = 32;
/// Ready local files of a tree after that: as many as a program makes in some milliseconds.
pub const READY_FILLED: usize = 96;
/// Files that may wait to be dropped or made ready. A program that is faster does it itself.
pub const CHORES_MAX: usize = 4096;
/// Closed files that are looked at, whether they are still mapped, when one more may be. With two, their list grows only by those that
/// are.
pub const MAPPED_LOOKS: usize = 2;
/// Time after a close until the keeper looks at the files that were closed. It wakes once for all of them, and so no close wakes
/// another processor. They hold descriptors meanwhile.
pub const LOOK_AFTER: Duration = Duration::from_millis(4);
/// Time until it looks again at those that are still mapped.
pub const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Closed files that may wait for that. Who closes faster than the keeper looks does so itself.
pub const MAPPED_WAITING: usize = 512;
/// Size up to which a closed file counts as one without holes.
pub const WITHOUT_HOLES_BYTES: u64 = 64 << 10;
/// Emptied local files without descriptors that are kept beyond the ready ones. Where many inodes were removed within the last minutes,
/// ext4 looks long for one that it may use again.
pub const SPARE_MAX: usize = 32_768;
/// Bytes of a file above which it is never packed: what a segment takes as one object.
pub const PACKED_BYTES_MAX: u64 = segments::limits::OBJECT_BYTES_MAX;
/// Bytes of one segment of a pack. A small tree reserves no more while it is packed, and a terabyte takes 65,536 descriptors.
pub const PACK_SEGMENT_BYTES: u64 = 16 << 20;
/// Closed files that are remembered for the pack. If there are more, all nodes are looked at.
pub const PACK_QUEUE_MAX: usize = 1 << 20;
/// Steps of the compaction of a pack at once.
pub const COMPACTED_AT_ONCE: usize = 8;
/// Most bytes that are written at once of what windows acknowledged, where parts end at multiples of it: one folio of large ones.
pub const WINDOW_PART_BYTES: u64 = 256 << 10;
/// Age of bytes of windows above which a file gets the time of their writes: until then the kernel's is as good.
pub const BACKDATE_AFTER: Duration = Duration::from_millis(10);
