//! Bounds of the door, each with its reason.

use std::time::Duration;

/// Divisor for the share of the process's descriptors that nodes may hold before the kernel is asked to forget old
/// ones. Open files, replicas and the catalogue need the rest.
pub const NODE_DESCRIPTORS_SHARE: u64 = 2;

/// Descriptors of an open file beside its node's, if its data is read and written below: one for the global copy, and
/// one for a replica that is being filled.
pub const DESCRIPTORS_BELOW: u64 = 2;

/// Nodes that the kernel is asked to forget at once. Enough that the next time is far off; few enough that nodes in
/// use mostly stay.
pub const FORGET_BATCH: usize = 1024;

/// Time after its last lookup during which a program may enter a directory without another lookup. Equals the default
/// of the policy `revalidate`, for which the kernel trusts the name.
pub const NAME_TRUSTED: Duration = Duration::from_secs(1);

/// Interval at which the number of nodes is checked. At one lookup every 5 us, at most 20,000 are added meanwhile.
pub const RELIEF_POLL: Duration = Duration::from_millis(100);

/// Most registrations of replicas that nobody has open: as many as the file cache remembers closed files. Each pins
/// an inode in the kernel, about 2 KiB.
pub const IDLE_REGISTRATIONS: usize = 4096;

/// Longest life of an unused registration. A removal of the replica through Forebay ends it at once; this bound is
/// for replicas that others remove.
pub const IDLE_REGISTRATION: Duration = Duration::from_secs(10);

/// Time in one call to the global store after which a handler counts as stuck, and another thread works in its place.
/// Slow stores answer within it. A session's threads represent its requests to the store.
pub const STUCK: Duration = Duration::from_secs(1);

/// Most asynchronous requests under way at once: read-ahead, and direct I/O of several threads.
pub const BACKGROUND_REQUESTS: u16 = 64;

/// Number of stacked file systems allowed below a replica: replicas lie on an ordinary file system.
pub const REPLICA_STACK_DEPTH: u32 = 1;

/// Divisor for the share of the process's descriptors that nodes of one client's kernel may hold before it is asked
/// to forget some. Thirty such kernels at their bound leave half of the descriptors.
pub const CLIENT_DESCRIPTORS_SHARE: u64 = 64;

/// Time for which the kernel trusts names and attributes of files that are held exclusively: longer than any mount, since the
/// kernel is told when the exclusivity ends. A year fits into all of the kernel's clocks.
pub const EXCLUSIVE_TRUSTED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Most absent names that the kernel trusts, each about 60 bytes here. Programs that search for libraries and headers in
/// many directories ask for a few thousand. Further ones are asked for again each time.
pub const ABSENT_NAMES: usize = 65_536;

/// Nodes in use without a descriptor beyond which those that nobody uses any more rest. A program works on fewer at once.
/// Tests meet resting nodes often.
pub const AWAKE_NODES: usize = if cfg!(debug_assertions) { 2 } else { 1024 };

/// Nodes that are looked at, whether they may rest, when one more is in use. With two, their list grows only by those that are used.
pub const RESTED_AT_ONCE: usize = 2;

/// Entries of a table that has become small for which memory is kept.
pub const TABLE_KEPT: usize = 4096;
