//! Bounds of the protocol layer, each with its reason.

use std::time::Duration;

/// Threads that read while several programs ask or handlers are slow. The kernel sends RELEASE without waiting, beside
/// the next OPEN. A third thread must be reading meanwhile, or every other request wakes a spare by futex. While one
/// program asks and handlers are brief, one thread reads and runs: see `shift.rs`, and `docs/adr/0005-one-reader.md`
/// for the gain. Measured by `benches/opens.py`: 67 us for open, read, close instead of 318.
pub const THREADS_READING: usize = 3;

/// Interval at which the watch checks a request that runs while nobody reads. When a handler blocks, other requests
/// wait for at most two intervals. Each costs a timer's wake-up, and only while requests come.
pub const TICK: Duration = Duration::from_millis(1);

/// Ticks for which [`THREADS_READING`] stay ready after a tick in which a handler was slow or programs took turns. A
/// slow store or a second program is noticed again within these. With more ticks, a machine so busy that handlers are
/// delayed now and then would never have a lone reader.
pub const EAGER_TICKS: u32 = 8;

/// Ticks without a request after which the watch sleeps. Waking the watch costs the next request some microseconds.
pub const QUIET_TICKS: u32 = 100;

/// Ticks after which the processor of the only caller is looked up again, which takes some 20 microseconds. The
/// scheduler moves programs at ticks of its own, 1 to 10 ms.
pub const FOLLOW_TICKS: u32 = 4;

/// Ticks for which no reader has idle priority after one was held up by others. A machine that computes on all
/// processors needs no such reader, because no processor is idle. Finding that out again costs two ticks.
pub const PROUD_TICKS: u32 = 50;

/// Ticks at which requests may wait for a handler that could run and has no processor, before another thread reads.
/// `pip install` into a new delegated directory took 8.8 to 9.5 s with 1, 8.2 to 8.3 s with 4, and 8.4 to 8.9 s with 8,
/// in two interleaved rounds, when blocked handlers were not yet told apart. ADR 5 has the figures since.
pub const PATIENCE_TICKS: u32 = 4;

/// Time that the watch may be silent while requests come, before a spare releases it and the reader from their
/// processor. A longer silence means that a thread of real-time priority took that processor after they moved there.
pub const WATCH_SILENCE: Duration = Duration::from_millis(50);

/// Changes of the caller within a tick that mean several programs at once. A shell that starts one program after the
/// other stays below.
pub const CALLER_TURNS: u32 = 4;

/// Bytes read of `/proc/PID/stat`: 52 numbers of at most 20 digits, and a name.
pub const PROC_STAT_BYTES: usize = 1536;

/// Maximum number of threads of a session. Handlers block on the global store, so this is the number of its concurrent
/// requests, not of processors. Parallel file systems are busy with a few dozen. 64 pairs of 1 MiB buffers take
/// no more than 128 MiB.
pub const THREADS_MAX: usize = 64;

/// Time that idle threads are kept, beyond the one that stands by. Bursts of metadata come seconds apart, and a new
/// thread costs about 20 us.
pub const SPARE_THREAD: Duration = Duration::from_secs(10);

/// Interval at which unanswered requests are checked. A request is given up at most two intervals late.
pub const LATE_POLL: Duration = Duration::from_millis(100);

/// Interval of that check if there was no request at the last one, so that an idle mount takes nothing from programs.
pub const LATE_REST: Duration = Duration::from_secs(1);

/// Threads beyond [`THREADS_MAX`] that replace handlers stuck in a hanging store. Requests that need no store continue.
/// Each thread costs its stack and its buffer, of which it uses little.
pub const STUCK_THREADS_MAX: usize = 448;

/// Requests taken from the kernel while all threads are blocked. The kernel sends an interrupt behind all waiting
/// requests, so a thread must continue to read. Beyond this number the reader runs a request itself.
pub const WAITING_REQUESTS_MAX: usize = 1024;

/// Bytes of those requests: one 1 MiB write of each thread.
pub const WAITING_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of one write request. 1 MiB is the kernel's default limit (`fs.fuse.max_pages_limit` = 256 pages).
pub const WRITE_MAX: u32 = 1 << 20;

/// Maximum pages of one request: the kernel's limit for an unprivileged setting.
pub const PAGES_MAX: u16 = 256;

/// Bytes before the data of a write. The kernel demands at least its header plus `fuse_write_in` (80 bytes). A whole
/// page keeps the data page-aligned in the buffer.
pub const HEADER_ROOM: usize = 4096;

/// Maximum bytes of a reply that a request may ask for: a read of [`PAGES_MAX`] pages of 4 KiB.
pub const READ_MAX: usize = 1 << 20;

/// Maximum parts of the answer to a read that are sent in place. With more parts, each is so small that copying is
/// cheaper.
pub const READ_PARTS_MAX: usize = 8;

/// Largest value of an extended attribute, bytes: `XATTR_SIZE_MAX` of the kernel.
pub const XATTR_MAX: usize = 64 << 10;

/// Oldest protocol minor that is served. 7.31 (Linux 5.4) has max_pages, readdirplus and every structure decoded here.
pub const MINOR_MIN: u32 = 31;

/// Protocol minor that this layer speaks.
pub const MINOR: u32 = 45;

/// Shards of the table of running requests: enough that 64 threads rarely meet.
pub const INTERRUPT_SHARDS: usize = 16;

/// Most pages remembered of a file that is locked here, the last ones read: half a megabyte.
pub const PAGES_KEPT: usize = 128;

/// Largest read whose pages are remembered, bytes: the size that the kernel reads around a page fault. Larger reads
/// are streams.
pub const PAGES_READ_MAX: usize = 128 << 10;

/// Most files of which pages are remembered.
pub const PAGES_FILES_MAX: usize = 32;

/// Most pieces in which the changed parts of one write are sent, each as a request of its own.
pub const PAGE_RUNS_MAX: usize = 128;
