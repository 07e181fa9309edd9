//! Figures of a delegated tree: calls a second on one thread, bytes of memory and of the log for each name, and the time in which a
//! million names are read back. The log is put into the directory that is given.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use delegation::log::MountedLogDirectory;
use delegation::{DataPlace, DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber, NodeState};
use global_store::{Access, StoreFile};
use namespace::{Caller, FileSystemSpace, Inode, NameKind, Names, NewFile, NewMode, NewName};
use types::Timestamp;

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }
}

const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 0 };

fn open(path: &Path) -> io::Result<DelegatedTree> {
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, USER.uid, USER.gid), Moment(0));
    let directory = Box::new(MountedLogDirectory::new(path)?);
    Ok(DelegatedTree::open(directory, Arc::new(NothingBelow), DelegationSettings::default(), root)?.0)
}

/// A step, its calls a second, and what it returns.
fn timed<T>(what: &str, calls: usize, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    let time = start.elapsed().as_secs_f64();
    println!("{what:40} {:10.0} a second, {time:.2} s", calls as f64 / time);
    result
}

fn name(number: usize) -> String {
    format!("file-{number:011}")
}

fn create(tree: &DelegatedTree, directory: &Inode, number: usize) -> io::Result<()> {
    let mode = NewMode { mode: 0o644, umask: 0o022 };
    let name = name(number);
    let (found, anchor) =
        tree.create(&USER, directory, NewFile { name: Some(OsStr::new(&name)), mode, exclusive: true })?;
    drop((found, anchor));
    Ok(())
}

fn measure(path: PathBuf, names: usize, directories: usize) -> io::Result<()> {
    println!("{names} names of 16 bytes in {directories} directories");
    let before = ALLOCATED.load(Relaxed);
    let tree = open(&path)?;
    let root = tree.root()?;
    let mut parents = Vec::new();
    for number in 0..directories {
        let name = format!("directory {number}");
        let new = NewName::Directory(NewMode { mode: 0o755, umask: 0 });
        tree.make(&USER, &root, name.as_ref(), new)?;
        parents.push(tree.lookup(&root, name.as_ref())?.inode);
    }
    let parent = |number: usize| &parents[number % directories];
    timed("create", names, || (0..names).try_for_each(|number| create(&tree, parent(number), number)))?;
    let memory = ALLOCATED.load(Relaxed) - before;
    println!("{:40} {:10.1}", "bytes of memory a name", memory as f64 / names as f64);
    let log_bytes = |tree: &DelegatedTree| tree.log_files().iter().map(|(file, _)| file.bytes).sum::<u64>();
    println!("{:40} {:10.1}", "bytes of log a name, create", log_bytes(&tree) as f64 / names as f64);
    timed("look up", names, || {
        (0..names).try_for_each(|number| tree.lookup(parent(number), name(number).as_ref()).map(drop))
    })?;
    timed("note content (last close)", names, || {
        (0..names).try_for_each(|number| {
            let found = tree.lookup(parent(number), name(number).as_ref())?;
            let mtime = Timestamp { seconds: 1_700_000_000, nanos: 0 };
            tree.set_content(tree.number_of(&found.inode)?, 4096, mtime, DataPlace::Replica(number as u64))
        })
    })?;
    println!("{:40} {:10.1}", "bytes of log a name, create and close", log_bytes(&tree) as f64 / names as f64);
    timed("sync", 1, || tree.sync())?;
    timed("list", names, || {
        let mut seen = 0;
        let directory = |parent| tree.open_directory(&USER, parent);
        parents.iter().try_for_each(|parent| {
            directory(parent)?.read(0, &mut |_| {
                seen += 1;
                true
            })
        })?;
        assert_eq!(seen, names + 2 * directories);
        io::Result::Ok(())
    })?;
    drop((parents, root, tree));
    PEAK.store(ALLOCATED.load(Relaxed), Relaxed);
    let before = ALLOCATED.load(Relaxed);
    let tree = timed("open the log again", names, || open(&path))?;
    let (memory, peak) = (ALLOCATED.load(Relaxed) - before, PEAK.load(Relaxed) - before);
    println!("{:40} {:10.1}", "bytes of memory a name, then", memory as f64 / names as f64);
    println!("{:40} {:10.1}", "bytes of memory a name, meanwhile", peak as f64 / names as f64);
    let root = tree.root()?;
    timed("remove", names, || {
        for number in 0..directories {
            let parent = tree.lookup(&root, format!("directory {number}").as_ref())?.inode;
            for file in (number..names).step_by(directories) {
                tree.remove(&USER, &parent, name(file).as_ref(), NameKind::File)?;
            }
        }
        io::Result::Ok(())
    })?;
    assert_eq!(tree.len(), 1 + directories);
    std::fs::remove_dir_all(path)
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: figures DIRECTORY [NAMES]");
        std::process::exit(64);
    };
    let names = arguments.next().and_then(|names| names.to_str()?.parse().ok()).unwrap_or(1_000_000);
    measure(directory.join("one-directory.log"), names, 1)?;
    measure(directory.join("thousand-directories.log"), names, 1000)
}
