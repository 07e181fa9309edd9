//! The agent's bounds, each with its reason.

use std::time::Duration;

/// Most bytes that one `copy_file_range` request copies. The caller comes again for the rest and can be interrupted in
/// between.
pub const COPY_BYTES_PER_CALL: usize = 8 << 20;

/// The buffer of a copy: large enough for full speed, small enough for many at once.
pub const COPY_BUFFER_BYTES: usize = 1 << 20;

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

/// Seconds for which a file that was created through us, or looked at, is assumed to have no capabilities. Changes by
/// others are noticed within about a second everywhere (`revalidate`).
pub const PLAIN_S: u64 = 1;

/// Duration after which a call to the global store is shown in the status. A store that is merely slow answers sooner.
pub const STORE_SLOW: Duration = Duration::from_secs(2);

/// Most such calls that are listed one by one.
pub const STORE_CALLS_LISTED: usize = 100;

/// Tries to read the attributes of a file that becomes clean again and again meanwhile.
pub(crate) const SETTLED_TRIES: u32 = 4;
