//! The FUSE door: the agent's files as the kernel wants them - node numbers, lookup counts, open modes, parked locks.
//!
//! It has no policy of its own: what a file means is the agent's affair, what travels the protocol's.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod coherence;
mod convert;
mod door;
mod handles;
mod late;
pub mod limits;
mod nodes;
mod only_user;
mod opens;
mod operations;
mod pages;
mod reclaim;
mod registrations;
mod relief;
mod remote;
mod waits;
mod working;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent::Agent;
use fuse_protocol::{Notifier, SessionEnd, ThreadCounts};

pub use door::Door;
pub use only_user::OnlyUser;
pub use pages::Pages;
use registrations::Registrations;
use relief::Relief;
pub use remote::Remote;
pub use working::{is_dying, was_killed};

/// How the door serves.
#[derive(Debug, Clone, Copy)]
pub struct DoorOptions {
    /// Give complete replicas to the kernel where it takes them (root, Linux 6.9).
    pub passthrough: bool,
    /// Serve other files past the kernel's page cache where they can be mapped all the same (Linux 6.6); without it as on an older
    /// kernel.
    pub direct_mmap: bool,
    /// How many threads serve.
    pub threads: ThreadCounts,
    /// Nodes that the kernel may know before it is asked to forget some; `None`: half of the process's descriptors.
    pub nodes_max: Option<usize>,
    /// The kernel knows this user and group alone.
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

/// A mounted agent.
pub struct MountedAgent {
    session: fuse_protocol::Session,
    nodes: Arc<nodes::Nodes>,
    registrations: Option<Arc<Registrations>>,
    options: DoorOptions,
}

/// Serves `agent` over an opened `/dev/fuse`; nothing is answered until [`MountedAgent::run`]. Mount before or after.
pub fn serve(agent: Arc<Agent>, device: OwnedFd, options: DoorOptions) -> MountedAgent {
    let door = Door::new(agent, options.passthrough).with_direct_mmap(options.direct_mmap);
    let door = Arc::new(door.for_user(options.only_user));
    let nodes = door.nodes.clone();
    let session = fuse_protocol::Session::new(door.clone(), device, options.threads);
    door.connect(session.notifier());
    let registrations = door.registrations().cloned();
    MountedAgent { session, nodes, registrations, options }
}

impl MountedAgent {
    /// Serves until the last unmount, or until the connection is aborted.
    pub fn run(&self) -> io::Result<SessionEnd> {
        let (nodes, registrations) = (self.nodes.clone(), self.registrations.clone());
        let _relief = Relief::start(nodes, registrations, self.session.notifier(), self.options.nodes_max, false)?;
        self.session.run()
    }

    /// Notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }
}
