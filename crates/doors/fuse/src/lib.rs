//! The FUSE door serves an agent's files to the kernel: node numbers, lookup counts, open modes and parked locks.
//!
//! It has no policy of its own. The agent decides what a file contains; the crate `fuse-protocol` encodes messages.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod coherence;
mod convert;
mod door;
mod failures;
mod handles;
mod late;
pub mod limits;
mod nodes;
mod noted_names;
mod only_user;
mod opens;
mod operations;
mod reclaim;
mod registrations;
mod relief;
mod remote;
mod slab;
mod slots;
mod trust;
mod waits;
mod working;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent::Agent;
use fuse_protocol::{Notifier, Opcode, RequestCounts, SessionEnd, ThreadCounts};

pub use door::Door;
pub use only_user::OnlyUser;
use registrations::Registrations;
use relief::Relief;
pub use remote::Remote;

/// Options for serving a door.
#[derive(Debug, Clone, Copy)]
pub struct DoorOptions {
    /// Whether to give complete replicas to the kernel where it supports passthrough (root, Linux 6.9).
    pub passthrough: bool,
    /// Whether to serve other files without the kernel's page cache where they can still be mapped (Linux 6.6). If
    /// not, they are served as on an older kernel.
    pub direct_mmap: bool,
    /// Numbers of serving threads.
    pub threads: ThreadCounts,
    /// Most nodes that the kernel may know before it is asked to forget some. `None`: half of the process's
    /// descriptors.
    pub nodes_max: Option<usize>,
    /// The one user and group that the kernel knows, if it knows no others.
    pub only_user: Option<OnlyUser>,
}

impl Default for DoorOptions {
    fn default() -> DoorOptions {
        DoorOptions {
            passthrough: true,
            direct_mmap: true,
            threads: ThreadCounts::default(),
            nodes_max: None,
            only_user: None,
        }
    }
}

/// Agent that is connected to a kernel.
pub struct MountedAgent {
    session: fuse_protocol::Session,
    nodes: Arc<nodes::Nodes>,
    trusted: Arc<trust::TrustedNames>,
    registrations: Option<Arc<Registrations>>,
    options: DoorOptions,
}

/// Connects `agent` to an opened `/dev/fuse`. Nothing is answered until [`MountedAgent::run`]. The mount may be made
/// before or after.
pub fn serve(agent: Arc<Agent>, device: OwnedFd, options: DoorOptions) -> MountedAgent {
    let door = Door::new(agent, options.passthrough).with_direct_mmap(options.direct_mmap);
    let door = Arc::new(door.for_user(options.only_user));
    let (nodes, trusted) = (door.nodes.clone(), door.trusted.clone());
    let session = fuse_protocol::Session::new(door.clone(), device, options.threads);
    door.connect(session.notifier());
    let registrations = door.registrations().cloned();
    MountedAgent { session, nodes, trusted, registrations, options }
}

impl MountedAgent {
    /// Serves until the last unmount, or until the connection is aborted.
    pub fn run(&self) -> io::Result<SessionEnd> {
        let (nodes, registrations) = (self.nodes.clone(), self.registrations.clone());
        let _relief = Relief::start(nodes, registrations, self.session.notifier(), self.options.nodes_max, false)?;
        self.session.run()
    }

    /// Returns the numbers of the kernel's requests, which go on counting.
    pub fn requests(&self) -> Arc<RequestCounts> {
        self.session.requests()
    }

    /// Returns a counter of the requests that made, removed or moved a name, whatever became of them.
    pub fn name_changes(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        const KINDS: [Opcode; 8] = [
            Opcode::Create,
            Opcode::Mkdir,
            Opcode::Mknod,
            Opcode::Symlink,
            Opcode::Link,
            Opcode::Unlink,
            Opcode::Rmdir,
            Opcode::Rename2,
        ];
        let requests = self.session.requests();
        move || requests.all().iter().filter(|(kind, _)| KINDS.contains(kind)).map(|(_, count)| count).sum()
    }

    /// Makes the kernel forget what it trusts of files that were held exclusively and are so no more. Comes after the end of the
    /// exclusivity, and before others change the files. Waits for requests under way in their directories, so it must not be
    /// called by a thread that serves requests. Files in use and what is mounted below stay as they are.
    pub fn forget_exclusive(&self) {
        self.trusted.forget(&self.nodes, &self.session.notifier());
    }

    /// Returns the sender of notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }
}
