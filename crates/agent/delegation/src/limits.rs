//! Bounds of a delegated tree and of its log.

use std::time::Duration;

/// Bytes of a name at most, as in Linux.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a symbolic link's target at most; one more ends it in the kernel's buffer.
pub const TARGET_BYTES_MAX: usize = 4095;
/// Bytes of a path that [`path_of`](namespace::Names::path_of) returns at most.
pub const PATH_BYTES_MAX: usize = 4095;
/// Names of one file at most. Each change of a file logs all its names.
pub const LINKS_MAX: usize = 1024;
/// Bytes of an extended attribute's name at most, as in Linux.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes of an extended attribute's value at most, as in Linux.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// Bytes of all extended attributes of one file at most, names included.
pub const XATTRS_BYTES_MAX: usize = 131_072;
/// Supplementary groups at most, as in Linux.
pub const GROUPS_MAX: usize = 65_536;
/// Bytes of one transaction in the log at most.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// Sequence that no log reaches.
pub const SEQUENCE_MAX: u64 = 1 << 62;
/// Records of one transaction at most.
pub const TRANSACTION_RECORDS_MAX: usize = 1024;
/// Bytes of names and attributes of the global store that one transaction takes up, unless one file has more. With the largest file
/// a transaction stays within its bound.
pub const TAKEN_UP_BYTES: usize = 2 << 20;
/// Files and directories of one tree at most.
pub const NODES_MAX: usize = 1 << 28;
/// Openings of one log at most. Each takes a new range of node numbers.
pub const OPENINGS_MAX: u32 = 1 << 18;
/// Bits of a node number below those of the opening.
pub const NUMBER_BITS: u32 = 44;
/// Bytes of a log file by default.
pub const LOG_FILE_BYTES: u64 = 16 << 20;
/// Percentage of live records below which the log's oldest file is cleaned, by default.
pub const LIVE_PERCENT: u64 = 40;
/// Nodes that one step of cleaning looks at.
pub const CLEAN_NODES: usize = 4096;
/// Records that one step of cleaning appends again.
pub const CLEAN_RECORDS: usize = 64;
/// Bytes that one step of cleaning appends again, unless one record has more.
pub const CLEAN_BYTES: usize = 1 << 20;
/// Entries of a directory that are read under one lock.
pub const LISTED_AT_ONCE: usize = 64;
/// Callers whose groups are remembered.
pub const CALLERS_MAX: usize = 256;
/// Age up to which a caller's remembered groups are noted as those of a creation. Permissions are judged by present ones.
pub const CALLER_AGE: Duration = Duration::from_secs(1);
/// Names at which a node may be in the global store. More than those of a file: steps that were not synced leave some.
pub const NAMES_BELOW_MAX: usize = 4096;
/// Nodes that an apply begins in one round for each that it works on at once. The log is synced once a round, and threads seldom
/// wait for the last. At a few milliseconds a request, a round is short enough for the store's client to know new files still.
pub const ROUND_NODES_OF_A_THREAD: usize = 32;
/// Nodes that an apply begins in one round at most. While those of one round get their names, others are created. Each has a descriptor.
pub const ROUND_NODES_MAX: usize = 1024;

/// Directories of the store that an apply keeps open at most.
pub const DIRECTORIES_OPEN: usize = 1024;

/// Part of the descriptors free for such use that a bound of an apply may take: one of so many parts.
const DESCRIPTORS_PART: u64 = 8;

/// Returns a bound, or less where the process has few descriptors.
pub fn of_descriptors(most: usize) -> usize {
    let part = global_store::descriptors::spare() / DESCRIPTORS_PART;
    usize::try_from(part).unwrap_or(most).clamp(1, most)
}
/// Jobs for one directory that wait or are done while new directories are filled: at least, for one that nobody sees, and at most for
/// another. Systems make one name of a directory at a time, so more are of no use.
pub const MADE_AT_ONCE: usize = 4;
/// Jobs that wait or are done for each thread while new directories are filled: those who are done find another, although the log is synced
/// meanwhile.
pub const JOBS_OF_A_THREAD: usize = 4;
/// Directories above another that are looked at for whether they are new.
pub const DEPTH_MAX: usize = PATH_BYTES_MAX;
/// Nodes after which an apply syncs the store and records that it has them.
pub const SYNCED_NODES: usize = 4096;
