//! Settings with which a file cache is opened, and the errors of that.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use catalogue::Catalogue;
use config::Policy;
use global_store::GlobalStore;

use crate::api::Which;
use crate::clock::Clock;

/// Space of the burst buffer's file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Total size.
    pub total: u64,
    /// Bytes that may still be written.
    pub free: u64,
}

/// The function behind every question about free space. Production asks `statvfs`.
pub type SpaceProbe = Arc<dyn Fn() -> io::Result<Space> + Send + Sync>;

/// Drops clean data of other places in the same burst buffer, which may take some seconds. Returns how many bytes that
/// freed.
pub type Neighbours = Arc<dyn Fn(&Which) -> u64 + Send + Sync>;

/// Settings of a file cache.
#[derive(Clone)]
pub struct Settings {
    /// The burst buffer's directory. Created if it is missing. Everything in it belongs to the agent.
    pub burst_buffer: PathBuf,
    /// The global store.
    pub store: Arc<dyn GlobalStore>,
    /// Id of the accelerated directory. It is kept in the burst buffer, and another directory is refused.
    pub store_id: String,
    /// The catalogue of records; `None` for the one in the burst buffer.
    pub catalogue: Option<Arc<dyn Catalogue>>,
    /// Policy of files known only from the catalogue, until an open brings their own.
    pub policy: Arc<Policy>,
    /// Number of stage-outs that run at once, 1 to 64.
    pub streams: usize,
    /// Number of stage-ins that run at once, 1 to 64.
    pub fetches: usize,
    /// Bytes kept back, to be released when the burst buffer is full; 0 for none.
    pub ballast_bytes: u64,
    /// Function that makes room in other places of the burst buffer when it fills; `None` for none.
    pub neighbours: Option<Neighbours>,
    /// Function that returns the free space; `None` for `statvfs`.
    pub space: Option<SpaceProbe>,
    /// Monotonic clock; `None` for the system's.
    pub clock: Option<Clock>,
    /// Name of this agent in marks on a shared global store: host and a random part, one line. The burst buffer keeps
    /// the name of its first use, so an agent that starts again on it has the same name.
    pub agent_id: String,
    /// Whether unsaved data is searched in the replicas themselves although the catalogue seems complete. This reads
    /// the attributes of every replica.
    pub thorough: bool,
    /// Whether background threads run. Without them, only `drain_*` stages out, and nothing is fetched ahead.
    pub background: bool,
}

impl Settings {
    /// Makes the defaults for a directory: 4 streams, 8 fetches, 16 MiB of ballast, background threads on.
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
    /// Another agent uses the burst buffer.
    #[error("the burst buffer {path} is in use by process {pid}: stop that agent, or name another directory")]
    InUse {
        /// The burst buffer.
        path: PathBuf,
        /// Process id of the other agent, as the lock file says.
        pid: String,
    },
    /// Another version of Forebay wrote the burst buffer.
    #[error(
        "the burst buffer {path} has format {found}, this program knows {known}: drain it with the version that wrote it"
    )]
    Format {
        /// The burst buffer.
        path: PathBuf,
        /// Format found on disk.
        found: String,
        /// Format that this program knows.
        known: u32,
    },
    /// The superblock is missing or cannot be read.
    #[error("the superblock of the burst buffer {path} {what}: `forebay check {path} --repair` makes a new one")]
    Superblock {
        /// The burst buffer.
        path: PathBuf,
        /// Problem of the superblock.
        what: &'static str,
    },
    /// The burst buffer holds another accelerated directory's data.
    #[error("the burst buffer {path} holds the data of {found:?}, not of {wanted:?}: name another directory for it")]
    OtherStore {
        /// The burst buffer.
        path: PathBuf,
        /// Id of the directory whose data it holds.
        found: String,
        /// Id of the requested directory.
        wanted: String,
    },
    /// Other users could replace files in the burst buffer, and so the data that programs read and that is staged out.
    #[error("{path} is not safe as a burst buffer: {reason}; make it your own: chown {uid} {path} && chmod 700 {path}")]
    Unsafe {
        /// The burst buffer.
        path: PathBuf,
        /// The reason, as a sentence.
        reason: String,
        /// User id of this process.
        uid: u32,
    },
    /// The catalogue cannot be opened.
    #[error("{0}")]
    Catalogue(#[from] catalogue::Error),
    /// A system call failed.
    #[error("the burst buffer {path}: cannot {step}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
