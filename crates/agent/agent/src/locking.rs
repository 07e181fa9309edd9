//! Scope of `fcntl` and `flock` locks: the programs of this node, or of all nodes that use the directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use config::Lock;
use global_store::posix::PosixStore;
use rustix::io::Errno;
use types::{LockOwner, RangeLock};

use crate::agent::Agent;
use crate::locks::{LockRequest, LockScope, LockTicket, OnGranted, StoreLocks};
use crate::node::Node;

impl Agent {
    /// Takes locks in the global store as well, if it excludes the programs of all nodes. For an agent whose data is at
    /// a server, and for the server. Call this before the agent serves.
    pub fn lock_in_store(&mut self, store: &PosixStore) {
        self.lock_scope = match store.locks_across_nodes() {
            Ok(()) => LockScope::Store,
            Err(why) => LockScope::NodeAlone(why),
        };
        if self.lock_scope == LockScope::Store {
            self.store_locks = Some(StoreLocks::new(store.clone()));
        }
    }

    /// Scope of locks under the policy `lock=auto`.
    pub fn lock_scope(&self) -> &LockScope {
        &self.lock_scope
    }

    /// Returns the lock table of the global store, if a lock is taken there as well. `ENOLCK`: the policy requires
    /// locks that all nodes see, and there are none.
    fn locks_below(&self, node: &Node) -> Result<Option<&Arc<StoreLocks>>, Errno> {
        let policy = self.policy_for(node).lock;
        match (&self.lock_scope, policy) {
            (LockScope::NodeAlone(_), Lock::Refuse) => Err(Errno::NOLCK),
            (_, Lock::Local) => Ok(None),
            _ => Ok(self.store_locks.as_ref()),
        }
    }

    /// Returns a lock that conflicts with `wanted`, if there is one.
    pub fn test_lock(&self, node: &Node, wanted: &RangeLock) -> Result<Option<RangeLock>, Errno> {
        match (self.locks.test(node.identity(), wanted), self.locks_below(node)?) {
            (None, Some(store)) => store.conflict(node, wanted),
            (found, _) => Ok(found),
        }
    }

    /// Takes a lock now, or fails. Errors: `EAGAIN` if another owner holds it; `ENOLCK` if there are too many locks, or
    /// if the scope is less than the policy `lock` requires; those of the global store.
    pub fn try_lock(&self, node: &Node, request: LockRequest) -> Result<(), Errno> {
        let below = self.locks_below(node)?;
        self.locks.try_lock(node.identity(), request)?;
        let Some(store) = below else { return Ok(()) };
        store.try_take(node, &request).inspect_err(|_| self.take_back(node, &request))
    }

    /// Takes a lock now or when it becomes free. `grant` is called once with the outcome. If the outcome is known at
    /// once, `grant` is called before this returns, and there is no ticket. [`cancel_lock`](Agent::cancel_lock) ends
    /// the wait once `cancelled` is set.
    pub fn lock(
        self: &Arc<Agent>,
        node: &Arc<Node>,
        request: LockRequest,
        cancelled: &Arc<AtomicBool>,
        grant: OnGranted,
    ) -> Option<LockTicket> {
        let grant: OnGranted = match self.locks_below(node) {
            Err(errno) => {
                grant(Err(errno));
                return None;
            }
            Ok(None) => grant,
            Ok(Some(store)) => {
                let (agent, store) = (Arc::clone(self), Arc::clone(store));
                let (node, cancelled) = (Arc::clone(node), Arc::clone(cancelled));
                Box::new(move |outcome| {
                    if let Err(errno) = outcome {
                        return grant(Err(errno));
                    }
                    let of = Arc::clone(&node);
                    let done = Box::new(move |outcome: Result<(), Errno>| {
                        if outcome.is_err() {
                            agent.take_back(&of, &request);
                        }
                        grant(outcome);
                    });
                    store.take(node, request, cancelled, done);
                })
            }
        };
        self.locks.lock(node.identity(), request, grant)
    }

    /// Ends the wait for a lock with `EINTR`, unless it has ended. `ticket`: the ticket from [`lock`](Agent::lock), if
    /// that has returned.
    pub fn cancel_lock(&self, node: &Node, ticket: Option<LockTicket>, cancelled: &AtomicBool) {
        cancelled.store(true, Ordering::SeqCst);
        if let Some(ticket) = ticket {
            self.locks.cancel(node.identity(), ticket);
        }
        self.store_locks.iter().for_each(|store| store.end_cancelled());
    }

    /// Undoes a grant of the table that the store refused.
    fn take_back(&self, node: &Node, request: &LockRequest) {
        let (file, owner) = (node.identity(), request.range.owner);
        if request.flock {
            // The store has released the former flock as well.
            self.locks.unlock_flock(file, owner);
        } else if let Some(store) = &self.store_locks {
            self.locks.restore(file, owner, &store.ranges(file, owner));
        }
    }

    /// Releases a range of an owner.
    pub fn unlock(&self, node: &Node, owner: LockOwner, start: u64, end: u64) {
        let file = node.identity();
        self.store_locks.iter().for_each(|store| store.release(file, owner, start, end));
        self.locks.unlock(file, owner, start, end);
    }

    /// Releases an owner's ranges on a file: the process that `owner` stands for has closed a descriptor.
    pub fn close_descriptor(&self, node: &Node, owner: LockOwner, handle: u64) {
        let file = node.identity();
        self.store_locks.iter().for_each(|store| store.close(file, owner));
        self.locks.close_descriptor(file, owner, handle);
    }

    /// Releases an owner's flock.
    pub fn unlock_flock(&self, node: &Node, owner: LockOwner) {
        let file = node.identity();
        self.store_locks.iter().for_each(|store| store.release_flock(file, owner));
        self.locks.unlock_flock(file, owner);
    }

    /// Releases the locks taken through an open file, and ends waits through it: its last descriptor was closed.
    pub fn release_locks_of_handle(&self, node: &Node, handle: u64) {
        let file = node.identity();
        self.store_locks.iter().for_each(|store| store.release_handle(file, handle));
        self.locks.release_handle(file, handle);
    }

    /// Releases the locks of a client that is gone, and ends its waits.
    pub fn release_locks_of_client(&self, client: u64) {
        self.store_locks.iter().for_each(|store| store.release_client(client));
        self.locks.release_client(client);
    }
}

#[cfg(test)]
mod tests {
    use config::{Policy, PolicySet};
    use file_cache::{FileCache, Settings};
    use global_store::posix::{PosixStore, StoreOptions};
    use posix_namespace::PosixNamespace;
    use rustix::fs::{self, Mode, OFlags};
    use types::LockKind;

    use super::*;
    use crate::policy_table::PolicyTable;
    use crate::{Caller, NewMode};

    #[test] // S68
    fn where_other_nodes_see_no_lock_of_this_one_the_policy_has_it_refused() {
        for (shared, policy, outcome) in [
            (true, "lock=refuse", Err(Errno::NOLCK)),
            (true, "lock=auto", Ok(())),
            (true, "lock=local", Ok(())),
            (false, "lock=refuse", Ok(())),
        ] {
            let tree = tempfile::tempdir().unwrap();
            let root = fs::open(tree.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            let options = StoreOptions { shared: Some(shared), ..StoreOptions::default() };
            let (store, buffer) = (PosixStore::new(root, options).unwrap(), tempfile::tempdir().unwrap());
            let cache = FileCache::open(Settings::new(buffer.path(), Arc::new(store.clone()), "test")).unwrap();
            let rules = PolicySet::parse([policy]).unwrap().apply(Policy::default());
            let policies = PolicyTable::load(rules, buffer.path().join("policies.toml")).unwrap();
            let agent =
                Arc::new(Agent::new(Arc::new(cache), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap());
            assert_eq!(matches!(agent.lock_scope(), LockScope::NodeAlone(_)), shared);
            let (new, how) = (NewMode { mode: 0o644, umask: 0 }, crate::Mode { write: true, ..crate::Mode::default() });
            let (found, _open) =
                agent.create(&Caller::own(), agent.root(), Some("f".as_ref()), new, true, how).unwrap();
            let request = LockRequest::range(0, 9, LockKind::Exclusive, 1, 0, 1);
            assert_eq!(agent.try_lock(&found.node, request), outcome, "{shared} {policy}");
            let (send, told) = std::sync::mpsc::channel();
            let again = LockRequest::range(0, 9, LockKind::Exclusive, 1, 0, 1);
            let grant = Box::new(move |outcome| _ = send.send(outcome));
            assert!(agent.lock(&found.node, again, &Arc::default(), grant).is_none());
            assert_eq!(told.recv(), Ok(outcome), "{shared} {policy}");
        }
    }
}
