//! The door's bounds, each with its reason.

use std::time::Duration;

/// The share of the process's descriptors that nodes may hold before the kernel is asked to forget old ones, as a
/// divisor: open files, replicas and the catalogue need the rest.
pub const NODE_DESCRIPTORS_SHARE: u64 = 2;

/// Descriptors that an open file has beside that of its node, where its data is read and written below: the global copy, and a replica
/// that is being filled.
pub const DESCRIPTORS_BELOW: u64 = 2;

/// How many nodes the kernel is asked to forget at once: enough that the next time is far, few enough that what
/// programs use just now mostly stays.
pub const FORGET_BATCH: usize = 1024;

/// How long after its last lookup a directory may be come to without another: as long as the kernel trusts its name by the default of the
/// policy `revalidate`.
pub const NAME_TRUSTED: Duration = Duration::from_secs(1);

/// How often the number of nodes is looked at: at a lookup every 5 us, 20,000 come meanwhile at most.
pub const RELIEF_POLL: Duration = Duration::from_millis(100);

/// Registrations of replicas that nobody has open: as many as the file cache remembers closed files. Each pins an inode in the
/// kernel, about 2 KiB.
pub const IDLE_REGISTRATIONS: usize = 4096;

/// How long one stays that nobody uses. Who removes a replica ends it at once; this is for those that others remove.
pub const IDLE_REGISTRATION: Duration = Duration::from_secs(10);

/// After so long in one call to the global store a handler counts as stuck, and another thread works in its place. Slow stores
/// answer within it; a session's threads stand for the requests under way there.
pub const STUCK: Duration = Duration::from_secs(1);

/// Asynchronous requests (read-ahead, direct I/O of several threads) that may be under way at once.
pub const BACKGROUND_REQUESTS: u16 = 64;

/// The depth of file systems stacked on each other below a replica: replicas lie on an ordinary one.
pub const REPLICA_STACK_DEPTH: u32 = 1;

/// The share of the process's descriptors that the nodes of one kernel on another machine may hold before it is asked to forget
/// some, as a divisor: thirty such kernels at their bound leave half of them.
pub const CLIENT_DESCRIPTORS_SHARE: u64 = 64;

/// Pages that are remembered of a file that is locked here, the last that were read: half a megabyte.
pub const PAGES_KEPT: usize = 128;

/// Bytes of a read whose pages are remembered: what the kernel reads around a fault. Larger ones stream.
pub const PAGES_READ_MAX: usize = 128 << 10;

/// Files of which pages are remembered.
pub const PAGES_FILES_MAX: usize = 32;

/// Pieces in which what changed of a write is sent, each by a request of its own.
pub const PAGE_RUNS_MAX: usize = 128;
