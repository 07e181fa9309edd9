//! The namespace, which is the global store's: every change is made there, as the caller, and at once.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use global_store::calls::StoreCall;
use global_store::descriptors;
use global_store::hidden::is_hidden;
use global_store::posix::{PosixStore, reopen_as_path};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use types::Identity;

use crate::agent::Agent;
use crate::attributes::{Attributes, of_stat};
use crate::caller::{Caller, Judge, names_in, with_umask};
use crate::limits;
use crate::node::Node;

/// A node with what is known of it at the moment it was found or made.
pub struct FoundNode {
    /// The node.
    pub node: Arc<Node>,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The permission bits of a creation and the caller's umask, which a default ACL of the directory rules out.
#[derive(Debug, Clone, Copy)]
pub struct NewMode {
    /// Bits asked for; those of the type are ignored except by [`Agent::make_node`].
    pub mode: u32,
    /// Bits the caller never wants.
    pub umask: u32,
}

impl NewMode {
    /// Who decides whether it is made in a directory, and how: set-group-id of a group that is not the caller's is left out without a
    /// refusal.
    fn judge(self, directory: &Node) -> Judge<'_> {
        if self.mode & 0o2000 == 0 { names_in(directory) } else { Judge::Groups }
    }
}

impl Agent {
    /// Finds a name. `ENFILE`: the last descriptors are kept for files that are open.
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        let found = self.look_up(parent, name)?;
        if descriptors::is_last(found.node.fd()) { Err(Errno::NFILE.into()) } else { Ok(found) }
    }

    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if is_hidden(name) {
            return Err(Errno::NOENT.into());
        }
        let name = plain(name)?;
        let look =
            || self.found(self.below(StoreCall::Lookup, || fs::openat(parent.fd(), name, flags, Mode::empty()))?);
        for _ in 1..limits::LOOKUP_TRIES {
            match look() {
                // Another file took its place between the two questions.
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) && self.cache.has_published() => {}
                other => return other,
            }
        }
        look()
    }

    /// [`Agent::find`] of what was open before a restart. Nothing where its identity may be another file's by now: nobody kept it from
    /// being given away.
    pub fn find_again(&self, identity: &Identity, hint: &Path) -> io::Result<Option<Arc<Node>>> {
        if PosixStore::is_lasting(identity) { self.find(identity, hint) } else { Ok(None) }
    }

    /// The file or directory with this identity, which was seen at `hint`; `None`: it is not there any more.
    pub fn find(&self, identity: &Identity, hint: &Path) -> io::Result<Option<Arc<Node>>> {
        let Some(fd) = self.store.find(identity, hint)? else { return Ok(None) };
        self.below(StoreCall::Attributes, || {
            let stat = fs::fstat(&fd)?;
            Ok(Some(Arc::new(Node::new(&self.store, fd, stat.st_mode, stat.st_ino)?)))
        })
    }

    fn found(&self, fd: OwnedFd) -> io::Result<FoundNode> {
        let before = self.cache.settled();
        let (node, attributes) = self.looked_at(fd)?;
        self.check_place(&node, attributes.nlink == 0)?;
        let attributes = self.overlaid(&node, before, attributes)?;
        Ok(FoundNode { node: Arc::new(node), attributes })
    }

    /// A node, and what the global store says of it.
    fn looked_at(&self, fd: OwnedFd) -> io::Result<(Node, Attributes)> {
        self.below(StoreCall::Attributes, || {
            let stat = fs::fstat(&fd)?;
            Ok((Node::new(&self.store, fd, stat.st_mode, stat.st_ino)?, of_stat(&stat)))
        })
    }

    /// Makes a directory.
    pub fn make_directory(&self, caller: &Caller, parent: &Node, name: &OsStr, new: NewMode) -> io::Result<FoundNode> {
        let make = |mode| fs::mkdirat(parent.fd(), plain(name)?, Mode::from_raw_mode(mode & 0o7777));
        self.impersonator.act(caller, new.judge(parent), || {
            Ok(self.change_below(StoreCall::Create, || with_umask(new.mode, new.umask, make))?)
        })?;
        self.look_up(parent, name)
    }

    /// Makes a fifo, socket, device or empty file; the type is in the mode.
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
        let make = |mode| fs::mknodat(parent.fd(), plain(name)?, kind, Mode::from_raw_mode(mode & 0o7777), device);
        self.impersonator.act(caller, new.judge(parent), || {
            Ok(self.change_below(StoreCall::Create, || with_umask(new.mode, new.umask, make))?)
        })?;
        self.look_up(parent, name)
    }

    /// Makes a symbolic link.
    pub fn make_symlink(&self, caller: &Caller, parent: &Node, name: &OsStr, target: &OsStr) -> io::Result<FoundNode> {
        self.impersonator.act(caller, names_in(parent), || {
            Ok(self.change_below(StoreCall::Create, || fs::symlinkat(target, parent.fd(), plain(name)?))?)
        })?;
        self.look_up(parent, name)
    }

    /// What a symbolic link holds.
    pub fn read_symlink(&self, node: &Node) -> io::Result<Vec<u8>> {
        let target = self.below(StoreCall::Read, || fs::readlinkat(node.fd(), "", Vec::new()))?;
        Ok(std::ffi::OsString::from_vec(target.into_bytes()).into_vec())
    }

    /// Gives a node another name; a file created without one gets its first.
    pub fn link(&self, caller: &Caller, node: &Node, parent: &Node, name: &OsStr) -> io::Result<FoundNode> {
        {
            let _steady = self.steady(node)?;
            let (from, follow) = (self.descriptor_name(node), AtFlags::SYMLINK_FOLLOW);
            let link = || fs::linkat(&self.descriptors, &from, parent.fd(), plain(name)?, follow);
            let change = || Ok(self.change_below(StoreCall::Create, link)?);
            self.as_ours(node, || self.impersonator.act(caller, names_in(parent), change))?;
        }
        self.removes(node, false);
        self.changed(node)?;
        self.look_up(parent, name)
    }

    /// Removes a name that is no directory. The file's data goes with its last name.
    pub fn unlink(&self, caller: &Caller, parent: &Node, name: &OsStr) -> io::Result<()> {
        let _steady = self.steady_names();
        let victim = self.look_up(parent, name)?;
        self.loses_a_name(&victim);
        let remove =
            || self.change_below(StoreCall::Remove, || Ok(fs::unlinkat(parent.fd(), plain(name)?, AtFlags::empty())?));
        let done = self.as_ours(&victim.node, || self.impersonator.act(caller, names_in(parent), remove));
        // Whatever it came to: the file tells how many names it has.
        let told = self.lost_a_name(&victim, name);
        done.and(told)
    }

    /// Before its name is taken away: if that is the last, recovery must know of it. Also of a file that is clean: what a crash of
    /// the machine leaves may still call it dirty.
    pub(crate) fn loses_a_name(&self, victim: &FoundNode) {
        // Of what nobody holds anything there is nothing to know. Where that cannot be found out, the removal tells.
        if victim.node.is_regular() && victim.attributes.nlink == 1 && self.may_hold(&victim.node).unwrap_or(false) {
            self.removes(&victim.node, true);
            self.cache.removing(victim.node.identity());
        }
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, caller: &Caller, parent: &Node, name: &OsStr) -> io::Result<()> {
        self.emptying(caller, parent, name, || {
            self.impersonator.act(caller, names_in(parent), || {
                self.change_below(StoreCall::Remove, || {
                    Ok(fs::unlinkat(parent.fd(), plain(name)?, AtFlags::REMOVEDIR)?)
                })
            })
        })
    }

    /// A name of it is gone: if it was the last, the replica goes once nobody has the file open.
    pub(crate) fn lost_a_name(&self, victim: &FoundNode, name: &OsStr) -> io::Result<()> {
        let node = &victim.node;
        if !node.is_regular() || !self.may_hold(node)? {
            return Ok(());
        }
        let links = self.below(StoreCall::Attributes, || fs::fstat(node.fd()))?.st_nlink;
        if links == 0 || (links == 1 && victim.attributes.nlink == 1 && self.is_left_over(node, name)?) {
            self.removes(node, true);
            self.cache.unlinked(node.identity());
            return Ok(());
        }
        self.removes(node, false);
        self.changed(node)
    }

    /// Whether the only name of what was called `name` is the one that a client of NFS gives to a file that is removed while somebody
    /// has it - our own descriptors of it are enough - until he lets go: `.nfs` and 24 hexadecimal digits. It is gone for all others
    /// then, and after a crash it may be gone before we have heard of it.
    fn is_left_over(&self, node: &Node, name: &OsStr) -> io::Result<bool> {
        let path = node.anchor(&self.store)?.path_hint();
        let digits = path.file_name().filter(|now| *now != name).and_then(|name| name.as_bytes().strip_prefix(b".nfs"));
        Ok(digits.is_some_and(|digits| digits.len() == 24 && digits.iter().all(u8::is_ascii_hexdigit)))
    }

    /// Creates a regular file that was not there and opens it for reading and writing, below. `ESTALE` when it is
    /// there although the caller thought otherwise: the kernel then looks again.
    pub(crate) fn create_below(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Option<&OsStr>,
        new: NewMode,
        exclusive: bool,
    ) -> io::Result<(FoundNode, OwnedFd)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let (flags, name) = match name {
            Some(name) => (flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, plain(name)?),
            None if exclusive => (flags | OFlags::TMPFILE | OFlags::EXCL, OsStr::new(".")),
            None => (flags | OFlags::TMPFILE, OsStr::new(".")),
        };
        let create = |mode| fs::openat(parent.fd(), name, flags, Mode::from_raw_mode(mode & 0o7777));
        let created = self.impersonator.act(caller, new.judge(parent), || {
            match self.change_below(StoreCall::Create, || with_umask(new.mode, new.umask, create)) {
                Err(Errno::EXIST) if !exclusive => Err(Errno::STALE.into()),
                created => Ok(created?),
            }
        })?;
        // Nobody has data of a file that was made just now: a server need not be asked.
        let (node, attributes) = self.looked_at(reopen_as_path(created.as_fd())?)?;
        Ok((FoundNode { node: Arc::new(node), attributes }, created))
    }
}

/// A name as the kernel passes it: one component that is neither `.` nor `..`.
pub(crate) fn plain(name: &OsStr) -> Result<&OsStr, Errno> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ if is_hidden(name) => Err(Errno::ACCESS),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(name),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use catalogue::{Catalogue, MemoryCatalogue, State};
    use config::{Policy, PolicySet};
    use file_cache::{FileCache, Settings};
    use global_store::posix::StoreOptions;

    use super::*;
    use crate::agent::Config;
    use crate::policy_table::PolicyTable;

    /// An agent of the directory `data`, and what its catalogue holds.
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
        (Agent::new(Config { cache, store, policies }).unwrap(), catalogue)
    }

    /// What the medium still calls dirty, a crash would bring back without its file.
    #[test] // S15
    fn before_the_name_of_a_clean_file_goes_the_medium_knows_that_it_is_clean() {
        let tree = tempfile::tempdir().unwrap();
        let (agent, catalogue) = agent_of(tree.path());
        let (new, how) = (NewMode { mode: 0o644, umask: 0 }, crate::Mode { write: true, ..Default::default() });
        let (found, open) = agent.create(&Caller::own(), agent.root(), Some("f".as_ref()), new, true, how).unwrap();
        open.sync(false).unwrap();
        drop(open);
        assert!(agent.cache.drain_all(&mut |_| {}, &|| false).is_empty());
        agent.loses_a_name(&agent.lookup(agent.root(), "f".as_ref()).unwrap());
        catalogue.crash();
        let left = catalogue.get(found.node.identity()).unwrap();
        assert!(left.is_none_or(|record| record.state == State::Clean));
    }

    /// A client of NFS renames what it is told to remove while somebody has it.
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
            assert!(agent.cache.is_dirty(victim.node.identity()));
            std::fs::rename(data.join(name), data.join(now)).unwrap();
            agent.lost_a_name(&victim, name.as_ref()).unwrap();
            assert_eq!(agent.cache.is_dirty(victim.node.identity()), !is_gone, "{name} is {now} now");
            std::fs::remove_file(data.join(now)).unwrap();
        }
    }
}
