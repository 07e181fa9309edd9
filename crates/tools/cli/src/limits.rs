//! Every bound of the program, with its reason.

use std::time::Duration;

/// How often a wait looks again: short enough to feel immediate, long enough to cost nothing.
pub const POLL: Duration = Duration::from_millis(50);
/// Between two looks at signals, and at what is awaited, while an agent starts: the start itself takes a few milliseconds.
pub const START_LOOK: Duration = Duration::from_millis(5);
/// How long the namespace of an ended command may take to vanish before its users are looked for. The kernel needs
/// milliseconds; a loaded machine a second.
pub const NAMESPACE_END: Duration = Duration::from_millis(300);
/// Numbers below which lie all descriptors of an agent that has served nothing yet, where the kernel cannot close all at once.
pub const DESCRIPTORS_AT_START: i32 = 4096;
/// Bytes at which `agent.log` is renamed to `agent.log.1`; two files at most.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Time between plain progress lines where there is no terminal: a log of an hour's drain stays readable.
pub const PROGRESS_LINE: Duration = Duration::from_secs(5);
/// A task shorter than this shows no progress: a bar that flashes by only disturbs.
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
/// Of the memory that this process may take, one in so many bytes is for windows unless told otherwise: the rest is the program's.
pub const WINDOW_MEMORY_SHARE: u64 = 8;
/// Open-file limit below which `doctor` warns: an agent needs about three descriptors an open file.
pub const NOFILE_WARN: u64 = 65_536;
/// How often a drain is tried while files only are in use, [`POLL`] apart: the kernel releases a closed file a moment
/// after `close` has returned.
pub const RELEASE_TRIES: usize = 5;
/// How often a busy unmount is tried, [`POLL`] apart, before its users are named.
pub const UNMOUNT_TRIES: usize = 5;
/// How long `umount --force` waits for a drain that comes no further: a store that is only slow moves a piece of a file within it.
pub const FORCED_DRAIN: Duration = Duration::from_secs(5);
/// How long an agent that is to end in any case waits so for what was written after that drain.
pub const FORCED_END: Duration = Duration::from_secs(1);
/// How long `umount --force` waits for the agent's end: its calls to the store, and those to a burst buffer that hangs, may not come back.
pub const FORCED_WAIT: Duration = Duration::from_secs(6);
/// Arenas of the heap. Threads keep small blocks of their own in any case; with two, an agent that has made and read 100,000
/// files holds 50 MB, with the C library's choice (eight a processor) 69 MB.
pub const HEAP_ARENAS_MAX: i32 = 2;
/// Blocks from this size on are mapped alone and go back to the system when they are freed: copy and request buffers.
pub const HEAP_MAPPED_BYTES: i32 = 256 << 10;
/// Free bytes at the top of the heap that are kept rather than given back: giving back and asking again costs page faults.
pub const HEAP_KEPT_BYTES: i32 = 1 << 20;
/// How long `status` waits for a server that has the names: less than a command takes for an agent that hangs.
pub const SERVER_STATUS: Duration = Duration::from_secs(5);
/// Longest value of an attribute that a process apart asks for: a path of `/proc`.
pub const ANSWER_BYTES: usize = 256;
/// How long a mount is waited for that is asked through its attributes: as long as an agent on its socket.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Descriptors for which the agent's table has room from its start: each takes 8 bytes.
pub const TABLE_SLOTS: u64 = 65_536;
