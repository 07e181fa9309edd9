//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Largest kernel file handle in bytes (`MAX_HANDLE_SZ` of `fs/exportfs`).
pub const HANDLE_BYTES_MAX: usize = 128;

/// Most bytes of a dirty mark. Our marks have a few dozen bytes. A longer attribute is not ours, and reading it fails.
pub const MARK_BYTES_MAX: usize = 4096;

/// Attempts of `sync_name` to find a file that is being renamed, before it syncs the whole store instead.
pub const SYNC_NAME_TRIES: usize = 4;

/// Attempts to resolve a path below the root while renames race with it, before the lookup fails with `EAGAIN`.
pub const WALK_TRIES: usize = 128;

/// Bytes of zeros written in one call if a store has no holes: large enough that the number of calls does not matter.
pub const ZERO_BYTES: usize = 64 * 1024;

/// Pauses before a file is opened by handle again after `ENOMEM`. Creating most new files takes far less than the first
/// pause; one may have to wait for the store's journal.
pub const HANDLE_PAUSES: [Duration; 6] = [
    Duration::from_micros(50),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(1000),
];

/// Descriptor limit that counts as unlimited: more open files than any node has.
pub const DESCRIPTORS_UNLIMITED: u64 = 1 << 20;

/// Fraction of the descriptor limit above which only requests that end soon may get a descriptor. At a limit of 20,000
/// these are the last 600, ten for each thread of a door.
pub const DESCRIPTORS_LAST: (u64, u64) = (31, 32);

/// Descriptors that an agent needs regardless of open files: catalogue, sockets, directories, pipes.
pub const DESCRIPTORS_OWN: u64 = 64;

/// Fraction of the limit that open files must leave free, in addition to [`DESCRIPTORS_OWN`]. A second reserve of this
/// size is kept for owners with few open files.
pub const DESCRIPTORS_RESERVE: (u64, u64) = (1, 32);

/// Fraction of the limit below which the descriptor of a creation is kept, in case the store later refuses to open the
/// file.
pub const DESCRIPTORS_CREATED: (u64, u64) = (1, 64);

/// Age of a file's last change after which another change certainly gives the file a new time. More than two ticks of
/// the slowest clock.
pub const SETTLED: Duration = Duration::from_millis(30);

/// Like [`SETTLED`], for times in whole seconds; FAT times are even seconds.
pub const SETTLED_COARSE: Duration = Duration::from_secs(3);

/// A file up to this size is read in one request, after its attributes were read, so that its bytes are of one moment.
/// The value is the kernel's read-ahead.
pub const ONE_READ_BYTES: u64 = 128 << 10;
