//! Asking the kernel to forget nodes before their descriptors run out: each node holds one. And ending registrations that
//! nobody uses.
//!
//! It forgets what is in use as well, so that is not asked for: [`Nodes::stale`] knows what is open, [`InUse`] who stands where and what
//! is mounted. The kernel of another machine is asked for all of it, and its node passes over what is in use there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::descriptors;
use concurrency::JoinHandle;
use fuse_protocol::{InUse, Notifier};

use crate::limits;
use crate::nodes::Nodes;
use crate::registrations::Registrations;

/// The thread that asks; ended when dropped.
pub struct Relief {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relief {
    /// Starts it. `most` nodes that nobody has open are kept without asking; `None`: what open files leave of the process's descriptors
    /// decides. `away`: it is the kernel of another machine.
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
                // Those that are open stay whatever the kernel is asked.
                let idle = if nodes.len() > most { nodes.idle() } else { 0 };
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
            // It may wait in the kernel for a connection that is ending: it ends with it.
            drop(thread);
        }
    }
}

fn forget(nodes: &Nodes, notifier: &Notifier, most: usize, away: bool) {
    let stale = nodes.stale(most);
    if stale.is_empty() {
        return;
    }
    // Where nobody can be seen everybody may be there.
    let Ok(in_use) = (if away { Ok(InUse::default()) } else { InUse::look() }) else { return };
    for one in stale.iter().filter(|one| !in_use.has(&one.name) && nodes.is_stale(one.id)) {
        // Unknown names are as good as forgotten ones.
        let _ = notifier.inval_entry(one.parent, &one.name);
    }
}

/// How many nodes a share of the process's descriptors that no open file holds serves; `share` is the divisor.
pub fn node_budget(share: u64) -> usize {
    usize::try_from(descriptors::spare() / share).unwrap_or(usize::MAX)
}
