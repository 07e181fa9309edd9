//! What a directory's rules say, resolved for one file.

use std::time::Duration;

use crate::units::{format_size, parse_size};

/// Which data is accelerated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Writes land in the burst buffer and reads are copied up.
    Both,
    /// Only writes land in the burst buffer.
    WriteCache,
    /// Only reads are copied up; writes go to the global store.
    Preload,
    /// Nothing: every byte goes to and comes from the global store.
    Through,
    /// Written data stays in the burst buffer and is never staged out by itself.
    Scratch,
}

/// What starts a stage-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageOut {
    /// The last close.
    Close,
    /// The file was not used for this long.
    Idle(Duration),
    /// This long after the first undrained change.
    Age(Duration),
    /// More than this many undrained bytes in the directory's files.
    Size(u64),
    /// Only a command.
    Manual,
    /// The end of the mount.
    Exit,
}

/// How long a clean replica is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAfter {
    /// This long after its last use.
    For(Duration),
    /// Not at all: dropped once clean.
    Delete,
}

/// How a stage-out is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Bytes written, fsync and a final stat.
    Counts,
    /// The global copy is read back and compared.
    Full,
}

/// What to do when the global copy changed under a dirty replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Keep both, stop and report.
    Keep,
    /// The replica replaces the global copy.
    DirtyWins,
}

/// Whether reading a file moves its time of last access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// It does not.
    No,
    /// As on a file system mounted with `relatime`.
    Relative,
    /// It does.
    Strict,
}

/// Which programs the locks of a file (`fcntl`, `flock`) exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Those of all nodes where the global store can keep that, else those of this node.
    Auto,
    /// Those of this node.
    Local,
    /// Those of all nodes; where that cannot be kept, a lock is refused with `ENOLCK`.
    Refuse,
}

/// The window of an open file, for its writes where the agent serves windows or ahead of its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowPolicy {
    /// As the agent chooses.
    #[default]
    Auto,
    /// None.
    Off,
    /// About so many bytes.
    Size(u64),
}

impl WindowPolicy {
    /// Bytes wanted, 0 for the agent's choice; `None`: none.
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

/// A file's rules: its directory's, with what that inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// `cache`
    pub cache: Cache,
    /// `stage_out`
    pub stage_out: StageOut,
    /// `keep_after`
    pub keep_after: KeepAfter,
    /// `close`: true for `lazy`, false for `drain`.
    pub close_lazy: bool,
    /// `durable_at`: true for `close`, false for `fsync`.
    pub durable_at_close: bool,
    /// `fsync`: true for `global`, false for `burst-buffer`.
    pub fsync_global: bool,
    /// `rename`: true for `commit`, false for `lazy`.
    pub rename_commits: bool,
    /// `publish`: true for `atomic`, false for `in-place`.
    pub publish_atomic: bool,
    /// `verify`
    pub verify: Verify,
    /// `revalidate`: how long attributes and a clean replica are trusted.
    pub revalidate: Duration,
    /// `negative_timeout`: how long a name that was not there is trusted not to be.
    pub negative_timeout: Duration,
    /// `on_conflict`
    pub on_conflict: OnConflict,
    /// `remote_wait`: how long an open waits for another agent's mark to go.
    pub remote_wait: Duration,
    /// `io_timeout`: how long what changes nothing waits for a server of the burst buffer.
    pub io_timeout: Duration,
    /// `passthrough_reserve`: share of the burst buffer kept free for kernel writes, in thousandths.
    pub reserve_thousandths: u32,
    /// `rate`: most bytes a second staged out, 0 for no limit.
    pub rate_bytes_per_s: u64,
    /// `atime`
    pub atime: Atime,
    /// `lock`
    pub lock: Lock,
    /// `window`
    pub window: WindowPolicy,
    /// `read_ahead`: bytes of the burst buffer, for each open file.
    pub read_ahead: WindowPolicy,
    /// `unavailable`: how long a call waits for a global store that does not answer; `None`: for ever.
    pub unavailable: Option<Duration>,
    /// `rw_conflict`: true for `disable`, false for `invalidate`.
    pub read_ends_windows: bool,
    /// `write_back`: true for `early`, false for `kernel`.
    pub write_back_early: bool,
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
            publish_atomic: false,
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
        }
    }
}
