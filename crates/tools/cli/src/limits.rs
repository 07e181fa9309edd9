//! Bounds of the program, each with its reason.

use std::time::Duration;

/// Interval at which waits look again: short enough to feel immediate, long enough to cost nothing.
pub const POLL: Duration = Duration::from_millis(50);
/// Interval between looks at signals and at what is awaited while an agent starts. The start itself takes a few
/// milliseconds.
pub const START_LOOK: Duration = Duration::from_millis(5);
/// How long the namespace of an ended command may take to vanish before its users are looked for. The kernel needs
/// milliseconds; a loaded machine a second.
pub const NAMESPACE_END: Duration = Duration::from_millis(300);
/// Bound for the numbers of all descriptors of an agent that has served nothing yet, for kernels that cannot close
/// all at once.
pub const DESCRIPTORS_AT_START: i32 = 4096;
/// Size at which `agent.log` is renamed to `agent.log.1`, bytes. There are at most two files.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Time between plain progress lines where there is no terminal: a log of an hour's drain stays readable.
pub const PROGRESS_LINE: Duration = Duration::from_secs(5);
/// Shortest duration of a task that shows progress: a bar that flashes by only disturbs.
pub const PROGRESS_AFTER: Duration = Duration::from_millis(300);
/// Time between redraws of a progress bar.
pub const PROGRESS_DRAW: Duration = Duration::from_millis(100);
/// Most dirty files or holders listed before "and N more".
pub const LISTED_MAX: usize = 20;
/// Longest error text that a child process hands to its parent.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// How long `doctor` waits for a probe before it is killed and called hanging.
pub const PROBE: Duration = Duration::from_secs(10);
/// `MemAvailable` below which `doctor` warns: buffers of all threads and the catalogue need about a quarter of it.
pub const MEMORY_WARN_BYTES: u64 = 512 << 20;
/// Divisor of the memory that this process may take: that share is for windows by default, and the rest for programs.
pub const WINDOW_MEMORY_SHARE: u64 = 8;
/// Open-file limit below which `doctor` warns: an agent needs about three descriptors for each open file.
pub const NOFILE_WARN: u64 = 65_536;
/// Tries of a drain while files are merely in use, [`POLL`] apart. The kernel releases a closed file a moment after
/// `close` has returned.
pub const RELEASE_TRIES: usize = 5;
/// Tries of a busy unmount, [`POLL`] apart, before its users are named.
pub const UNMOUNT_TRIES: usize = 5;
/// How long `umount --force` waits for a drain that comes no further: a store that is only slow moves a piece of a file within it.
pub const FORCED_DRAIN: Duration = Duration::from_secs(5);
/// Longest wait without progress, in an agent that must end, for data written after that drain.
pub const FORCED_END: Duration = Duration::from_secs(1);
/// Longest wait of `umount --force` for the agent's end. Calls to the store or to a hanging burst buffer may never
/// return.
pub const FORCED_WAIT: Duration = Duration::from_secs(6);
/// Arenas of the heap. Threads keep small blocks of their own in any case; with two, an agent that has made and read 100,000
/// files holds 50 MB, with the C library's choice (eight a processor) 69 MB.
pub const HEAP_ARENAS_MAX: i32 = 2;
/// Size from which blocks are mapped separately and returned to the system when freed, bytes: copy and request
/// buffers.
pub const HEAP_MAPPED_BYTES: i32 = 256 << 10;
/// Free bytes at the top of the heap that are not returned to the system: returning and requesting them again costs
/// page faults.
pub const HEAP_KEPT_BYTES: i32 = 1 << 20;
/// Longest wait of `status` for a server that has the names: less than a command waits for a hanging agent.
pub const SERVER_STATUS: Duration = Duration::from_secs(5);
/// Longest attribute value read by a separate process, bytes: a path of `/proc`.
pub const ANSWER_BYTES: usize = 256;
/// Longest wait for a mount that is asked through its attributes: the same as for an agent on its socket.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Descriptors for which the agent's table has room from its start, 8 bytes each.
pub const TABLE_SLOTS: u64 = 65_536;
/// Names made, removed or moved one by one in the global store from which the end of a run says what delegation would do.
pub const NAMES_TOLD: u64 = 1000;
/// Mounts of ours over one directory that a look below takes away at most, in a mount namespace of its own.
pub const HIDDEN_MOUNTS_MAX: usize = 16;
