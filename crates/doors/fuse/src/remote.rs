//! Agent's files for the kernel of another machine, which sends its messages over a network.
//!
//! Every such kernel has its own door over the same agent. Node numbers, open files and lock owners are per kernel;
//! files, their data and the locks on them are shared.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent::Agent;
use fuse_protocol::{AboutFile, Direct, Errno, Events, FileReclaim, Given, NodeId};

use crate::door::Door;
use crate::limits;
use crate::relief::{Relief, node_budget};

/// Kernel of another machine that is served. When dropped, its open files are closed and its locks released.
pub struct Remote {
    agent: Arc<Agent>,
    door: Arc<Door>,
    client: u64,
    direct: Direct,
    _relief: Relief,
}

impl Remote {
    /// Agrees with the kernel on the features that its INIT offers. Returns the server's side and the answer to INIT.
    /// `client`: unique and not 0. `numbers`: see [`Door::of_client`].
    pub fn new(
        agent: Arc<Agent>,
        client: u64,
        numbers: &Arc<AtomicU64>,
        events: Arc<dyn Events>,
        init: &[u8],
    ) -> io::Result<(Remote, Vec<u8>)> {
        let door = Arc::new(Door::of_client(Arc::clone(&agent), client, numbers));
        let (direct, answer) = Direct::new(door.clone(), events, init)?;
        door.connect(direct.notifier());
        let most = Some(node_budget(limits::CLIENT_DESCRIPTORS_SHARE));
        let relief = Relief::start(door.nodes.clone(), None, direct.notifier(), most, true)?;
        Ok((Remote { agent, door, client, direct, _relief: relief }, answer))
    }

    /// Runs a message in this thread; see [`Direct::run`].
    pub fn run(&self, head: &[u8], data: &[u8], out: &mut Vec<u8>) -> Vec<u8> {
        self.direct.run(head, data, out)
    }

    /// Returns whether a request that has run waits for a lock.
    pub fn is_waiting(&self, unique: u64) -> bool {
        self.direct.is_waiting(unique)
    }

    /// Returns the identity and the current path of a node's file.
    pub fn file(&self, node: NodeId) -> Option<AboutFile> {
        let known = self.door.nodes.get(node)?;
        Some((self.agent.identity_of(&known.node).ok()?, self.agent.path_of(&known.node).unwrap_or_default()))
    }

    /// Restores what a kernel state claims of an earlier process. Errors: `ESTALE` if the file is gone.
    pub fn reclaim(&self, claim: &FileReclaim) -> Result<(), Errno> {
        let known = self.door.reclaim_node(claim)?;
        claim.open.map_or(Ok(()), |(handle, flags)| self.door.reclaim_open(&known, handle, flags))
    }

    /// Takes back the lookups and handles of an answer that the kernel never received.
    pub fn take_back(&self, given: &Given) {
        self.direct.take_back(given);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.direct.close();
        self.agent.release_locks_of_client(self.client);
    }
}
