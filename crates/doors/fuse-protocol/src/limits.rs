//! The named bounds of the protocol layer, each with its reason.

use std::time::Duration;

/// Threads that read while several programs ask, or handlers are slow: the kernel sends RELEASE without waiting, beside
/// the next OPEN, and a third must be reading meanwhile, or every other request wakes a spare by futex. While one
/// program asks and handlers are brief, one thread reads and runs: see `shift.rs`, and `docs/adr/0005-one-reader.md` for what
/// it gains (`benches/opens.py`: 67 us for open, read, close instead of 318).
pub const THREADS_READING: usize = 3;

/// How often the watch looks at a request that is run while nobody reads. Others wait for two of these at most when a
/// handler blocks; each costs a timer's wake-up, and only while requests come.
pub const TICK: Duration = Duration::from_millis(1);

/// Ticks for which [`THREADS_READING`] stay ready after a tick in which a handler was slow or programs took turns: a store
/// that is slow, or a second program, is seen again within these. Longer, and a machine so busy that handlers are
/// held up now and then would never have a lone reader.
pub const EAGER_TICKS: u32 = 8;

/// Ticks without a request after which the watch sleeps. Waking it costs the next request some microseconds.
pub const QUIET_TICKS: u32 = 100;

/// Ticks after which the processor of the only caller is looked up again, in some 20 microseconds: the scheduler moves
/// programs at ticks of its own, 1 to 10 ms.
pub const FOLLOW_TICKS: u32 = 4;

/// Ticks for which no reader is of idle priority after one was held up by others: a machine that computes on all
/// processors needs none (nothing is idle that a program could be put on), and finding that out again costs two ticks of
/// these.
pub const PROUD_TICKS: u32 = 50;

/// How long the watch may be silent while requests come before a spare lets it and the reader go: what keeps them from their
/// processor is of real-time priority, and came after they did.
pub const WATCH_SILENCE: Duration = Duration::from_millis(50);

/// Changes of the caller within a tick that mean programs that run at once. A shell that starts a program after the
/// other stays below.
pub const CALLER_TURNS: u32 = 4;

/// Room for `/proc/PID/stat`: 52 numbers of at most 20 digits, and a name.
pub const PROC_STAT_BYTES: usize = 1536;

/// Most threads of a session. Handlers block on the global store, so this is the number of its requests under way, not
/// of processors; parallel file systems are busy with a few dozen, and 64 pairs of 1 MiB buffers are still 128 MiB.
pub const THREADS_MAX: usize = 64;

/// How long threads without work are kept warm, beyond the one that stands by: bursts of metadata come seconds apart, and a
/// new thread costs about 20 us.
pub const SPARE_THREAD: Duration = Duration::from_secs(10);

/// How often requests that are not answered are looked at: what is given up is so at most two of these late.
pub const LATE_POLL: Duration = Duration::from_millis(100);

/// The same where there was no request at the last look: an idle mount takes nothing from the programs of its node.
pub const LATE_REST: Duration = Duration::from_secs(1);

/// Threads beyond [`THREADS_MAX`] that stand for handlers that are stuck in a store that hangs, so that what needs no store
/// goes on. Each costs its stack and its buffer, of which it uses little.
pub const STUCK_THREADS_MAX: usize = 448;

/// Requests taken from the kernel while all threads are blocked. The kernel sends an interrupt behind whatever waits
/// before it, so somebody must go on reading; beyond this many the reader runs one itself.
pub const WAITING_REQUESTS_MAX: usize = 1024;

/// Bytes of those requests: one 1 MiB write of each thread.
pub const WAITING_BYTES_MAX: usize = 64 << 20;

/// Most bytes of one write request. 1 MiB is the kernel's default ceiling (`fs.fuse.max_pages_limit` = 256 pages).
pub const WRITE_MAX: u32 = 1 << 20;

/// Most pages of one request, the kernel's ceiling for an unprivileged setting.
pub const PAGES_MAX: u16 = 256;

/// Room before the data of a write: the kernel demands at least its header plus `fuse_write_in` (80 bytes), and a page
/// keeps the data page aligned in the buffer.
pub const HEADER_ROOM: usize = 4096;

/// Most bytes of a reply that a request may ask for: a read of [`PAGES_MAX`] pages of 4 KiB.
pub const READ_MAX: usize = 1 << 20;

/// Most parts of the answer to a read that are sent from where they lie. More are so small that copying them is cheaper.
pub const READ_PARTS_MAX: usize = 8;

/// Largest value of an extended attribute, `XATTR_SIZE_MAX` of the kernel.
pub const XATTR_MAX: usize = 64 << 10;

/// Oldest protocol minor that is served: 7.31 (Linux 5.4) has max_pages, readdirplus and every structure decoded here.
pub const MINOR_MIN: u32 = 31;

/// The protocol minor that this layer speaks.
pub const MINOR: u32 = 45;

/// Shards of the table of running requests: enough that 64 threads rarely meet.
pub const INTERRUPT_SHARDS: usize = 16;
