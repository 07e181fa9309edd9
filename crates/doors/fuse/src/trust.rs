//! Trust of the kernel in what it was told. It lasts longest where nobody else changes files, and ends when it is told so.
//!
//! T1. Names in a directory that is held exclusively, absent ones included, are trusted for
//! [`EXCLUSIVE_TRUSTED`](limits::EXCLUSIVE_TRUSTED). The kernel itself drops what a program's own call changes.
//! T2. A name is noted first, and its directory then found to be exclusive still. So a name that is trusted is noted when the
//! exclusivity ends, and is expired.
//! T3. Attributes are trusted no longer than elsewhere. An answer that another program's change overtakes may be believed, and
//! nobody would correct it.
//! T4. The kernel of another machine trusts nothing of this.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use concurrency::Mutex;
use fuse_protocol::{Attr, Entry, Errno, NodeId, Notifier, fopen};

use crate::door::Door;
use crate::limits;
use crate::nodes::{Known, Nodes};
use crate::noted_names::{ABSENT, NotedNames};

/// Names that the kernel trusts while their directory is held exclusively.
#[derive(Default)]
pub struct TrustedNames {
    names: Mutex<NotedNames>,
}

impl TrustedNames {
    /// Notes a name. Returns false if there are too many absent ones for another.
    fn note(&self, directory: NodeId, name: &OsStr, node: NodeId) -> bool {
        let mut names = self.names.lock();
        let is_full = names.absent() >= limits::ABSENT_NAMES && node == ABSENT;
        if is_full && names.get(directory, name) != Some(ABSENT) {
            return false;
        }
        names.set(directory, name, node);
        true
    }

    /// Notes that a name is being changed to another: the kernel takes its trust along. Comes before the change. `exchanges`: the
    /// other name becomes this one.
    pub fn moves(&self, (from, name): (NodeId, &OsStr), (to, new_name): (NodeId, &OsStr), exchanges: bool) {
        let mut names = self.names.lock();
        let (moved, other) = (names.get(from, name), names.get(to, new_name));
        if let Some(node) = moved {
            names.set(to, new_name, node);
        }
        if let Some(other) = other.filter(|_| exchanges) {
            names.set(from, name, other);
        }
    }

    /// Drops a name, which was removed: the kernel asks for it again.
    pub fn removed(&self, directory: NodeId, name: &OsStr) {
        self.names.lock().remove(directory, name);
    }

    /// Drops the names of a node that the kernel has forgotten, and those in it.
    fn forgotten(&self, node: NodeId) {
        self.names.lock().forget(node);
    }

    /// Returns the names in directories for which `is` holds.
    fn names_in(&self, is: impl Fn(NodeId) -> bool) -> Vec<(NodeId, OsString)> {
        self.names.lock().names_in(is)
    }

    /// Makes the kernel forget all that it trusts of files that are no more held exclusively. See
    /// [`MountedAgent::forget_exclusive`](crate::MountedAgent::forget_exclusive).
    pub fn forget(&self, nodes: &Nodes, notifier: &Notifier) {
        // Raising the epoch of the kernel's names would take one message, but it unmounts what is mounted on them.
        let is_exclusive = |directory| nodes.get(directory).is_some_and(|known| known.node.is_exclusive());
        // A name that moves meanwhile is noted in its new place when the notification of its old one is through, so a second
        // round finds it.
        for last in [false, true] {
            for (directory, name) in self.names_in(|directory| !is_exclusive(directory)) {
                if last {
                    self.removed(directory, &name);
                }
                // Fails if the kernel has no such name, which is as good as forgotten.
                let _ = notifier.expire_entry(directory, &name);
            }
        }
        for (node, is_directory) in nodes.lost_exclusivity() {
            // Of a directory the listing goes as well. Fails if the kernel does not know the node any more.
            let _ = notifier.inval_inode(node, if is_directory { 0 } else { -1 }, 0);
        }
    }
}

impl Door {
    /// Whether the kernel must ask for the node's names and attributes each time.
    pub(crate) fn is_doubtful(&self, known: &Known) -> bool {
        // Others may change a file that has a window or lies in a shared burst buffer.
        let shared = known.node.is_regular() && self.is_shared();
        shared || self.agent.is_windowed(&known.node) || self.nodes.is_split(known)
    }

    /// Returns how long the kernel may trust a node that is not doubtful. `trusted`: if longer than by the policy.
    pub(crate) fn valid(&self, known: &Known, trusted: Option<Duration>) -> Duration {
        trusted.unwrap_or_else(|| self.agent.policy_for(&known.node).revalidate)
    }

    /// Returns how long the kernel may trust a node's attributes.
    pub(crate) fn attributes_valid(&self, known: &Known) -> Duration {
        if self.is_doubtful(known) { Duration::ZERO } else { self.valid(known, None) }
    }

    /// Answers a lookup that found nothing. Returns an entry that the kernel may trust while the directory is held
    /// exclusively, or else for the policy's negative timeout; `errno` if that is zero. The kernel still asks again before it
    /// creates a name exclusively or renames to it.
    pub(crate) fn absent(&self, directory: &Known, name: &OsStr, errno: Errno) -> Result<Entry, Errno> {
        let valid = match errno {
            Errno::ENOENT => self
                .trusted_name(directory.id, name, 0)
                .unwrap_or_else(|| self.agent.policy_for(&directory.node).negative_timeout),
            _ => Duration::ZERO,
        };
        if valid.is_zero() {
            return Err(errno);
        }
        Ok(Entry { node: 0, attr: Attr::default(), entry_valid: valid, attr_valid: Duration::ZERO })
    }

    /// Whether this kernel may believe what it is told of a node for as long as it is held exclusively.
    fn trusts(&self, known: &Known) -> bool {
        self.client == 0 && known.node.is_exclusive()
    }

    /// Returns for how long the kernel may trust a name, if longer than otherwise; `node` 0 is an absent one.
    pub(crate) fn trusted_name(&self, directory: NodeId, name: &OsStr, node: NodeId) -> Option<Duration> {
        let known = self.nodes.get(directory).filter(|known| self.trusts(known))?;
        let is_noted = self.trusted.note(directory, name, node);
        (is_noted && self.trusts(&known)).then_some(limits::EXCLUSIVE_TRUSTED)
    }

    /// Returns the flags with which a directory is opened.
    pub(crate) fn listing_flags(&self, known: &Known) -> u32 {
        if self.trusts(known) { fopen::CACHE_DIR | fopen::KEEP_CACHE } else { 0 }
    }

    /// Takes back lookups of a node.
    pub(crate) fn forget_lookups(&self, node: NodeId, count: u64) {
        if self.nodes.forget(node, count) {
            self.trusted.forgotten(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use agent::{Agent, PolicyTable};
    use config::Policy;
    use fuse_protocol::{Filesystem, Request};
    use models::{MemoryDataStore, MemoryNamespace};
    use namespace::Exclusivity;

    use super::*;
    use crate::nodes::ROOT;

    #[test]
    fn this_machine_s_kernel_trusts_what_is_exclusive_and_that_of_another_machine_does_not() {
        let exclusivity = Arc::new(Exclusivity::default());
        let names = Arc::new(MemoryNamespace::exclusive(0, 0, Arc::clone(&exclusivity)));
        let policies = PolicyTable::new(Policy { negative_timeout: Duration::ZERO, ..Policy::default() });
        let agent = Arc::new(Agent::new(Arc::new(MemoryDataStore::default()), names, policies).unwrap());
        let (own, numbers) = (Door::new(Arc::clone(&agent), false), Arc::new(AtomicU64::new(ROOT)));
        let another = Door::of_client(agent, 7, &numbers);
        let req = Request::detached(0, 0, 1);
        own.mkdir(&req, ROOT, OsStr::new("directory"), 0o755, 0).unwrap();
        let told = |door: &Door| {
            let entry = door.lookup(&req, ROOT, OsStr::new("directory")).unwrap();
            let absent = door.lookup(&req, ROOT, OsStr::new("absent")).map(|entry| entry.entry_valid);
            let attributes = door.getattr(&req, entry.node, None).unwrap();
            let flags = door.opendir(&req, entry.node, 0).unwrap().flags;
            (entry.entry_valid, entry.attr_valid, attributes.valid, absent, flags)
        };
        let (year, second) = (limits::EXCLUSIVE_TRUSTED, Duration::from_secs(1));
        assert_eq!(told(&own), (year, second, second, Ok(year), fopen::CACHE_DIR | fopen::KEEP_CACHE));
        let doubted = (second, second, second, Err(Errno::ENOENT), 0);
        assert_eq!(told(&another), doubted);
        exclusivity.end();
        assert_eq!(told(&own), doubted);
        assert_eq!((noted(&own.trusted).len(), noted(&another.trusted).len()), (2, 0));
    }

    fn noted(trusted: &TrustedNames) -> Vec<(NodeId, OsString)> {
        let mut names = trusted.names_in(|_| true);
        names.sort();
        names
    }

    #[test]
    fn a_name_is_noted_until_it_is_removed_or_its_node_or_directory_is_forgotten() {
        let trusted = TrustedNames::default();
        let [a, b, c] = ["a", "b", "c"].map(OsStr::new);
        assert!(trusted.note(1, a, 7) && trusted.note(1, b, 8) && trusted.note(8, c, ABSENT));
        trusted.moves((1, a), (8, b), false);
        trusted.removed(1, a);
        assert_eq!(noted(&trusted), [(1, b.into()), (8, b.into()), (8, c.into())]);
        // An exchange takes both along.
        trusted.moves((1, b), (8, b), true);
        assert_eq!([1, 8].map(|directory| trusted.names.lock().get(directory, b)), [Some(7), Some(8)]);
        trusted.moves((8, b), (1, b), true);
        // Another file has taken the name, so it stays when the former one is forgotten.
        assert!(trusted.note(1, a, 9));
        trusted.forgotten(7);
        trusted.forgotten(8);
        assert_eq!((noted(&trusted), trusted.names.lock().absent()), (vec![(1, a.into())], 0));
    }

    #[test]
    fn absent_names_have_a_bound_and_others_have_none() {
        let trusted = TrustedNames::default();
        let name = |number: usize| OsString::from(number.to_string());
        assert!((0..limits::ABSENT_NAMES).all(|number| trusted.note(1, &name(number), ABSENT)));
        let more = name(limits::ABSENT_NAMES);
        assert!(!trusted.note(1, &more, ABSENT) && trusted.note(1, &name(0), ABSENT));
        assert!(trusted.note(1, &name(0), 5) && trusted.note(1, &more, ABSENT));
        assert!(trusted.note(1, "another".as_ref(), 6));
    }
}
