//! Reading directories of the global store into a tree that is leased: each is read once, with the attributes of all that is in it.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use concurrency::{Instant, Mutex};
use data_store::is_interrupted;
use delegation::{BelowState, DataPlace, DelegatedTree, FoundBelow, NodeKind, NodeNumber, ShortName, Xattrs};
use namespace::{Caller, FileAttributes, Found, Inode, KnownSince, Namespace};
use rustix::fs::FileType;
use rustix::io::Errno;
use types::{HasErrno, Identity, Step};

use crate::limits;
use crate::open_tree::OpenTree;

/// Attribute with a program's capabilities, which only the kernel's own rules keep right.
const CAPABILITIES: &[u8] = b"security.capability";

/// Whether the agent has data of a file that the global store lacks.
pub type HasData = dyn Fn(&Identity) -> bool + Send + Sync;

/// Locks of directories that are being read; several share one.
#[derive(Default)]
pub struct DirectoryReads([Mutex<()>; limits::READING_LOCKS]);

/// Extended attributes of a file in the global store.
pub struct FoundXattrs {
    /// Those that a tree keeps.
    pub carried: Xattrs,
    /// Whether there are capabilities besides.
    has_capabilities: bool,
}

/// Returns the extended attributes of a file in the global store.
pub fn xattrs_below(namespace: &dyn Namespace, inode: &Inode) -> io::Result<FoundXattrs> {
    let listed = match namespace.xattr_names(inode) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Vec::new(),
        listed => listed?,
    };
    let mut found = FoundXattrs { carried: Xattrs::new(), has_capabilities: false };
    for name in listed.split(|byte| *byte == 0) {
        found.has_capabilities |= name == CAPABILITIES;
        if is_carried(name) {
            let value = namespace.xattr(inode, &CString::new(name)?)?;
            found.carried.insert(name.into(), value.into());
        }
    }
    Ok(found)
}

/// Whether an extended attribute belongs to the file, and not to the store or to agents.
fn is_carried(name: &[u8]) -> bool {
    let of_users = name.starts_with(b"user.") && !name.starts_with(b"user.forebay.");
    of_users || name.starts_with(b"system.posix_acl_")
}

/// One reading of a directory, in which several threads take part.
struct Names {
    namespace: Arc<dyn Namespace>,
    has_data: Option<Arc<HasData>>,
    directory: Arc<Inode>,
    all: Vec<OsString>,
    /// Index of the next name that nobody looks up yet.
    next: AtomicUsize,
    found: Mutex<io::Result<Vec<FoundBelow>>>,
}

impl Names {
    /// Looks up names until `most` were, there are no more, or one failed.
    fn look_up(&self, most: usize) {
        for _ in 0..most {
            let Some(name) = self.all.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            let looked_up = self.look_up_one(name);
            let mut all = self.found.lock();
            match (&mut *all, looked_up) {
                (Ok(all), Ok(found)) => all.extend(found),
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {}
            }
            if all.is_err() {
                return self.next.store(self.all.len(), Ordering::Relaxed);
            }
        }
    }

    /// Returns what has a name; `None` if that is gone meanwhile.
    fn look_up_one(&self, name: &OsStr) -> io::Result<Option<FoundBelow>> {
        let names = &self.namespace;
        let Found { inode, attributes } = match names.lookup(&self.directory, name) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            found => found.step("look up a name in the global store")?,
        };
        names.identify(&inode, &|_| true)?;
        let (Some(kind), Some(name)) = (NodeKind::of(inode.kind()), ShortName::new(name.as_bytes())) else {
            return Err(Errno::IO.into());
        };
        let target = if kind == NodeKind::Symlink { names.read_symlink(&inode)?.into() } else { Box::default() };
        let xattrs = match kind {
            NodeKind::Symlink => FoundXattrs { carried: Xattrs::new(), has_capabilities: false },
            _ => xattrs_below(&**names, &inode)?,
        };
        let identity = inode.identity().clone();
        let stays_outside = xattrs.has_capabilities || self.stays_outside(&attributes, &identity);
        let xattrs = xattrs.carried;
        Ok(Some(FoundBelow { name, identity, kind, attributes, xattrs, target, stays_outside }))
    }

    /// Whether the store goes on answering for a file: other names of it may be anywhere, or the tree could not keep its data as well.
    fn stays_outside(&self, found: &FileAttributes, identity: &Identity) -> bool {
        let kind = FileType::from_raw_mode(found.mode);
        let has_data = || self.has_data.as_ref().is_some_and(|has_data| has_data(identity));
        kind == FileType::RegularFile && (found.nlink > 1 || found.size > limits::TAKEN_UP_BYTES || has_data())
    }
}

impl OpenTree {
    /// Reads the names in a directory from the global store, unless that was done. Errors: `EINTR` if the caller is interrupted;
    /// `ESTALE` if the tree was given back; those of the store and the log.
    pub fn read_names(&self, directory: &Inode, width: usize) -> io::Result<()> {
        if !self.tree.is_unread(directory)? {
            return Ok(());
        }
        let node = self.tree.number_of(directory)?;
        let _turn = self.reading.0[node.0 as usize % limits::READING_LOCKS].lock();
        if !self.tree.is_unread(directory)? {
            return Ok(());
        }
        let found = self.names_below(node, width).step("read a directory of the global store")?;
        self.tree.take_up(node, found)
    }

    /// Returns the directory of the global store that has a name, if the names in it were not read yet.
    pub fn directory_named(&self, parent: &Inode, name: &OsStr) -> io::Result<Option<Inode>> {
        let found = if self.is_leased() { self.tree.named(parent, name.as_bytes())? } else { None };
        let unread = found.filter(|(_, place)| *place == DataPlace::BelowOnly);
        Ok(unread.and_then(|(node, _)| self.tree.inode(node)).filter(|inode| inode.kind() == FileType::Directory))
    }

    /// Returns the node of a name for which the global store answers.
    pub fn outside_named(&self, parent: &Inode, name: &OsStr) -> io::Result<Option<NodeNumber>> {
        let found = if self.is_leased() { self.tree.named(parent, name.as_bytes())? } else { None };
        Ok(found.filter(|(_, place)| *place == DataPlace::Outside).map(|(node, _)| node))
    }

    /// Whether the global store has one file for two nodes: each of its names is a node.
    pub fn is_one_file(&self, one: NodeNumber, other: NodeNumber) -> bool {
        let identity = |node| match self.tree.state(node)?.below {
            BelowState::At(copy) => copy.identity.clone(),
            BelowState::Never => None,
        };
        identity(one).is_some_and(|one| identity(other) == Some(one))
    }

    /// Returns the file of the global store for a node. `ENOENT` if somebody has removed it there.
    pub fn file_below(&self, node: NodeNumber) -> io::Result<Inode> {
        let Some(BelowState::At(copy)) = self.tree.state(node).map(|state| state.below) else {
            return Err(Errno::STALE.into());
        };
        let identity = copy.identity.as_ref().ok_or(Errno::NOENT)?;
        let hint = path_below(&*self.store.namespace, (&self.tree, &self.root), node);
        self.store.namespace.find(identity, &hint, KnownSince::InUse)?.ok_or_else(|| Errno::NOENT.into())
    }

    fn names_below(&self, node: NodeNumber, width: usize) -> io::Result<Vec<FoundBelow>> {
        let namespace = &self.store.namespace;
        let directory = match node {
            NodeNumber::ROOT => Arc::clone(&self.root),
            _ => Arc::new(self.file_below(node)?),
        };
        let mut all = Vec::new();
        namespace.open_directory(&Caller::own(), &directory)?.read(0, &mut |entry| {
            if entry.name != "." && entry.name != ".." {
                all.push(entry.name.clone());
            }
            true
        })?;
        let names = Arc::new(Names {
            namespace: Arc::clone(namespace),
            has_data: self.has_data(),
            directory,
            all,
            next: AtomicUsize::new(0),
            found: Mutex::new(Ok(Vec::new())),
        });
        look_up_all(&names, width)?;
        std::mem::replace(&mut *names.found.lock(), Ok(Vec::new()))
    }
}

/// Returns the path that a node has in the global store, as far as known. `root`: the tree's directory there.
pub fn path_below(namespace: &dyn Namespace, (tree, root): (&DelegatedTree, &Inode), mut node: NodeNumber) -> PathBuf {
    let mut names = Vec::new();
    while node != NodeNumber::ROOT && names.len() < limits::DEPTH_MAX {
        let Some(BelowState::At(copy)) = tree.state(node).map(|state| state.below) else { break };
        let Some(name) = copy.names.first().cloned() else { break };
        node = name.parent;
        names.push(name.name);
    }
    let root = namespace.path_of(root).unwrap_or_default();
    names.iter().rev().fold(root, |path, name| path.join(OsStr::from_bytes(name.as_bytes())))
}

/// Looks up all names, by more threads if the store takes its time. Errors: `EINTR` if the caller is interrupted.
fn look_up_all(names: &Arc<Names>, width: usize) -> io::Result<()> {
    let began = Instant::now();
    names.look_up(limits::LOOKED_UP_ALONE);
    let left = names.all.len().saturating_sub(limits::LOOKED_UP_ALONE);
    let is_slow = began.elapsed() > limits::SLOW_LOOKUP * limits::LOOKED_UP_ALONE as u32;
    let more = if is_slow { left.min(width.saturating_sub(1)) } else { 0 };
    let help = |names: Arc<Names>| move || names.look_up(usize::MAX);
    // With fewer threads than wanted the reading takes longer.
    let threads: Vec<_> =
        (0..more).filter_map(|_| concurrency::spawn_joined("read names", help(Arc::clone(names))).ok()).collect();
    let mut interrupted = false;
    while names.next.load(Ordering::Relaxed) < names.all.len() {
        names.look_up(1);
        if is_interrupted() {
            interrupted = true;
            names.next.store(names.all.len(), Ordering::Relaxed);
        }
    }
    for thread in threads {
        thread.join().map_err(|_| io::Error::from(Errno::IO))?;
    }
    if interrupted { Err(Errno::INTR.into()) } else { Ok(()) }
}
