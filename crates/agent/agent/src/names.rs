//! The namespace, which the global store owns. Every change is made there at once, as the caller.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use data_store::FileChange;
use global_store::descriptors;
use namespace::{Caller, FileAttributes, KnownSince, NameKind, NewMode, NewName, OpenDirectory};
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use types::Identity;

use crate::agent::Agent;
use crate::node::Node;

/// A node and its attributes at the moment of lookup or creation.
pub struct FoundNode {
    /// The node.
    pub node: Arc<Node>,
    /// Attributes of the node.
    pub attributes: FileAttributes,
}

impl Agent {
    /// Finds a name. `ENFILE`: the last descriptors are reserved for open files.
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        let found = self.look_up(parent, name)?;
        let is_last = found.node.inode().descriptor().is_some_and(descriptors::is_last);
        if is_last { Err(Errno::NFILE.into()) } else { Ok(found) }
    }

    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        let before = self.data.staged_count();
        let found = self.names.lookup(parent.inode(), name)?;
        let node = Node::new(found.inode);
        let attributes = self.overlaid(&node, before, found.attributes)?;
        Ok(FoundNode { node: Arc::new(node), attributes })
    }

    /// Finds a file that was open before a restart, as [`Agent::find`] does. `None` also if its identity may be reused:
    /// nothing kept the inode allocated meanwhile.
    pub fn find_again(&self, identity: &Identity, hint: &Path) -> io::Result<Option<Arc<Node>>> {
        self.find_since(identity, hint, KnownSince::Restart)
    }

    /// Finds the file or directory with this identity, last seen at `hint`. `None` if it is gone.
    pub fn find(&self, identity: &Identity, hint: &Path) -> io::Result<Option<Arc<Node>>> {
        self.find_since(identity, hint, KnownSince::InUse)
    }

    fn find_since(&self, identity: &Identity, hint: &Path, since: KnownSince) -> io::Result<Option<Arc<Node>>> {
        Ok(self.names.find(identity, hint, since)?.map(|inode| Arc::new(Node::new(inode))))
    }

    /// Creates a directory.
    pub fn make_directory(&self, caller: &Caller, parent: &Node, name: &OsStr, new: NewMode) -> io::Result<FoundNode> {
        self.make(caller, parent, name, NewName::Directory(new))
    }

    fn make(&self, caller: &Caller, parent: &Node, name: &OsStr, new: NewName<'_>) -> io::Result<FoundNode> {
        self.names.make(caller, parent.inode(), name, new)?;
        self.look_up(parent, name)
    }

    /// Creates a fifo, socket, device or empty file; the type is in the mode.
    pub fn make_node(
        &self,
        caller: &Caller,
        parent: &Node,
        name: &OsStr,
        new: NewMode,
        device: u32,
    ) -> io::Result<FoundNode> {
        let kind = FileType::from_raw_mode(new.mode);
        let device = fs::makedev(device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        self.make(caller, parent, name, NewName::Special { kind, mode: new, device })
    }

    /// Creates a symbolic link.
    pub fn make_symlink(&self, caller: &Caller, parent: &Node, name: &OsStr, target: &OsStr) -> io::Result<FoundNode> {
        self.make(caller, parent, name, NewName::Symlink(target))
    }

    /// Returns the target of a symbolic link.
    pub fn read_symlink(&self, node: &Node) -> io::Result<Vec<u8>> {
        self.names.read_symlink(node.inode())
    }

    /// Opens a directory for reading, as the caller.
    pub fn open_directory(&self, caller: &Caller, node: &Node) -> io::Result<Box<dyn OpenDirectory>> {
        self.names.open_directory(caller, node.inode())
    }

    /// Adds a name for a node; a file created without a name gets its first.
    pub fn link(&self, caller: &Caller, node: &Node, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        let link = || self.names.link(caller, node.inode(), parent.inode(), name);
        self.as_ours(node, || self.beyond_windows(link))?;
        self.removes(node, false);
        self.changed(node)?;
        self.look_up(parent, name)
    }

    /// Removes a name of a file that is not a directory. The file's data goes with its last name.
    pub fn unlink(&self, caller: &Caller, parent: &Node, name: &OsStr) -> io::Result<()> {
        let victim = self.look_up(parent, name)?;
        self.loses_a_name(&victim);
        let remove = || self.names.remove(caller, parent.inode(), name, NameKind::File);
        let done = self.as_ours(&victim.node, remove);
        // Even after an error, the file's link count tells whether the name is gone.
        let told = self.lost_a_name(&victim, name, done.is_ok());
        done.and(told)
    }

    /// Prepares for the removal of a name: if it is the last, recovery must know of the removal. This holds also for a
    /// clean file, because after a crash of the machine, the medium may still call it dirty.
    pub(crate) fn loses_a_name(&self, victim: &FoundNode) {
        // If no data is held, there is nothing to record. If that cannot be determined, the removal itself reports the
        // error.
        if victim.node.is_regular() && victim.attributes.nlink == 1 && self.may_hold(&victim.node).unwrap_or(false) {
            self.removes(&victim.node, true);
            self.data.note(victim.node.identity(), FileChange::Removing);
        }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, caller: &Caller, parent: &Node, name: &OsStr) -> io::Result<()> {
        self.names.remove(caller, parent.inode(), name, NameKind::Directory)
    }

    /// Handles the removal of a name, which is `gone` or may be. If it was the last, the replica is dropped at the last close.
    pub(crate) fn lost_a_name(&self, victim: &FoundNode, name: &OsStr, gone: bool) -> io::Result<()> {
        let node = &victim.node;
        if !node.is_regular() || !self.may_hold(node)? {
            return Ok(());
        }
        let was_last = gone && victim.attributes.nlink == 1 && self.loses_nothing(node);
        let links = if was_last { 0 } else { self.names.attributes(node.inode())?.nlink };
        if links == 0 || (links == 1 && victim.attributes.nlink == 1 && self.is_left_over(node, name)?) {
            self.removes(node, true);
            self.data.note(node.identity(), FileChange::Unlinked);
            return Ok(());
        }
        self.removes(node, false);
        self.changed(node)
    }

    /// Whether dropping the replica loses no data and disturbs nobody, even if others have just given the file another name: the next
    /// open copies the data again.
    fn loses_nothing(&self, node: &Node) -> bool {
        let state = self.data.state(node.identity());
        !state.dirty && !state.open
    }

    /// Whether the only name left of the file once called `name` is that of an NFS client's silly rename: `.nfs` and 24
    /// hexadecimal digits. An NFS client renames a removed file until its last close on this node, and our own
    /// descriptors count. For all others the file is gone. After a crash it may be gone before we have noticed.
    fn is_left_over(&self, node: &Node, name: &OsStr) -> io::Result<bool> {
        let path = self.anchor(node)?.path_hint();
        let digits = path.file_name().filter(|now| *now != name).and_then(|name| name.as_bytes().strip_prefix(b".nfs"));
        Ok(digits.is_some_and(|digits| digits.len() == 24 && digits.iter().all(u8::is_ascii_hexdigit)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use catalogue::{Catalogue, State};
    use config::{Policy, PolicySet};
    use file_cache::{FileCache, Settings};
    use global_store::posix::{PosixStore, StoreOptions};
    use models::MemoryCatalogue;
    use posix_namespace::PosixNamespace;
    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::policy_table::PolicyTable;

    /// Creates an agent of the directory `data`, with its catalogue.
    pub(crate) fn agent_of(tree: &Path) -> (Agent, MemoryCatalogue) {
        let (data, buffer) = (tree.join("data"), tree.join("buffer"));
        std::fs::create_dir(&data).unwrap();
        let below = fs::open(&data, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let store = PosixStore::new(below, StoreOptions::default()).unwrap();
        let mut settings = Settings::new(&buffer, Arc::new(store.clone()), "test");
        let catalogue = MemoryCatalogue::new();
        settings.catalogue = Some(Arc::new(catalogue.clone()));
        let policy = PolicySet::parse(["stage_out=manual"]).unwrap().apply(Policy::default());
        let policies = PolicyTable::load(policy, buffer.join("policies.toml")).unwrap();
        let cache = FileCache::open(settings).unwrap();
        let names = PosixNamespace::new(store).unwrap();
        (Agent::new(Arc::new(cache), Arc::new(names), policies).unwrap(), catalogue)
    }

    /// A file that the medium still calls dirty would be brought back by a crash, without its global copy.
    #[test] // S15
    fn before_the_name_of_a_clean_file_goes_the_medium_knows_that_it_is_clean() {
        let tree = tempfile::tempdir().unwrap();
        let (agent, catalogue) = agent_of(tree.path());
        let (new, how) = (NewMode { mode: 0o644, umask: 0 }, crate::Mode { write: true, ..Default::default() });
        let (found, open) = agent.create(&Caller::own(), agent.root(), Some("f".as_ref()), new, true, how).unwrap();
        open.sync(false).unwrap();
        drop(open);
        assert!(agent.data.drain(None, &mut |_| {}, &|| false).is_empty());
        agent.loses_a_name(&agent.lookup(agent.root(), "f".as_ref()).unwrap());
        catalogue.crash();
        let left = catalogue.get(found.node.identity()).unwrap();
        assert!(left.is_none_or(|record| record.state == State::Clean));
    }

    /// An NFS client renames a file instead of removing it while it is open on the node.
    #[test] // S15
    fn a_file_that_was_renamed_instead_of_removed_is_removed_and_no_other_is() {
        let tree = tempfile::tempdir().unwrap();
        let data = tree.path().join("data");
        let (agent, _) = agent_of(tree.path());
        let left_over = ".nfs00000000000080170000001a";
        let stories = [
            ("f", left_over, 1, true),
            ("f", left_over, 2, false),       // it had this name as well
            (left_over, left_over, 1, false), // it was not removed
            ("f", ".nfs0000", 1, false),
            ("f", ".nfs_a_name_that_is_as_long__", 1, false),
        ];
        for (name, now, links, is_gone) in stories {
            let (new, how) = (NewMode { mode: 0o644, umask: 0 }, crate::Mode { write: true, ..Default::default() });
            let created = agent.create(&Caller::own(), agent.root(), Some(name.as_ref()), new, true, how);
            drop(created.unwrap().1);
            let mut victim = agent.lookup(agent.root(), name.as_ref()).unwrap();
            victim.attributes.nlink = links;
            assert!(agent.data.state(victim.node.identity()).dirty);
            std::fs::rename(data.join(name), data.join(now)).unwrap();
            agent.lost_a_name(&victim, name.as_ref(), true).unwrap();
            assert_eq!(agent.data.state(victim.node.identity()).dirty, !is_gone, "{name} is {now} now");
            std::fs::remove_file(data.join(now)).unwrap();
        }
    }
}
