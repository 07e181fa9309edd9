//! Rate at which small files are brought to a store, by the number that is worked on at once.
//!
//! `applying STORE LOCAL WIDTH...`: the log is put into the directory LOCAL. Beside each rate stand the time of one file and, if STORE
//! is the root of a slowfs, the requests of one file, by kind. With `ALONE=files`, only new files in directories that the store has;
//! `ALONE=fresh`: only new directories of 100 files each; `ALONE=wide`: only five times as many; `ALONE=many`: only 1000 new directories of
//! 2 files each.

use std::collections::BTreeMap;
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
const MANY: usize = 1000;
const STATISTICS: &str = "user.slowfs.statistics";
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

/// Makes new directories with files in them.
fn make_fresh(tree: &DelegatedTree, directories: usize, files: usize) -> io::Result<()> {
    let (top, mtime) = (tree.root()?, Timestamp { seconds: 1_500_000_000, nanos: 0 });
    for directory in 0..directories {
        let name = OsString::from(format!("of {files}, {directory}"));
        tree.make(&USER, &top, &name, NewName::Directory(NewMode { mode: 0o755, umask: 0 }))?;
        let directory = tree.lookup(&top, &name)?.inode;
        for file in 0..files {
            let name = OsString::from(format!("file {file}"));
            let new = NewFile { name: Some(&name), mode: NewMode { mode: 0o644, umask: 0 }, exclusive: true };
            let (found, _) = tree.create(&USER, &directory, new)?;
            tree.set_content(tree.number_of(&found.inode)?, BYTES, mtime, DataPlace::Packed(0))?;
        }
    }
    Ok(())
}

/// Requests of each kind that a slowfs has had; none of another store.
fn requests(store: &Path) -> BTreeMap<String, u64> {
    let mut text = vec![0; 1 << 16];
    let Ok(length) = rustix::fs::getxattr(store, STATISTICS, &mut text[..]) else { return BTreeMap::new() };
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let words: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("requests ")).flat_map(str::split_whitespace).collect();
    words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap_or(0))).collect()
}

/// Prints how often each kind of request was sent for a file since then. RELEASE is left out: nobody waits for it.
fn print_requests(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>, files: usize) {
    let since = |(kind, count): (&String, &u64)| (kind.clone(), (count - before[kind]) as f64 / files as f64);
    let since: Vec<_> = now.iter().filter(|(kind, _)| *kind != "release").map(since).collect();
    let all: f64 = since.iter().map(|(_, each)| each).sum();
    if all > 0.0 {
        print!("    {all:.2} requests each:");
        since.iter().filter(|(_, each)| *each >= 0.005).for_each(|(kind, each)| print!(" {kind} {each:.2}"));
        println!();
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [store, local, widths @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: applying STORE LOCAL WIDTH..."));
    };
    let alone = std::env::var("ALONE").ok();
    let is_wanted = |what: &str| alone.as_ref().is_none_or(|alone| alone == what);
    let mountpoint = Path::new(store);
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
            let before = requests(mountpoint);
            let began = Instant::now();
            let report = tree.apply(&request);
            let took = began.elapsed().as_secs_f64();
            assert!(report.stuck.is_empty(), "{:?}", report.stuck.first());
            let each = took / nodes as f64 * 1e3;
            println!("width {:>3} {what:<24} {:>6.0}/s  {each:>6.2} ms each", request.width, nodes as f64 / took);
            print_requests(&before, &requests(mountpoint), nodes);
        };
        let worlds = [("fresh", DIRECTORIES, FILES), ("wide", 5 * DIRECTORIES, FILES), ("many", MANY, 2)];
        for (what, directories, files) in worlds {
            if is_wanted(what) && (what != "wide" || alone.is_some()) {
                make_fresh(&tree, directories, files)?;
                apply(&format!("files of {directories} new dirs"), directories * files);
            }
        }
        if !is_wanted("files") {
            continue;
        }
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
        if alone.is_some() {
            continue;
        }
        change(&tree, &apply)?;
    }
    Ok(())
}

/// Changes all files in each of three ways, and brings that to the store.
fn change(tree: &DelegatedTree, apply: &dyn Fn(&str, usize)) -> io::Result<()> {
    let nodes = DIRECTORIES * FILES;
    each(tree, &|directory, name| tree.set_mode(&USER, &tree.lookup(directory, name)?.inode, 0o600))?;
    apply("changes of a mode", nodes);
    each(tree, &|directory, name| {
        let other = OsString::from(format!("{} renamed", name.to_string_lossy()));
        tree.rename(&USER, (directory, name), (directory, &other), 0)
    })?;
    apply("renames", nodes);
    each(tree, &|directory, name| {
        let other = OsString::from(format!("{} renamed", name.to_string_lossy()));
        tree.remove(&USER, directory, &other, NameKind::File)
    })?;
    apply("removals", nodes);
    Ok(())
}
