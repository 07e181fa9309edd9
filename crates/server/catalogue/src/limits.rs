//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Longest hint, bytes: the kernel's `PATH_MAX`. A longer path is dropped, because it is only a hint.
pub const HINT_BYTES_MAX: usize = 4096;

/// Longest reason, bytes: a few lines for a person. The rest is cut off.
pub const REASON_BYTES_MAX: usize = 1024;

/// Changes in one write to the disk. Larger groups save nothing and make all callers wait for the last change.
pub const GROUP_CHANGES_MAX: usize = 4096;

/// Bytes of the newest records in memory before they are written to a table. Together with sealed memtables this is
/// most of the catalogue's memory. An agent must stay below 64 MiB.
pub const MEMTABLE_BYTES: u64 = 4 << 20;

/// [`MEMTABLE_BYTES`] of the `unclean` keyspace, whose entries are a quarter as large.
pub const UNCLEAN_MEMTABLE_BYTES: u64 = 1 << 20;

/// Bytes of blocks cached in memory. Each open of a file makes one lookup, and the page cache backs this cache.
pub const CACHE_BYTES: u64 = 4 << 20;

/// Size of a table, bytes. A larger table needs more memory for filters and indexes during a merge; smaller tables need
/// more descriptors.
pub const TABLE_BYTES: u64 = 16 << 20;

/// Table files kept open. Nearly enough for 10^7 records, and a small part of the usual limit of 1024 descriptors.
pub const OPEN_TABLES_MAX: usize = 64;

/// Bytes of journals before old memtables are written to tables to free them. The least that fjall accepts; bounds the
/// time of a reopen.
pub const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Threads that write and merge tables. One of them is kept for writing, so that merging never stops commits.
pub const WORKERS: usize = 2;

/// Sealed memtables with which a commit still begins. fjall itself stops at 4, in a loop that does not notice dead
/// workers. One commit adds at most two.
pub const SEALED_MEMTABLES_MAX: usize = 1;

/// Unmerged runs with which a commit still begins. fjall slows down at 20 and stops at 30, in that same loop.
pub const UNMERGED_RUNS_MAX: usize = 16;

/// Time that a commit waits for tables to be written, and its caller for the answer. Longer than a disk that retries a
/// bad sector. After this time the catalogue refuses further work, because it is not known what was written.
pub const COMMIT_WAIT: Duration = Duration::from_secs(60);

/// Time between two checks by a commit that waits for tables.
pub const ROOM_POLL: Duration = Duration::from_millis(5);

/// Time between two attempts to reopen a database after a failed commit. Each attempt reads the journal.
pub const HEAL_PAUSE: Duration = Duration::from_secs(1);

/// Bytes that must be writable before such an attempt: at least a first journal and its tables.
pub const PROBE_BYTES: usize = 1 << 20;

/// Time to wait for a lock that another process holds. Longer than an agent takes to end.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(3);

/// Time between two attempts to take that lock.
pub const LOCK_POLL: Duration = Duration::from_millis(5);

/// Bytes of journal that an orderly end leaves to the next opening. Reading them takes a few milliseconds; writing them
/// to tables costs several syncs.
pub const REPLAY_BYTES_KEPT: u64 = 128 << 10;

/// Free bytes needed to condense: twice the memtables of both keyspaces, sealed ones included. Tables that find no
/// space stop all commits; skipping only makes the next opening longer.
pub const CONDENSE_ROOM_BYTES: u64 = 32 << 20;

/// Time between two checks whether the memtables are written.
pub const CONDENSE_POLL: Duration = Duration::from_millis(1);

/// Bytes of journal allocated ahead. Enough to announce and to conclude a batch of 2048 files.
pub const KEPT_BYTES: u64 = 2 << 20;

/// Number of times that the allocation is halved if there is no space. The last attempt is 64 KiB, enough for some
/// hundred commits.
pub const KEPT_SHARE_MAX: u32 = 5;

/// Bytes that a commit takes in the journal beside its items, approximately.
pub const COMMIT_BYTES: u64 = 32;
