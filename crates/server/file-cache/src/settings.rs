//! What a file cache is opened with, and why that can fail.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use catalogue::Catalogue;
use config::Policy;
use global_store::GlobalStore;

use crate::clean::Which;
use crate::clock::Clock;

/// Bytes of the burst buffer's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What may still be written.
    pub free: u64,
}

/// The seam under every question about free space; production asks `statvfs`.
pub type SpaceProbe = Arc<dyn Fn() -> io::Result<Space> + Send + Sync>;

/// Drops clean data of other places in the same burst buffer, which may take some seconds, and returns how many bytes that freed.
pub type Neighbours = Arc<dyn Fn(&Which) -> u64 + Send + Sync>;

/// What a file cache is opened with.
#[derive(Clone)]
pub struct Settings {
    /// The burst buffer's directory. Created if it is missing; all in it is ours.
    pub burst_buffer: PathBuf,
    /// The slow store below.
    pub store: Arc<dyn GlobalStore>,
    /// Which accelerated directory this is; kept in the burst buffer, another one is refused.
    pub store_id: String,
    /// Where the records are; `None` for the catalogue in the burst buffer.
    pub catalogue: Option<Arc<dyn Catalogue>>,
    /// Rules for files known only from the catalogue, until somebody opens them with their own.
    pub policy: Arc<Policy>,
    /// Stage-outs that run at once, 1 to 64.
    pub streams: usize,
    /// Stage-ins that run at once, 1 to 64.
    pub fetches: usize,
    /// Bytes kept back to be released when the burst buffer is full; 0 for none.
    pub ballast_bytes: u64,
    /// Who makes room in other places of the burst buffer when it fills; `None`: nobody.
    pub neighbours: Option<Neighbours>,
    /// Another way to ask for free space; `None` for `statvfs`.
    pub space: Option<SpaceProbe>,
    /// Another monotonic clock; `None` for the system's.
    pub clock: Option<Clock>,
    /// Who we are in a mark on a shared global store: host and a random part, one line. Kept in the burst buffer with its
    /// first use; an agent that starts again on it is the same.
    pub agent_id: String,
    /// Whether unsaved data is looked for in the replicas themselves although the catalogue seems whole: reads the
    /// attributes of every replica.
    pub thorough: bool,
    /// Whether background threads run. Without them nothing is staged out but by `drain_*`, nothing fetched ahead.
    pub background: bool,
}

impl Settings {
    /// The defaults for a directory: 4 streams, 8 fetches, 16 MiB of ballast, background threads on.
    pub fn new(burst_buffer: impl Into<PathBuf>, store: Arc<dyn GlobalStore>, store_id: impl Into<String>) -> Settings {
        Settings {
            burst_buffer: burst_buffer.into(),
            store,
            store_id: store_id.into(),
            catalogue: None,
            policy: Arc::new(Policy::default()),
            streams: 4,
            fetches: 8,
            ballast_bytes: 16 << 20,
            neighbours: None,
            space: None,
            clock: None,
            agent_id: String::from("forebay"),
            thorough: false,
            background: true,
        }
    }
}

/// Why a burst buffer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another agent has it.
    #[error("the burst buffer {path} is in use by process {pid}: stop that agent, or name another directory")]
    InUse {
        /// Which directory.
        path: PathBuf,
        /// Whose it is, as the lock file says.
        pid: String,
    },
    /// It was written by another version of Forebay.
    #[error(
        "the burst buffer {path} has format {found}, this program knows {known}: drain it with the version that wrote it"
    )]
    Format {
        /// Which directory.
        path: PathBuf,
        /// The format on disk.
        found: String,
        /// Ours.
        known: u32,
    },
    /// Its superblock is gone or cannot be read.
    #[error("the superblock of the burst buffer {path} {what}: `forebay check {path} --repair` makes a new one")]
    Superblock {
        /// Which directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It holds another accelerated directory's data.
    #[error("the burst buffer {path} holds the data of {found:?}, not of {wanted:?}: name another directory for it")]
    OtherStore {
        /// Which directory.
        path: PathBuf,
        /// Whose data it is.
        found: String,
        /// Who was asked for.
        wanted: String,
    },
    /// Other users could replace what is in it, and with it what programs read and what is staged out.
    #[error("{path} is not safe as a burst buffer: {reason}; make it your own: chown {uid} {path} && chmod 700 {path}")]
    Unsafe {
        /// Which directory.
        path: PathBuf,
        /// A sentence.
        reason: String,
        /// Ours.
        uid: u32,
    },
    /// The catalogue does not open.
    #[error("{0}")]
    Catalogue(#[from] catalogue::Error),
    /// A system call failed.
    #[error("the burst buffer {path}: cannot {step}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
