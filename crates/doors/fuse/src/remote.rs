//! An agent's files for the kernel of another machine, which sends its messages over a network.
//!
//! Every such kernel has a door of its own over the same agent: nodes, open files and lock owners are its own, the files, their
//! data and the locks on them are everybody's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent::Agent;
use fuse_protocol::{Direct, Errno, Events, Given, Handle, NodeId};
use types::Identity;

use crate::door::Door;
use crate::limits;
use crate::relief::{Relief, node_budget};

/// One kernel of another machine, served. Dropped, it is gone: what it had open is closed, its locks are released.
pub struct Remote {
    agent: Arc<Agent>,
    door: Arc<Door>,
    client: u64,
    direct: Direct,
    _relief: Relief,
}

impl Remote {
    /// Agrees with the kernel on what its INIT offers; returns the answer to it too. `client`: not 0, and nobody else's;
    /// `numbers`: see [`Door::of_client`].
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

    /// Whether a request that has run waits for a lock.
    pub fn is_waiting(&self, unique: u64) -> bool {
        self.direct.is_waiting(unique)
    }

    /// Which file a number means, and where that is now.
    pub fn file(&self, node: NodeId) -> Option<(Identity, PathBuf)> {
        let known = self.door.nodes.get(node)?;
        Some((self.agent.identity_of(&known.node).ok()?, self.agent.path_of(&known.node).unwrap_or_default()))
    }

    /// A number of an earlier process means this file again, and `open` - handle and flags - is an open file or directory of it.
    /// An errno: `ESTALE` where it is not there.
    pub fn reclaim(
        &self,
        (number, lookups): (NodeId, u64),
        identity: &Identity,
        hint: &Path,
        open: Option<(Handle, i32)>,
    ) -> Result<(), i32> {
        let reclaim = || {
            let known = self.door.reclaim_node(number, lookups, identity, hint)?;
            open.map_or(Ok(()), |(handle, flags)| self.door.reclaim_open(&known, handle, flags))
        };
        reclaim().map_err(|errno: Errno| errno.0)
    }

    /// Takes back what an answer gave that the kernel never got.
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
