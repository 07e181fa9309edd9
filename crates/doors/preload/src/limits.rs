//! Bounds, each with its reason.

use core::time::Duration;

/// Descriptors from this number on are left to the kernel: the table has 8 bytes for each, of which only touched pages cost.
pub const DESCRIPTORS_MAX: usize = 1 << 16;

/// Open files that may have windows at once in one process; at 16 MiB a window, more than a node's budget.
pub const OPENS_MAX: usize = 1024;

/// The write of a descriptor at which its window is asked for: that costs three round trips to the agent and the pages of the ring,
/// which files written in one piece never earn.
pub const ATTACH_AT_WRITE: u32 = 3;

/// A write of so many bytes counts for two of them: through the kernel it takes about as long as asking does, and longer behind a
/// server.
pub const LARGE_WRITE: usize = 64 << 10;

/// Writes between two tries when the agent said "not now".
pub const RETRY_AFTER_WRITES: u32 = 256;

/// Milliseconds for which calls on a descriptor are waited for that is about to be replaced: they need it for one `lseek`, and a handler of
/// signals may have interrupted one in between.
pub const CALLS_WAITED_FOR_MS: u32 = 50;

/// Appends of a thread that are noted while they are under way: a handler of signals that interrupts another is rare, and a third one.
pub const APPENDS_NOTED_MAX: usize = 4;

/// How long a handler of signals that interrupted an append waits for the agent before it forks: as long as a write would that has no room.
pub const REVOCATION_WAITED_FOR: Duration = Duration::from_secs(10);

/// Lowest number for the connection's own descriptor, so that programs find the numbers they expect.
pub const OWN_DESCRIPTORS_FROM: i32 = 700;

/// Longest path of the agent's socket in bytes: the address has room for 108 with its end.
pub const SOCKET_PATH_MAX: usize = 107;

/// Addresses below belong to no mapping (`vm.mmap_min_addr`): the kernel answers EFAULT where a copy of ours would end the
/// program.
pub const ADDRESS_MIN: usize = 1 << 16;

/// Buffers of one vector call; the kernel's own limit (`IOV_MAX`).
pub const PARTS_MAX: usize = 1024;

/// Bytes of a directory that are read at once: of `/proc/self/fd` some forty descriptors.
pub const DIRECTORY_BYTES: usize = 1024;

/// Bytes that the allocator takes from the kernel at once: a registration and some hundred windows.
pub const ARENA_BYTES: usize = 1 << 18;

/// Bytes that a stream's buffer may be asked to have: from what the C library takes by itself to what no write gains by.
pub const STREAM_BUFFER_BYTES: core::ops::RangeInclusive<u64> = 8 << 10..=16 << 20;

/// Streams with such a buffer at once in one process.
pub const STREAMS_MAX: usize = 64;
