//! The agent's bounds, each with its reason.

use std::time::Duration;

/// Bytes of directory entries read from the global store at once: what `getdents64` gives one `readdir(3)` call of glibc.
pub const DIRECTORY_BUFFER_BYTES: usize = 32 << 10;

/// Longest value of an extended attribute: the kernel's `XATTR_SIZE_MAX`.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;

/// Longest `security.capability`: its third revision has 24 bytes.
pub const CAPABILITY_BYTES_MAX: usize = 64;

/// Longest list of extended attribute names: the kernel's `XATTR_LIST_MAX`.
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;

/// Most bytes one `copy_file_range` request copies: the caller comes again for the rest, and can be interrupted between.
pub const COPY_BYTES_PER_CALL: usize = 8 << 20;

/// The buffer of a copy: large enough for full speed, small enough for many at once.
pub const COPY_BUFFER_BYTES: usize = 1 << 20;

/// What `stat` calls the preferred size of an I/O: the block of the burst buffer.
pub const PREFERRED_IO_BYTES: u32 = 1 << 20;

/// Bytes fetched ahead of one open file's reads before anything else of the file: some seconds of a slow store.
pub const READ_AHEAD_BYTES: u64 = 32 << 20;

/// Most locks, held and waiting, on one file: a bound on what one program can make the agent remember.
pub const LOCKS_PER_FILE_MAX: usize = 1 << 16;

/// How long after the close of a descriptor the end of its open file may still come: the kernel has sent it, and a busy machine
/// takes the thread that brings it away for some time slices.
pub const LOCK_CLOSE_WAIT: Duration = Duration::from_millis(100);

/// How long after a refusal a lock that is waited for is asked of the global store again, at first; twice as long after each further one.
/// A store tells nobody that a lock has become free.
pub const STORE_LOCK_RETRY: Duration = Duration::from_millis(1);

/// The longest such wait: what an interrupt, and the next holder, may wait beyond need.
pub const STORE_LOCK_RETRY_MAX: Duration = Duration::from_millis(32);

/// Longest line of a request on the control socket, bytes.
pub const CONTROL_LINE_BYTES_MAX: usize = 1 << 20;

/// Most commands served at once on the control socket: each has a thread.
pub const CONTROL_CONNECTIONS_MAX: usize = 32;

/// How long the control socket's thread sleeps at most before it looks whether it should end.
pub const CONTROL_POLL: Duration = Duration::from_millis(200);

/// Files that one staging command copies at once: a small file is a wait of one round trip to the store, and little else.
pub const STAGE_STREAMS: usize = 8;

/// Outcomes of files that wait to be told; the threads that stage wait then.
pub const STAGE_TOLD_MAX: usize = 64;

/// How often a staging command looks whether it was interrupted.
pub const STAGE_POLL: Duration = Duration::from_millis(20);

/// How long an answer may stand unread in the control socket before the command is given up.
pub const CONTROL_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the agent says on the control socket that it lives, while a command has nothing to tell.
pub const CONTROL_BEAT: Duration = Duration::from_secs(1);

/// How long an agent may say nothing before a command takes it for stopped: ten beats, so that a busy machine is not.
pub const CONTROL_SILENCE: Duration = Duration::from_secs(10);

/// How long the question for a server's counters waits for it: less than a command takes for an agent that hangs.
pub const SERVER_STATUS: Duration = Duration::from_secs(5);

/// How long a release waits until the server has heard of it; then it is told behind the kernel's back.
pub const SERVER_RELEASE: Duration = Duration::from_secs(2);

/// Writes of one file's windows that are on their way to a server at once: at 2 ms a round trip 4,000 a second, and a third of
/// the connections that small requests may have.
pub const SERVER_WRITES_AT_ONCE: usize = 8;

/// A bound that follows what is measured.
pub struct Measured {
    /// Where it begins; it is never less.
    pub start: usize,
    /// It is never more.
    pub most: usize,
}

/// Large writes of all drains that are on their way to a server at once. Four: some pass the wire while the server does the others.
/// Three quarters of the connections that large requests may have.
pub const SERVER_WIDTH: Measured = Measured { start: 4, most: 12 };

/// Memory of the node for what is read ahead from a server, bytes, of all files together: eight files at full width.
pub const SERVER_AHEAD_BYTES: u64 = 256 << 20;

/// The same of one file: so much of it may be read at random from memory, and others still find room. What is older than
/// `revalidate` goes when there is none left.
pub const SERVER_AHEAD_FILE_BYTES: u64 = 128 << 20;

/// Of these, bytes from which on what was read goes: who reads what others have just read finds it, and memory is used again that
/// the processor still has at hand: half of a cache of 32 MiB.
pub const SERVER_AHEAD_READ_BYTES: u64 = 16 << 20;

/// Of the same memory, so much is shared out among the open files that are being read: the rest is for what they have read.
pub const SERVER_AHEAD_SHARED_BYTES: u64 = 192 << 20;

/// The least of that for one open file: two requests, one to be read and one on its way.
pub const SERVER_AHEAD_SHARE_MIN: u64 = 2 << 20;

/// The least that is kept ahead of a reader, however slowly it reads: less would cost a round trip for each of its requests.
pub const SERVER_AHEAD_LEAST: u64 = 128 << 10;

/// An open file that was not read for twice as long is not counted among those that are.
pub const SERVER_AHEAD_SHARE_FOR: Duration = Duration::from_millis(500);

/// Buffers of 1 MiB that wait to be fetched into, beside those that hold something: as many as come back at once when what was read
/// goes.
pub const SERVER_FREE_BUFFERS: usize = 64;

/// How long a thread that reads ahead waits for more to do, and with the last one its buffers: programs compute between their reads.
pub const SERVER_FETCHER_RESTS: Duration = Duration::from_millis(500);

/// Requests that read ahead at once: half of the connections that large requests may have, so that readers who wait find one.
pub const SERVER_FETCHERS: usize = 8;

/// Requests that wait to be made: a few files at full width. Beyond that nothing is read ahead.
pub const SERVER_FETCHES_MAX: usize = 1024;

/// Ranges that one open file's reads may have asked for while none of them has ended.
pub const SERVER_WANTED_MAX: usize = 256;

/// Most connections that are made before they are needed, of each kind: one takes three round trips, which programs that start at
/// the same time would all wait for. As many as there are opens at once, so that a quiet node has none too many: each is a thread of the server.
pub const SERVER_READY: usize = 4;

/// How long a program that asks for a window waits for a server; then it does without.
pub const SERVER_ATTACH: Duration = Duration::from_secs(2);

/// Different rules that are remembered in the form in which they are sent to a server.
pub const SERVER_POLICIES_MAX: usize = 64;

/// Written files that are remembered before those that the server calls clean are forgotten, and again at twice what is left.
pub const SERVER_WRITTEN: usize = 1 << 16;

/// How long a request waits for a writer that is in the midst of an append before its ring ends and it goes to the kernel: a
/// busy machine may take a thread away for a time slice or two in the midst of a copy.
pub const WINDOW_HOLE_WAIT: Duration = Duration::from_millis(50);

/// How long writers wait for room behind another's unfinished append before its ring ends, when nothing else of the file moves: some time
/// slices more than a request waits, for what it copies may have to be read first.
pub const WINDOW_STUCK_WAIT: Duration = Duration::from_millis(200);

/// Turns in which whoever waits for a file's windows finds something to take, of twice as many for all that they hold: more than a
/// program publishes by single records within [`WINDOW_HOLE_WAIT`], and an end for one that does so for ever.
pub const WINDOW_SETTLE_TURNS: u64 = 16 << 10;

/// Tries to attach a window to a file whose windows end at the same moment.
pub const WINDOW_ATTACH_TRIES: usize = 8;

/// How long acknowledged bytes wait for neighbours before they are drained in smaller writes.
pub const WINDOW_DRAIN_AFTER: Duration = Duration::from_millis(20);

/// How long a writer who is short of room is kept waiting for others that write the same file, so that their bytes travel together: what lies
/// alone, a few pages with others' between, takes twice the time to be written.
pub const WINDOW_NEIGHBOURS: Duration = Duration::from_millis(4);

/// How often a busy window is looked at: a writer at memory speed fills a few MiB meanwhile.
pub const WINDOW_POLL: Duration = Duration::from_millis(1);

/// How far behind the end of what a program writes in sequence its bytes are written back to the burst buffer's medium: what is smaller, and
/// perhaps gone soon, is left to the kernel, as is what may be written again.
pub const WINDOW_BEHIND: u64 = 32 << 20;

/// Bytes by which that goes on.
pub const WINDOW_BEHIND_BYTES: u64 = 8 << 20;

/// Bytes that are begun to be written back by one call: whoever closes the file waits for them.
pub const WINDOW_BEHIND_PIECE: u64 = 1 << 20;

/// How long he waits at most, where the medium stands still.
pub const WINDOW_BEHIND_END_WAIT: Duration = Duration::from_millis(50);

/// Such steps that wait for the medium: what there is no room for is the kernel's.
pub const WINDOW_BEHIND_QUEUE_MAX: usize = 64;

/// Places of a file told apart at which programs write in sequence: as many share a file on most nodes.
pub const WINDOW_RUNS_MAX: usize = 16;

/// Bytes that may be missing within such a sequence, for others will bring them.
pub const WINDOW_RUN_GAP: u64 = 1 << 20;

/// How far whoever begins that gives way to others (`nice`): where processors are scarce writing goes on faster by a tenth.
pub const WINDOW_BEHIND_NICE: i32 = 10;

/// How long an idle window's thread sleeps at most before it looks up from the bell.
pub const WINDOW_SLEEP: Duration = Duration::from_millis(200);

/// How long `status` waits for the drain of one file before it does without its numbers of this moment.
pub const WINDOW_STATUS_WAIT: Duration = Duration::from_millis(100);

/// How long the drain of all that was written at a server waits for files that are being closed: the program is gone, and the last call to
/// the server under way. What is open longer than that is in use.
pub const CLOSES_WAIT: Duration = Duration::from_millis(500);

/// How often it looks: a call to the server takes no less.
pub const CLOSES_WAIT_STEP: Duration = Duration::from_millis(2);

/// How often who waits for the rings of a file, which may be on their way to a server, looks whether it was interrupted.
pub const WINDOW_LOOK: Duration = Duration::from_millis(50);

/// How long a drain that failed waits before it is tried again.
pub const WINDOW_RETRY: Duration = Duration::from_millis(250);

/// Most programs registered for windows at once; each has a descriptor and a page.
pub const WINDOW_PROCESSES_MAX: usize = 1024;

/// Bytes of a window for which nobody says a size: larger ones gain nothing on one burst buffer.
pub const WINDOW_BYTES: u64 = 16 << 20;

/// Bytes of the node's memory for all windows, unless told otherwise: sixty-four programs at half size.
pub const WINDOW_BUDGET_BYTES: u64 = 1 << 30;

/// Most of the node's memory that the rings of all agents of root may take, in percent: `/dev/shm` may take half beside it, and programs must
/// have some. Where budgets together are more than that, the last program goes on without a window (`ENOSPC`).
pub const WINDOW_TMPFS_PERCENT: u32 = 25;

/// For how many seconds a file that was created through us, or looked at, is known to have no capabilities: others are noticed within about a second
/// everywhere (`revalidate`).
pub const PLAIN_S: u64 = 1;

/// Looks at one name while other files take its place: each time that happens a stage-out has ended in between.
pub const LOOKUP_TRIES: usize = 16;

/// A call to the global store that lasts longer is shown in the status: nothing that is only slow takes so long.
pub const STORE_SLOW: Duration = Duration::from_secs(2);

/// Most of them that are listed one by one.
pub const STORE_CALLS_LISTED: usize = 100;

/// Parts of records that are written to a replica in one call: each may lie in two places, and the system takes 1,024.
pub const WINDOW_PIECE_PARTS_MAX: usize = 512;

/// Looks at a file below that becomes clean again and again while it is looked at.
pub(crate) const SETTLED_TRIES: u32 = 4;

/// How long a thread that asks beside another is kept without a job.
pub(crate) const HELPER_REST: Duration = Duration::from_secs(10);
