//! Rate at which small files are brought to a store, by the number that is worked on at once.
//!
//! `applying STORE LOCAL WIDTH...`: the log is put into the directory LOCAL. Beside each rate stands the time of one file, which
//! at width 1 and a known latency tells the requests of a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use delegation::log::MountedLogDirectory;
use delegation::{
    ApplyRequest, Contents, DataPlace, DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber,
    NodeState, StoreTree,
};
use global_store::posix::{PosixStore, StoreOptions};
use global_store::{Access, StoreFile};
use namespace::{Attributes, Caller, FileSystemSpace, NameKind, Names, Namespace, NewFile, NewMode, NewName};
use posix_namespace::PosixNamespace;
use types::Timestamp;

const DIRECTORIES: usize = 20;
const FILES: usize = 100;
const BYTES: u64 = 3901;
const USER: Caller = Caller { uid: 0, gid: 0, pid: 0 };

struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }

    fn new_place(&self) -> DataPlace {
        DataPlace::None
    }

    fn return_place(&self, _: DataPlace) {}
}

struct Same;

impl Contents for Same {
    fn write(&self, _: NodeNumber, _: DataPlace, into: &dyn StoreFile) -> io::Result<()> {
        into.write_at(&[7; BYTES as usize], 0)
    }
}

fn open(path: &Path) -> io::Result<DelegatedTree> {
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 0, 0), Moment(0));
    let directory = Box::new(MountedLogDirectory::new(path)?);
    Ok(DelegatedTree::open(directory, Arc::new(NothingBelow), DelegationSettings::default(), root)?.0)
}

/// Calls a closure for each file, with its directory and its name.
fn each(tree: &DelegatedTree, call: &dyn Fn(&namespace::Inode, &OsStr) -> io::Result<()>) -> io::Result<()> {
    let root = tree.root()?;
    for directory in 0..DIRECTORIES {
        let directory = tree.lookup(&root, OsString::from(format!("directory {directory}")).as_ref())?.inode;
        for file in 0..FILES {
            call(&directory, OsString::from(format!("file {file}")).as_ref())?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [store, local, widths @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: applying STORE LOCAL WIDTH..."));
    };
    // Only new files, for those who count requests.
    let is_short = std::env::var_os("NEW_FILES_ALONE").is_some();
    for width in widths {
        let tree = open(&Path::new(local).join(width))?;
        let below = Path::new(store).join(width);
        std::fs::create_dir(&below)?;
        let descriptor: OwnedFd = File::open(&below)?.into();
        let namespace: Arc<dyn Namespace> =
            Arc::new(PosixNamespace::new(PosixStore::new(descriptor, StoreOptions::default())?)?);
        let root = Arc::new(namespace.root()?);
        let store = Arc::new(StoreTree { namespace, root, agent: "figures".into() });
        let contents: Arc<dyn Contents> = Arc::new(Same);
        let request = ApplyRequest {
            width: width.to_string_lossy().parse().map_err(io::Error::other)?,
            ..ApplyRequest::new(&store, &contents)
        };
        let apply = |what: &str, nodes: usize| {
            let began = Instant::now();
            let report = tree.apply(&request);
            let took = began.elapsed().as_secs_f64();
            assert!(report.stuck.is_empty(), "{:?}", report.stuck.first());
            let each = took / nodes as f64 * 1e3;
            println!("width {:>3} {what:<24} {:>6.0}/s  {each:>6.2} ms each", request.width, nodes as f64 / took);
        };
        let (top, mode) = (tree.root()?, NewMode { mode: 0o755, umask: 0 });
        for directory in 0..DIRECTORIES {
            let name = OsString::from(format!("directory {directory}"));
            tree.make(&USER, &top, &name, NewName::Directory(mode))?;
        }
        apply("directories", DIRECTORIES);
        let (nodes, mtime) = (DIRECTORIES * FILES, Timestamp { seconds: 1_500_000_000, nanos: 0 });
        each(&tree, &|directory, name| {
            let mode = NewMode { mode: 0o644, umask: 0 };
            let (found, _) = tree.create(&USER, directory, NewFile { name: Some(name), mode, exclusive: true })?;
            tree.set_content(tree.number_of(&found.inode)?, BYTES, mtime, DataPlace::Packed(0))
        })?;
        apply("new files", nodes);
        if is_short {
            continue;
        }
        each(&tree, &|directory, name| tree.set_mode(&USER, &tree.lookup(directory, name)?.inode, 0o600))?;
        apply("changes of a mode", nodes);
        each(&tree, &|directory, name| {
            let other = OsString::from(format!("{} renamed", name.to_string_lossy()));
            tree.rename(&USER, (directory, name), (directory, &other), 0)
        })?;
        apply("renames", nodes);
        each(&tree, &|directory, name| {
            let other = OsString::from(format!("{} renamed", name.to_string_lossy()));
            tree.remove(&USER, directory, &other, NameKind::File)
        })?;
        apply("removals", nodes);
    }
    Ok(())
}
