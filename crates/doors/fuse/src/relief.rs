//! Thread that asks the kernel to forget nodes before descriptors run out, since each node holds one. It also ends
//! unused registrations.
//!
//! The kernel would forget nodes that are in use as well, so these are left out. [`Nodes::stale`] knows open files;
//! [`InUse`] knows working directories and mounts. A kernel on another machine is asked about all, and its node skips
//! those in use there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::descriptors;
use concurrency::JoinHandle;
use fuse_protocol::{InUse, Notifier};

use crate::limits;
use crate::nodes::Nodes;
use crate::registrations::Registrations;

/// Handle of the thread, which ends when this is dropped.
pub struct Relief {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relief {
    /// Starts the thread. `most`: unused nodes with a descriptor that are kept without asking the kernel; `None`: decided by the
    /// descriptors that open files leave. `away`: the kernel is another machine's.
    pub fn start(
        nodes: Arc<Nodes>,
        registrations: Option<Arc<Registrations>>,
        notifier: Notifier,
        most: Option<usize>,
        away: bool,
    ) -> std::io::Result<Relief> {
        let most = move || most.unwrap_or_else(|| node_budget(limits::NODE_DESCRIPTORS_SHARE));
        let ended = Arc::new(AtomicBool::new(false));
        let stop = ended.clone();
        let thread = concurrency::spawn_joined("relief", move || {
            while !stop.load(Ordering::Acquire) {
                let most = most();
                // Nodes of open files stay, so they do not count.
                let idle = if nodes.holding() > most { nodes.idle() } else { 0 };
                if idle > most {
                    let excess = (idle - most).max(limits::FORGET_BATCH);
                    forget(&nodes, &notifier, excess, away);
                }
                registrations.iter().for_each(|idle| idle.expire(limits::IDLE_REGISTRATION));
                concurrency::park_timeout(limits::RELIEF_POLL);
            }
        })?;
        Ok(Relief { ended, thread: Some(thread) })
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread may wait in the kernel on a connection that is ending, and ends with it.
            drop(thread);
        }
    }
}

fn forget(nodes: &Nodes, notifier: &Notifier, most: usize, away: bool) {
    let stale = nodes.stale(most);
    if stale.is_empty() {
        return;
    }
    // If use cannot be determined, every node may be in use.
    let Ok(in_use) = (if away { Ok(InUse::default()) } else { InUse::look() }) else { return };
    for one in stale.iter().filter(|one| !in_use.has(&one.name) && nodes.is_stale(one.id)) {
        // Fails if the kernel does not know the name, which is as good as forgotten.
        let _ = notifier.inval_entry(one.parent, &one.name);
    }
}

/// Returns how many nodes may hold descriptors: those that open files leave, divided by `share`.
pub fn node_budget(share: u64) -> usize {
    usize::try_from(descriptors::spare() / share).unwrap_or(usize::MAX)
}
