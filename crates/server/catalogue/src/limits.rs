//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Longest hint in bytes; the kernel's `PATH_MAX`. A longer one is dropped: it is only a hint.
pub const HINT_BYTES_MAX: usize = 4096;

/// Longest reason in bytes: a few lines for a person. The rest is cut off.
pub const REASON_BYTES_MAX: usize = 1024;

/// Changes that one write to the disk may carry. Larger groups save nothing and make everybody wait for the last.
pub const GROUP_CHANGES_MAX: usize = 4096;

/// Newest records in memory before they are written to a table. With the sealed ones behind it this is the larger part
/// of the catalogue's memory, which must leave an agent below 64 MiB.
pub const MEMTABLE_BYTES: u64 = 4 << 20;

/// The same for the list of what is not clean, whose entries are a quarter as large.
pub const UNCLEAN_MEMTABLE_BYTES: u64 = 1 << 20;

/// Blocks kept in memory. Lookups come once per open of a file, and the page cache is behind it.
pub const CACHE_BYTES: u64 = 4 << 20;

/// Size of a table: what a merge holds in memory of filters and indexes grows with it, and smaller ones need more
/// descriptors.
pub const TABLE_BYTES: u64 = 16 << 20;

/// Table files kept open: nearly enough for 10^7 records, and a small part of the usual limit of 1024 descriptors.
pub const OPEN_TABLES_MAX: usize = 64;

/// Journals before old memtables are written out to be rid of them: the least that fjall accepts. It bounds the time
/// of a reopen.
pub const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Threads that write and merge tables: one is kept for writing, so that merging never stops commits.
pub const WORKERS: usize = 2;

/// Sealed memtables with which a commit still begins. fjall itself stops at 4, in a loop that does not see that its
/// workers are dead; a commit adds at most two.
pub const SEALED_MEMTABLES_MAX: usize = 1;

/// Unmerged runs with which a commit still begins. fjall slows down at 20 and stops at 30, as above.
pub const UNMERGED_RUNS_MAX: usize = 16;

/// How long a commit waits for tables to be written, and its caller for the answer. Longer than a disk that retries a
/// bad sector; after it the catalogue refuses further work, because nobody knows what was written.
pub const COMMIT_WAIT: Duration = Duration::from_secs(60);

/// How often a commit that waits for tables looks again.
pub const ROOM_POLL: Duration = Duration::from_millis(5);

/// Time between two tries to open a database anew whose commit failed: each reads its journal.
pub const HEAL_PAUSE: Duration = Duration::from_secs(1);

/// What must be writable before that is tried: as much as a first journal and its tables take at least.
pub const PROBE_BYTES: usize = 1 << 20;

/// How long a lock that another process holds is waited for: longer than an agent takes to end.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(3);

/// Time between two looks at it.
pub const LOCK_POLL: Duration = Duration::from_millis(5);

/// Journal that an orderly end leaves to the next opening: reading it again takes a few milliseconds, while writing it to
/// tables costs several syncs.
pub const REPLAY_BYTES_KEPT: u64 = 128 << 10;

/// What must be free for that: twice what the memtables of both keyspaces hold, sealed ones included. Tables that find no
/// room stop all commits, a longer opening does not.
pub const CONDENSE_ROOM_BYTES: u64 = 32 << 20;

/// How often it is looked whether the memtables are written.
pub const CONDENSE_POLL: Duration = Duration::from_millis(1);

/// Bytes of journal that are allocated ahead: a batch of 2048 files is announced and concluded within them.
pub const KEPT_BYTES: u64 = 2 << 20;

/// Where there is no room for that, a half, a quarter and so on are tried: at last 64 KiB, some hundred commits.
pub const KEPT_SHARE_MAX: u32 = 5;

/// What a commit takes in the journal beside its items, about.
pub const COMMIT_BYTES: u64 = 32;
