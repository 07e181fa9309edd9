//! The agent's bounds, each with its reason.

use std::time::Duration;

/// Bytes of directory entries read from the global store at once: as many as one `readdir(3)` call of glibc gets from
/// `getdents64`.
pub const DIRECTORY_BUFFER_BYTES: usize = 32 << 10;

/// Longest value of an extended attribute: the kernel's `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Longest `security.capability`: its third revision has 24 bytes.
pub const CAPABILITY_BYTES_MAX: usize = 64;

/// Longest list of extended attribute names: the kernel's `XATTR_LIST_MAX`.
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// Most bytes that one `copy_file_range` request copies. The caller comes again for the rest and can be interrupted in
/// between.
pub const COPY_BYTES_PER_CALL: usize = 8 << 20;

/// The buffer of a copy: large enough for full speed, small enough for many at once.
pub const COPY_BUFFER_BYTES: usize = 1 << 20;

/// Preferred I/O size that `stat` reports, bytes: the block of the burst buffer.
pub const PREFERRED_IO_BYTES: u32 = 1 << 20;

/// Most locks, held and waiting, on one file: bounds what one program can make the agent remember.
pub const LOCKS_PER_FILE_MAX: usize = 1 << 16;

/// How long after the close of a descriptor the release of its open file may still arrive. The kernel has sent it, but
/// a busy machine may suspend the thread that brings it for some time slices.
pub const LOCK_CLOSE_WAIT: Duration = Duration::from_millis(100);

/// First wait before a refused lock is requested from the global store again; doubles after each further refusal. A
/// store does not report that a lock has become free.
pub const STORE_LOCK_RETRY: Duration = Duration::from_millis(1);

/// Longest such wait: the extra delay that an interrupt or the next holder may see.
pub const STORE_LOCK_RETRY_MAX: Duration = Duration::from_millis(32);

/// Longest line of a request on the control socket, bytes.
pub const CONTROL_LINE_BYTES_MAX: usize = 1 << 20;

/// Most commands served at once on the control socket: each has a thread.
pub const CONTROL_CONNECTIONS_MAX: usize = 32;

/// Longest sleep of the control socket's thread before it looks whether it should end.
pub const CONTROL_POLL: Duration = Duration::from_millis(200);

/// Files that one staging command copies at once. A small file costs one round trip to the store, and little else.
pub const STAGE_STREAMS: usize = 8;

/// Outcomes of files queued for the caller. The threads that stage wait when the queue is full.
pub const STAGE_TOLD_MAX: usize = 64;

/// How often a staging command checks whether it was interrupted.
pub const STAGE_POLL: Duration = Duration::from_millis(20);

/// How long an answer may stay unread in the control socket before the command is given up.
pub const CONTROL_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the agent sends a sign of life on the control socket while a command has nothing to report.
pub const CONTROL_BEAT: Duration = Duration::from_secs(1);

/// How long an agent may be silent before a command takes it for stopped: ten beats, so that a busy machine is not.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(10);

/// How long a request for a window waits for a server. After that, the program goes on without a window.
pub const SERVER_ATTACH: Duration = Duration::from_secs(2);

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

/// Seconds for which a file that was created through us, or looked at, is assumed to have no capabilities. Changes by
/// others are noticed within about a second everywhere (`revalidate`).
pub const PLAIN_S: u64 = 1;

/// Most lookups of one name while other files take its place. Each repetition means that a stage-out has ended in
/// between.
pub const LOOKUP_TRIES: usize = 16;

/// Duration after which a call to the global store is shown in the status. A store that is merely slow answers sooner.
pub const STORE_SLOW: Duration = Duration::from_secs(2);

/// Most such calls that are listed one by one.
pub const STORE_CALLS_LISTED: usize = 100;

/// Parts of records written to a replica in one call. Each may lie in two places, and the system takes 1,024.
pub const WINDOW_PIECE_PARTS_MAX: usize = 512;

/// Tries to read the attributes of a file that becomes clean again and again meanwhile.
pub(crate) const SETTLED_TRIES: u32 = 4;

/// How long an idle helper thread is kept.
pub(crate) const HELPER_REST: Duration = Duration::from_secs(10);
