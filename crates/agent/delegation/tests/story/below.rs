//! A delegated tree over a mounted directory, and everything that programs see of both.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use delegation::{ApplyReport, ApplyRequest, Contents, DataPlace, DelegatedTree, NodeNumber, StoreTree};
use global_store::posix::{PosixStore, StoreOptions};
use global_store::{Access, StoreFile};
use namespace::{AnchorFor, Inode, Names, Namespace};
use posix_namespace::PosixNamespace;
use rustix::fs::FileType;

use super::counted::Counted;
use super::{ROOT, World};

/// Bytes of every file: a function of its node and of the version.
pub struct Bytes;

pub fn bytes_of(node: NodeNumber, data: DataPlace) -> Vec<u8> {
    let DataPlace::Replica(version) = data else { return Vec::new() };
    (0..version * 1000).map(|at| (at ^ node.0 ^ version) as u8).collect()
}

impl Contents for Bytes {
    fn write(&self, node: NodeNumber, data: DataPlace, into: &dyn StoreFile) -> io::Result<()> {
        into.write_at(&bytes_of(node, data), 0)
    }
}

/// The directory below.
pub struct Below {
    pub calls: Arc<Counted>,
    pub store: Arc<StoreTree>,
    /// Nodes that are worked on at once.
    pub width: usize,
    /// Whether names appear in the order of their changes.
    pub strict: bool,
}

impl Below {
    /// Opens a directory, which is made if it does not exist. Everybody may create files in it.
    pub fn new(path: &Path) -> Below {
        if !path.exists() {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let root: OwnedFd = File::open(path).unwrap().into();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let calls = Arc::new(Counted::new(Arc::new(PosixNamespace::new(store).unwrap())));
        let root = Arc::new(calls.root().unwrap());
        let namespace: Arc<dyn Namespace> = Arc::clone(&calls) as Arc<dyn Namespace>;
        calls.take();
        let store = Arc::new(StoreTree { namespace, root, agent: "agent:1".into() });
        Below { calls, store, width: 1, strict: false }
    }

    pub fn apply(&self, tree: &DelegatedTree) -> ApplyReport {
        self.apply_by(tree, |request| tree.apply(request))
    }

    /// Applies as a closure says, which gets a request of this width.
    pub fn apply_by(&self, tree: &DelegatedTree, apply: impl FnOnce(&ApplyRequest<'_>) -> ApplyReport) -> ApplyReport {
        let contents: Arc<dyn Contents> = Arc::new(Bytes);
        let (width, strict) = (self.width, self.strict);
        let report = apply(&ApplyRequest { width, strict, ..ApplyRequest::new(&self.store, &contents) });
        tree.assert_invariants();
        report
    }

    pub fn seen(&self) -> BTreeMap<PathBuf, String> {
        seen_by(&*self.store.namespace, &self.store.root)
    }
}

/// Returns what programs see of a directory of a namespace.
pub fn seen_by(namespace: &dyn Namespace, root: &Inode) -> BTreeMap<PathBuf, String> {
    let bytes = |inode: &Inode| {
        let file = namespace.anchor(inode, AnchorFor::Any).unwrap().open(Access::Read).unwrap();
        let mut bytes = vec![0; file.attributes().unwrap().fingerprint.size as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let mut seen = BTreeMap::new();
    walk(namespace, root, Path::new(""), &bytes, &mut seen);
    seen
}

/// Returns what programs see of a delegated tree.
pub fn seen_of(tree: &DelegatedTree) -> BTreeMap<PathBuf, String> {
    let bytes = |inode: &Inode| {
        let state = tree.state(tree.number_of(inode).unwrap()).unwrap();
        bytes_of(state.number, state.data)
    };
    let mut seen = BTreeMap::new();
    walk(tree, &tree.root().unwrap(), Path::new(""), &bytes, &mut seen);
    seen
}

fn walk<W: World + ?Sized>(
    world: &W,
    directory: &Inode,
    path: &Path,
    bytes: &dyn Fn(&Inode) -> Vec<u8>,
    seen: &mut BTreeMap<PathBuf, String>,
) {
    for name in names_in(world, directory) {
        if name == "." || name == ".." {
            continue;
        }
        let (path, found) = (path.join(&name), world.lookup(directory, &name).unwrap());
        let (inode, now) = (found.inode, found.attributes);
        let mut text = format!("{:o} links {} of {}:{}", now.mode, now.nlink, now.uid, now.gid);
        text += &format!(" device {:x} mtime {}.{:09}", now.rdev, now.mtime.seconds, now.mtime.nanos);
        if inode.kind() == FileType::Symlink {
            text += &format!(" to {:?}", world.read_symlink(&inode).unwrap());
        } else {
            let names = world.xattr_names(&inode).unwrap();
            let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
            names.retain(|name| name.starts_with(b"user.") || name.starts_with(b"system."));
            names.sort();
            for name in names {
                let value = world.xattr(&inode, &CString::new(name).unwrap()).unwrap();
                text += &format!(" {}={value:?}", name.escape_ascii());
            }
        }
        if inode.kind() == FileType::RegularFile {
            let bytes = bytes(&inode);
            let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            text += &format!(" {} bytes, {sum:x}", bytes.len());
        }
        seen.insert(path.clone(), text);
        if inode.kind() == FileType::Directory {
            walk(world, &inode, &path, bytes, seen);
        }
    }
}

/// Names in a directory of the machine that programs do not see.
pub fn hidden_left(path: &Path) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().as_bytes().starts_with(b".forebay-new-") {
            left.push(entry.path());
        } else if entry.file_type().unwrap().is_dir() {
            left.extend(hidden_left(&entry.path()));
        }
    }
    left
}

fn names_in<W: World + ?Sized>(world: &W, directory: &Inode) -> Vec<OsString> {
    let mut names = Vec::new();
    let open = world.open_directory(&ROOT, directory).unwrap();
    open.read(0, &mut |entry| {
        names.push(entry.name.clone());
        true
    })
    .unwrap();
    names
}
