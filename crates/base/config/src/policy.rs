//! The policy in force for one file, with every key resolved.

use std::time::Duration;

use crate::units::{format_size, parse_size};

/// Data that is accelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Writes go to the burst buffer, and data that is read is copied into it.
    Both,
    /// Writes go to the burst buffer; reads do not copy data into it.
    WriteCache,
    /// Data that is read is copied into the burst buffer; writes go to the global store.
    Preload,
    /// No data: all reads and writes use the global store.
    Through,
    /// Writes go to the burst buffer and data that is read is copied into it. Stage-out happens only by a command or at
    /// the end of the mount.
    Scratch,
}

/// The event that starts a stage-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageOut {
    /// The last close of the file.
    Close,
    /// No use of the file for this long.
    Idle(Duration),
    /// Expiry of this time after the first change that is not staged out.
    Age(Duration),
    /// More than this many bytes not staged out in the directory's files.
    Size(u64),
    /// Only a command (`forebay`).
    Manual,
    /// The end of the mount.
    Exit,
}

/// Retention of a clean replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAfter {
    /// This long after the last use of the replica.
    For(Duration),
    /// No time: the replica is deleted as soon as it is clean.
    Delete,
}

/// Verification of a stage-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// The number of bytes written, the result of `fsync` and a final `stat`.
    Counts,
    /// Reading the global copy back and comparing it.
    Full,
}

/// Reaction to a global copy that somebody changed while the replica was dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Keep both copies, stop staging out, and report the conflict.
    Keep,
    /// The replica replaces the global copy.
    DirtyWins,
}

/// Which directories are delegated: their names are answered by the agent alone until the global store gets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegate {
    /// None.
    Off,
    /// Those that are made through the agent, with all below them.
    New,
    /// Existing ones as well, each from the first lookup of its name.
    Lease,
}

/// Whether reading a file updates its access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Reading never updates the access time.
    No,
    /// Access times are updated as on a file system mounted with `relatime`.
    Relative,
    /// Every read updates the access time.
    Strict,
}

/// Which processes the locks of a file (`fcntl`, `flock`) exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Processes on all nodes if the global store supports that, otherwise processes of this node.
    Auto,
    /// Processes of this node.
    Local,
    /// Processes on all nodes; if the global store does not support that, a lock is refused with `ENOLCK`.
    Refuse,
}

/// The write window or the read-ahead of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowPolicy {
    /// Size chosen by the agent.
    #[default]
    Auto,
    /// No window.
    Off,
    /// Approximate size in bytes.
    Size(u64),
}

impl WindowPolicy {
    /// Returns the wanted size in bytes, 0 for the agent's choice, or `None` for no window.
    pub fn wish(self) -> Option<u64> {
        match self {
            WindowPolicy::Auto => Some(0),
            WindowPolicy::Off => None,
            WindowPolicy::Size(bytes) => Some(bytes),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<WindowPolicy, String> {
        match text {
            "auto" => Ok(WindowPolicy::Auto),
            "off" => Ok(WindowPolicy::Off),
            size => match parse_size(size)? {
                0 => Err("0 is no size: write off".to_string()),
                bytes => Ok(WindowPolicy::Size(bytes)),
            },
        }
    }

    pub(crate) fn format(self) -> String {
        match self {
            WindowPolicy::Auto => "auto".to_string(),
            WindowPolicy::Off => "off".to_string(),
            WindowPolicy::Size(bytes) => format_size(bytes),
        }
    }
}

/// The values of all keys in force for one file: those set on its directory and those inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// `cache`.
    pub cache: Cache,
    /// `stage_out`.
    pub stage_out: StageOut,
    /// `keep_after`.
    pub keep_after: KeepAfter,
    /// `close`: true for `lazy`, false for `drain`.
    pub close_lazy: bool,
    /// `durable_at`: true for `close`, false for `fsync`.
    pub durable_at_close: bool,
    /// `fsync`: true for `global`, false for `burst-buffer`.
    pub fsync_global: bool,
    /// `rename`: true for `commit`, false for `lazy`.
    pub rename_commits: bool,
    /// `verify`.
    pub verify: Verify,
    /// `revalidate`: how long attributes and a clean replica are used without checking the global copy.
    pub revalidate: Duration,
    /// `negative_timeout`: how long a name that did not exist is assumed not to exist.
    pub negative_timeout: Duration,
    /// `on_conflict`.
    pub on_conflict: OnConflict,
    /// `remote_wait`: how long an open waits until another agent removes its dirty mark.
    pub remote_wait: Duration,
    /// `io_timeout`: how long an operation that changes nothing waits for a server of the burst buffer.
    pub io_timeout: Duration,
    /// `passthrough_reserve`: share of the burst buffer kept free for writes by the kernel, in thousandths.
    pub reserve_thousandths: u32,
    /// `rate`: limit of the stage-out rate in bytes per second; 0: no limit.
    pub rate_bytes_per_s: u64,
    /// `atime`.
    pub atime: Atime,
    /// `lock`.
    pub lock: Lock,
    /// `window`.
    pub window: WindowPolicy,
    /// `read_ahead`: bytes of the burst buffer for each open file.
    pub read_ahead: WindowPolicy,
    /// `unavailable`: how long a call waits for a global store that does not answer; `None`: for ever.
    pub unavailable: Option<Duration>,
    /// `rw_conflict`: true for `disable`, false for `invalidate`.
    pub read_ends_windows: bool,
    /// `write_back`: true for `early`, false for `kernel`.
    pub write_back_early: bool,
    /// `delegate`.
    pub delegate: Delegate,
    /// `name_streams`: most requests at a time that bring names of a delegated tree to the global store.
    pub name_streams: usize,
    /// `delegate_order`: true for `strict`, false for `batch`.
    pub delegate_strict: bool,
    /// `small_file`: most bytes of a file of a delegated directory that is packed with others; 0: none is.
    pub small_file_bytes: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            cache: Cache::Both,
            stage_out: StageOut::Close,
            keep_after: KeepAfter::For(Duration::from_secs(3600)),
            close_lazy: false,
            durable_at_close: false,
            fsync_global: false,
            rename_commits: true,
            verify: Verify::Counts,
            revalidate: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            on_conflict: OnConflict::Keep,
            remote_wait: Duration::from_secs(60),
            io_timeout: Duration::from_secs(30),
            reserve_thousandths: 50,
            rate_bytes_per_s: 0,
            atime: Atime::No,
            lock: Lock::Auto,
            window: WindowPolicy::Auto,
            read_ahead: WindowPolicy::Auto,
            unavailable: None,
            read_ends_windows: false,
            write_back_early: true,
            delegate: Delegate::Off,
            name_streams: 32,
            delegate_strict: false,
            small_file_bytes: 256 << 10,
        }
    }
}
