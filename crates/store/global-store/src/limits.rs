//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Largest kernel file handle in bytes (`MAX_HANDLE_SZ` of `fs/exportfs`).
pub const HANDLE_BYTES_MAX: usize = 128;

/// Largest mark in bytes. Marks are a few dozen; more is somebody else's attribute and is cut off as an error.
pub const MARK_BYTES_MAX: usize = 4096;

/// How often `sync_name` looks for a file that is renamed under its hands before it syncs the whole store.
pub const SYNC_NAME_TRIES: usize = 4;

/// How often the kernel may say that a rename raced with a walk below the root before the walk fails with `EAGAIN`.
pub const WALK_TRIES: usize = 128;

/// Zeros written in one call where a store has no holes: large enough that the number of calls does not matter.
pub const ZERO_BYTES: usize = 64 * 1024;

/// Most bytes of the names of one file's attributes, and of one value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 64 * 1024;
/// The same of a value.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;

/// What is waited before a file is opened by its handle once more, when the kernel had no memory to do so. Most new files are made in
/// far less than the first; one may wait for the store's journal.
pub const HANDLE_PAUSES: [Duration; 6] = [
    Duration::from_micros(50),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(1000),
];

/// The number of descriptors that counts as no limit: more open files than any node has.
pub const DESCRIPTORS_UNLIMITED: u64 = 1 << 20;

/// The share of the process's descriptors, as a fraction, beyond which only requests that end soon may have one: at a limit of 20,000 the last 600, ten for each thread of a door.
pub const DESCRIPTORS_LAST: (u64, u64) = (31, 32);

/// Descriptors that an agent has whatever is open: catalogue, sockets, directories, pipes.
pub const DESCRIPTORS_OWN: u64 = 64;

/// The share that open files leave beside those. As much again is left to owners with few open files.
pub const DESCRIPTORS_RESERVE: (u64, u64) = (1, 32);

/// The share below which the descriptor that a creation gave is kept for a store that refuses another one.
pub const DESCRIPTORS_CREATED: (u64, u64) = (1, 64);

/// How long ago a file must have changed for its time to move with another change: more than two ticks of the slowest clock.
pub const SETTLED: Duration = Duration::from_millis(30);

/// The same where the time is one of whole seconds: those of FAT are even.
pub const SETTLED_COARSE: Duration = Duration::from_secs(3);
