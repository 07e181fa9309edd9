//! Bounds of windows, each with its reason.

use std::time::Duration;

/// How often an idle socket for programs looks whether it is to end.
pub const WINDOW_LISTEN_POLL: Duration = Duration::from_millis(200);

/// How long a request waits for a writer in the middle of an append. After that, the ring ends and the request goes to
/// the kernel. A busy machine may suspend a thread for a time slice or two in the middle of a copy.
pub const WINDOW_HOLE_WAIT: Duration = Duration::from_millis(50);

/// How long writers wait for room behind an unfinished append before its ring ends, if nothing else of the file
/// progresses. Some time slices longer than a request waits, because the source of the copy may have to be read first.
pub const WINDOW_STUCK_WAIT: Duration = Duration::from_millis(200);

/// Turns that together count as the capacity of a file's rings, however few records they find. A wait for the file's
/// windows ends after twice the capacity, so after at most twice as many turns with new records. These are more than
/// the single records that a program publishes within [`WINDOW_HOLE_WAIT`], and an end for one that never stops.
pub const WINDOW_SETTLE_TURNS: u64 = 16 << 10;

/// Tries to attach a window to a file whose windows end at that moment.
pub const WINDOW_ATTACH_TRIES: usize = 8;

/// How long acknowledged bytes wait for neighbours before they are applied in smaller writes.
pub const WINDOW_DRAIN_AFTER: Duration = Duration::from_millis(20);

/// How long a writer short of room waits for others that write the same file, so that adjacent bytes are written
/// together. A few pages between those of others take twice the time to write alone.
pub const WINDOW_NEIGHBOURS: Duration = Duration::from_millis(4);

/// How often a busy window is checked. A writer at memory speed fills a few MiB meanwhile.
pub const WINDOW_POLL: Duration = Duration::from_millis(1);

/// Distance, in bytes, that write-back stays behind the end of sequential writes. Smaller files, which may soon be
/// gone, and bytes that may be written again are left to the kernel.
pub const WINDOW_BEHIND: u64 = 32 << 20;

/// Bytes by which write-back advances at once.
pub const WINDOW_BEHIND_BYTES: u64 = 8 << 20;

/// Bytes whose write-back one call starts: a close of the file waits for that call.
pub const WINDOW_BEHIND_PIECE: u64 = 1 << 20;

/// Longest wait of a close for write-back, if the medium does not respond.
pub const WINDOW_BEHIND_END_WAIT: Duration = Duration::from_millis(50);

/// Most queued write-back steps. The kernel writes back those that find no room.
pub const WINDOW_BEHIND_QUEUE_MAX: usize = 64;

/// Positions of sequential writes told apart in one file: as many as the processes that share a file on most nodes.
pub const WINDOW_RUNS_MAX: usize = 16;

/// Largest gap within a sequence, bytes; other writers will fill it.
pub const WINDOW_RUN_GAP: u64 = 1 << 20;

/// `nice` value of the write-back thread. Where processors are scarce, writers are faster by a tenth.
pub const WINDOW_BEHIND_NICE: i32 = 10;

/// Longest sleep of an idle window's thread on the doorbell.
pub const WINDOW_SLEEP: Duration = Duration::from_millis(200);

/// How long `status` waits while records of one file are applied. After that, the file's current numbers are left out.
pub const WINDOW_STATUS_WAIT: Duration = Duration::from_millis(100);

/// How often a wait for a file's rings, which may be under way to a server, checks for an interrupt.
pub const WINDOW_LOOK: Duration = Duration::from_millis(50);

/// Pause before a failed attempt to apply records is repeated.
pub const WINDOW_RETRY: Duration = Duration::from_millis(250);

/// Most programs registered for windows at once; each has a descriptor and a page.
pub const WINDOW_PROCESSES_MAX: usize = 1024;

/// Default size of a window, bytes. Larger ones gain nothing on one burst buffer.
pub const WINDOW_BYTES: u64 = 16 << 20;

/// Default memory of the node for all windows, bytes: about sixty windows of the default size, then smaller ones.
pub const WINDOW_BUDGET_BYTES: u64 = 1 << 30;

/// Most of the node's memory, in percent, for the rings of all agents of root. `/dev/shm` may take another half, and
/// programs need some. If the agents' budgets exceed this together, the last program goes on without a window
/// (`ENOSPC`).
pub const WINDOW_TMPFS_PERCENT: u32 = 25;

/// Parts of records written to a replica in one call. Each may lie in two places, and the system takes 1,024.
pub const WINDOW_PIECE_PARTS_MAX: usize = 512;
