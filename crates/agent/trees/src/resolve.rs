//! The end, by command, of what could not be brought to the global store.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use data_store::Keep;
use delegation::{BelowState, NodeNumber, NodeState, StuckNode};
use namespace::Inode;
use rustix::io::Errno;
use types::{HasErrno, Identity, reported};

use crate::applying::Applying;
use crate::mark;
use crate::open_tree::{DATA, OpenTree};
use crate::opening::saved_name;
use crate::registry::Trees;
use crate::saving::Saving;
use crate::waiting::is_early;

impl Trees {
    /// Applies all trees, so that it is known what cannot be brought.
    pub fn apply_all(&self) {
        for tree in self.all() {
            // The outcome is noted.
            let _ = tree.apply(&Applying::by(&self.policy_of(&tree)), None);
        }
    }

    /// Returns the tree with this name in commands.
    pub(crate) fn named(&self, identity: &Identity) -> Option<Arc<OpenTree>> {
        self.all().into_iter().find(|tree| tree.id() == *identity)
    }

    /// Decides about a node that waits, or about all below it that do. Returns where the files were saved.
    ///
    /// Errors: `ENOENT` if nothing waits there; `EBUSY` if a file is open for writing; with [`Keep::BurstBuffer`] those of the apply.
    pub(crate) fn resolve(
        self: &Arc<Trees>,
        tree: &Arc<OpenTree>,
        node: NodeNumber,
        keep: Keep,
    ) -> io::Result<Option<PathBuf>> {
        if node == NodeNumber::ROOT && (tree.is_gone() || !tree.is_marked()?) {
            return self.resolve_whole(tree, keep);
        }
        let (waiting, within) = (tree.waiting(), tree.tree.with_all_below(node));
        let within: HashSet<NodeNumber> = within.into_iter().collect();
        let top = tree.tree.inode(node).and_then(|inode| tree.path_in(&inode));
        let is_below = |one: &&StuckNode| {
            within.contains(&one.number) || top.as_ref().is_some_and(|top| one.path.starts_with(top))
        };
        let itself: Vec<_> = waiting.iter().filter(|one| one.number == node).cloned().collect();
        let some = || waiting.iter().filter(|one| !is_early(one.errno)).filter(is_below).cloned().collect();
        let decided: Vec<StuckNode> = if itself.is_empty() { some() } else { itself };
        if decided.is_empty() {
            return Err(Errno::NOENT.into());
        }
        match keep {
            Keep::BurstBuffer => self.put_ours(tree, &decided).map(|()| None),
            Keep::Global | Keep::Both => self.drop_ours(tree, &decided, keep == Keep::Both),
        }
    }

    /// Brings nodes to the store, whatever others have made there.
    fn put_ours(&self, tree: &OpenTree, decided: &[StuckNode]) -> io::Result<()> {
        let numbers: HashSet<NodeNumber> = decided.iter().map(|one| one.number).collect();
        for one in decided.iter().filter(|one| one.errno == libc::ENOENT) {
            tree.make_again(one.number)?;
        }
        let replaces = |number| numbers.contains(&number);
        let how = Applying { replaces: &replaces, ..Applying::by(&self.policy_of(tree)) };
        for number in &numbers {
            tree.apply(&how, Some(*number))?;
        }
        match tree.waiting().into_iter().find(|one| numbers.contains(&one.number)) {
            Some(one) => Err(reported(one.errno, &one.reason)),
            None => Ok(()),
        }
    }

    /// Drops nodes from the tree, which is given back then, if possible: the store answers for what it has there.
    fn drop_ours(
        self: &Arc<Trees>,
        tree: &Arc<OpenTree>,
        decided: &[StuckNode],
        saves: bool,
    ) -> io::Result<Option<PathBuf>> {
        let all = decided.iter().flat_map(|one| tree.tree.with_all_below(one.number));
        if all.into_iter().any(|number| tree.files.is_written_to(number)) {
            return Err(Errno::BUSY.into());
        }
        let mut saved = None;
        if saves {
            let states = tree.tree.states();
            let saving = tree.saving(&states);
            for one in decided {
                let id = Identity::new(one.number.0.to_be_bytes()).map_err(io::Error::other)?;
                let path = saving.save(one.number, &self.saved(), &saved_name(&one.path, &id))?;
                // Of several the directory is told in which they are.
                saved = Some(if saved.is_none() { path } else { self.saved() });
            }
        }
        for one in decided {
            tree.tree.disown(one.number)?.iter().for_each(|state| tree.files.dropped(state));
        }
        tree.sync()?;
        tree.tree.end_exclusivity();
        self.tell_return();
        // What else waits is noted, and tells why the tree stays.
        if let Err(error) = self.give_back(tree, &Applying::by(&self.policy_of(tree)), true) {
            tracing::warn!(%error, "a delegated tree could not be given back");
        }
        Ok(saved)
    }

    /// Decides about a tree whose directory is gone, or not marked as ours any more.
    fn resolve_whole(self: &Arc<Trees>, tree: &Arc<OpenTree>, keep: Keep) -> io::Result<Option<PathBuf>> {
        if keep == Keep::BurstBuffer {
            if tree.is_gone() {
                return Err(reported(libc::ENOENT, "the directory is not in the global store"));
            }
            mark::set_again(&*self.settings.namespace, &tree.root, &tree.store.agent)?;
            return tree.apply(&Applying::by(&self.policy_of(tree)), None).map(|_| None);
        }
        if !tree.files.writers().is_empty() {
            return Err(Errno::BUSY.into());
        }
        let mut saved = None;
        if keep == Keep::Both {
            tree.files.settle_all()?;
            let states = tree.tree.states();
            let saving = tree.saving(&states);
            let name = saved_name(&self.last_path_of(tree), &tree.id());
            saved = Some(saving.save(NodeNumber::ROOT, &self.saved(), &name)?);
        }
        if !tree.abandon() {
            return Err(Errno::BUSY.into());
        }
        tree.tree.end_exclusivity();
        self.tell_return();
        self.end(tree)?;
        Ok(saved)
    }
}

impl OpenTree {
    /// Whether the tree's directory is marked as ours.
    pub(crate) fn is_marked(&self) -> io::Result<bool> {
        Ok(mark::get(&*self.store.namespace, &self.root)?.as_ref() == Some(&self.store.agent))
    }

    /// Prepares to save some of the tree's nodes.
    fn saving<'a>(&'a self, states: &'a [NodeState]) -> Saving<'a> {
        Saving::new(states, self.directory().join(DATA), |number| self.files.packed_bytes(number))
    }

    /// Whether a node has no name in the tree any more.
    pub(crate) fn is_nameless(&self, node: NodeNumber) -> bool {
        self.tree.state(node).is_none_or(|state| state.names.is_empty())
    }

    fn path_in(&self, inode: &Inode) -> Option<PathBuf> {
        namespace::Names::path_of(&self.tree, inode)
    }

    /// Has a node made anew that the store has lost, with the uppermost directory above it that is lost and all that is in it.
    fn make_again(&self, number: NodeNumber) -> io::Result<()> {
        let mut above = Vec::new();
        let mut at = number;
        while let Some(name) = self.tree.state(at).and_then(|state| state.names.first().cloned()) {
            above.push(at);
            at = name.parent;
        }
        let mut parent = Arc::clone(&self.root);
        for directory in above.iter().rev() {
            match self.find_in(&parent, *directory)? {
                Some(found) => parent = Arc::new(found),
                None => return self.tree.require_again(&self.tree.with_all_below(*directory)),
            }
        }
        self.tree.require_again(&[number])
    }

    /// Looks for a node where the store should have it, in this directory.
    fn find_in(&self, parent: &Inode, number: NodeNumber) -> io::Result<Option<Inode>> {
        let Some(state) = self.tree.state(number) else { return Ok(None) };
        let BelowState::At(copy) = &state.below else { return Ok(None) };
        let namespace = &self.store.namespace;
        for name in state.names.iter().filter(|name| copy.names.contains(name)) {
            match namespace.lookup(parent, std::os::unix::ffi::OsStrExt::from_bytes(name.name.as_bytes())) {
                Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENOTDIR | libc::ESTALE)) => {}
                found => {
                    let inode = found?.inode;
                    namespace.identify(&inode, &|_| true)?;
                    if copy.identity.as_ref() == Some(inode.identity()) {
                        return Ok(Some(inode));
                    }
                }
            }
        }
        Ok(None)
    }
}
