//! What the kernel of this node can still ask with: its numbers of directories and open files, and what they mean.
//!
//! A file of which a program of this node may hold a lock is not claimed from a server that has forgotten it: somebody else may have got
//! that lock meanwhile, and who believes to have it must hear that it is gone.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use types::Identity;

use crate::manner::Locks;

/// One open file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its number.
    pub node: u64,
    /// Which file.
    pub identity: Identity,
    /// Where it was seen.
    pub hint: wire::Path,
    /// How it was opened.
    pub flags: i32,
    /// It is a file that is open for writing.
    pub writes: bool,
}

/// What is to mean again what it meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub node: u64,
    pub lookups: u64,
    pub identity: Identity,
    pub hint: wire::Path,
    /// Handle and flags.
    pub open: Option<(u64, i32)>,
}

#[derive(Default)]
struct Looked {
    lookups: u64,
    /// A directory.
    directory: Option<(Identity, wire::Path)>,
}

#[derive(Default)]
struct Table {
    nodes: HashMap<u64, Looked>,
    opens: HashMap<u64, Held>,
    /// Who may have locks on a node.
    locks: HashMap<u64, HashSet<(u64, bool)>>,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Holdings(Mutex<Table>);

impl Holdings {
    /// The kernel was given a lookup.
    pub fn looked_up(&self, node: u64, directory: Option<(Identity, wire::Path)>) {
        let mut table = self.0.lock();
        let looked = table.nodes.entry(node).or_default();
        looked.lookups += 1;
        looked.directory = directory.or(looked.directory.take());
    }

    /// It gives some back. `and` is done before anybody claims.
    pub fn forgets(&self, node: u64, count: u64, and: impl FnOnce()) {
        let mut table = self.0.lock();
        if let Some(looked) = table.nodes.get_mut(&node) {
            looked.lookups = looked.lookups.saturating_sub(count);
            if looked.lookups == 0 {
                table.nodes.remove(&node);
            }
        }
        and();
    }

    pub fn add(&self, handle: u64, held: Held) {
        self.0.lock().opens.insert(handle, held);
    }

    /// It is closed, or was never got.
    pub fn remove(&self, handle: u64) -> Option<Held> {
        let mut table = self.0.lock();
        let held = table.opens.remove(&handle)?;
        if !table.opens.values().any(|other| other.node == held.node) {
            table.locks.remove(&held.node);
        }
        Some(held)
    }

    /// Whether it is open for writing.
    pub fn writes(&self, handle: u64) -> bool {
        self.0.lock().opens.get(&handle).is_some_and(|held| held.writes)
    }

    /// Notes what a request does to locks; before it is sent, so that nothing is forgotten.
    pub fn locks(&self, node: u64, change: Locks) {
        let mut table = self.0.lock();
        match change {
            Locks::Takes(owner, flock) => _ = table.locks.entry(node).or_default().insert((owner, flock)),
            Locks::Ends(owner, flock) => {
                if let Some(owners) = table.locks.get_mut(&node) {
                    owners.remove(&(owner, flock));
                }
            }
        }
    }

    /// The server has forgotten all. What is to be claimed, and what is lost with locks. `and` is done before the kernel gives anything back.
    pub fn claims(&self, and: impl FnOnce()) -> (Vec<Claim>, Vec<Held>) {
        let mut table = self.0.lock();
        let locked: HashSet<u64> =
            table.locks.drain().filter(|(_, owners)| !owners.is_empty()).map(|(node, _)| node).collect();
        let lost = table.opens.extract_if(|_, held| locked.contains(&held.node)).map(|(_, held)| held).collect();
        let lookups = |node: &u64| table.nodes.get(node).map_or(1, |looked| looked.lookups);
        let directories = table.nodes.iter().filter_map(|(node, looked)| {
            let (identity, hint) = looked.directory.clone()?;
            Some(Claim { node: *node, lookups: looked.lookups, identity, hint, open: None })
        });
        let opens = table.opens.iter().map(|(handle, held)| Claim {
            node: held.node,
            lookups: lookups(&held.node),
            identity: held.identity.clone(),
            hint: held.hint.clone(),
            open: Some((*handle, held.flags)),
        });
        let claims = directories.chain(opens).collect();
        and();
        (claims, lost)
    }

    /// Nothing is open any more; what was.
    pub fn clear(&self) -> Vec<Held> {
        self.0.lock().opens.drain().map(|(_, held)| held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(vec![1, 2, byte]).unwrap()
    }

    fn held(node: u64) -> Held {
        Held { node, identity: identity(node as u8), hint: wire::Path::default(), flags: libc::O_RDWR, writes: true }
    }

    #[test]
    fn an_open_file_is_held_until_it_is_closed() {
        let holdings = Holdings::default();
        holdings.add(70, held(7));
        assert!(holdings.writes(70) && !holdings.writes(71));
        assert_eq!(holdings.remove(70), Some(held(7)));
        assert!(!holdings.writes(70) && holdings.remove(70).is_none());
        holdings.add(80, held(8));
        assert_eq!(holdings.clear(), [held(8)]);
        assert_eq!(holdings.clear(), []);
    }

    #[test]
    fn directories_and_open_files_are_claimed_with_their_lookups_and_what_is_forgotten_is_not() {
        let holdings = Holdings::default();
        let directory = || Some((identity(5), wire::Path::default()));
        holdings.looked_up(5, directory());
        holdings.looked_up(5, None);
        holdings.looked_up(7, None);
        holdings.looked_up(9, directory());
        holdings.add(70, held(7));
        holdings.forgets(9, 1, || ());
        let (mut claims, lost) = holdings.claims(|| ());
        claims.sort_by_key(|claim| claim.node);
        let told: Vec<_> = claims.iter().map(|claim| (claim.node, claim.lookups, claim.open)).collect();
        assert_eq!(told, [(5, 2, None), (7, 1, Some((70, libc::O_RDWR)))]);
        assert_eq!(lost, []);
    }

    #[test]
    fn a_file_on_which_somebody_may_have_a_lock_is_not_claimed() {
        let holdings = Holdings::default();
        for node in [1, 2, 3, 4] {
            holdings.add(node * 10, held(node));
            holdings.locks(node, Locks::Takes(100, false));
        }
        holdings.locks(2, Locks::Ends(100, false));
        holdings.locks(3, Locks::Ends(100, true));
        assert!(holdings.remove(40).is_some(), "its locks go with the last close");
        holdings.add(41, held(4));
        let (claims, lost) = holdings.claims(|| ());
        let mut nodes: Vec<u64> = claims.iter().map(|claim| claim.node).collect();
        nodes.sort_unstable();
        assert_eq!((nodes, lost.len()), (vec![2, 4], 2));
        assert_eq!(holdings.claims(|| ()).0.len(), 2, "who is lost stays so, and nobody else is");
    }
}
