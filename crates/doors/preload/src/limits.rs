//! Bounds of this crate, each with its reason.

use core::time::Duration;

/// Number of descriptors in the table; higher ones are left to the kernel. The table has 8 bytes for each, of which
/// only touched pages cost.
pub const DESCRIPTORS_MAX: usize = 1 << 16;

/// Open files that may have windows at once in one process. At 16 MiB a window this is more than a node's budget.
pub const OPENS_MAX: usize = 1024;

/// Number of the write at which a descriptor's window is asked for. Asking costs three round trips to the agent and the
/// pages of the ring, which a file written in one piece never earns.
pub const ATTACH_AT_WRITE: u32 = 3;

/// Size in bytes from which a write counts for two. Such a write through the kernel takes about as long as asking for a
/// window, and longer behind a server.
pub const LARGE_WRITE: usize = 64 << 10;

/// Writes between two attempts after the agent said "not now".
pub const RETRY_AFTER_WRITES: u32 = 256;

/// Time in ms to wait for calls on a descriptor that is about to be replaced. They need it for one `lseek`, and a
/// signal handler may have interrupted one in between.
pub const CALLS_WAITED_FOR_MS: u32 = 50;

/// Appends in progress noted per thread. A signal handler that interrupts another one is rare, and a third one rarer.
pub const APPENDS_NOTED_MAX: usize = 4;

/// Time that a signal handler which interrupted an append waits for the agent before it forks. As long as a write
/// without room would wait.
pub const REVOCATION_WAITED_FOR: Duration = Duration::from_secs(10);

/// Lowest number for the library's own descriptor, so that programs find the numbers they expect.
pub const OWN_DESCRIPTORS_FROM: i32 = 700;

/// Longest path of the agent's socket, bytes. The address has room for 108 with the final zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// Lowest address that is used. Lower ones belong to no mapping (`vm.mmap_min_addr`): the kernel answers EFAULT, where
/// a copy by the library would end the program.
pub const ADDRESS_MIN: usize = 1 << 16;

/// Buffers of one vector call: the kernel's own limit (`IOV_MAX`).
pub const PARTS_MAX: usize = 1024;

/// Bytes of a directory read at once: some forty descriptors of `/proc/self/fd`.
pub const DIRECTORY_BYTES: usize = 1024;

/// Bytes that the allocator takes from the kernel at once: enough for a registration and some hundred windows.
pub const ARENA_BYTES: usize = 1 << 18;

/// Range of allowed sizes of a stream's buffer, bytes. From the C library's own size to a size beyond which no write
/// gains.
pub const STREAM_BUFFER_BYTES: core::ops::RangeInclusive<u64> = 8 << 10..=16 << 20;

/// Streams with such a buffer at once in one process.
pub const STREAMS_MAX: usize = 64;
