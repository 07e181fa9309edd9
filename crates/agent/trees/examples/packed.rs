//! Figures of packing small files of a delegated tree, on the file system of a directory, which is given: time, inodes, bytes.
//!
//! `packed DIRECTORY [FILES] [CHURNED] [BYTES] [MODE...]`: a mode is `off`, `close` (packed at once, by a thread beside the program) or `quiet`
//! (packed afterwards). CHURNED plain files are made and removed before each.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data_store::{OpenHow, WriteWhere};
use delegation::log::MountedLogDirectory;
use delegation::{DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber, NodeState};
use global_store::{Access, StoreFile};
use namespace::{Caller, FileSystemSpace, Names, NewFile, NewMode};
use trees::TreeFiles;

const USER: Caller = Caller { uid: 0, gid: 0, pid: 0 };
const SMALL: u64 = 256 << 10;

struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }
}

fn timed<T>(what: &str, calls: usize, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    let done = step()?;
    let time = start.elapsed().as_secs_f64();
    println!("  {what:34} {:10.0} a second, {:7.2} us each", calls as f64 / time, time * 1e6 / calls as f64);
    Ok(done)
}

fn sync(tree: &DelegatedTree, files: &TreeFiles) -> io::Result<()> {
    let end = tree.log().end();
    files.sync_pack()?;
    tree.log().sync(end)?;
    files.names_synced(end);
    Ok(())
}

/// Inodes and bytes that a file system has in use.
fn used(directory: &Path) -> io::Result<(u64, u64)> {
    rustix::fs::syncfs(File::open(directory)?)?;
    let found = rustix::fs::statvfs(directory)?;
    Ok((found.f_files - found.f_ffree, (found.f_blocks - found.f_bfree) * found.f_frsize))
}

fn churn(directory: &Path, count: usize) -> io::Result<()> {
    let path = |number: usize| directory.join(format!("churned-{number}"));
    (0..count).try_for_each(|number| fs::write(path(number), b"bytes"))?;
    rustix::fs::syncfs(File::open(directory)?)?;
    (0..count).try_for_each(|number| fs::remove_file(path(number)))
}

/// Does what the threads of an agent do beside programs, until `done`.
fn beside(tree: &DelegatedTree, files: &TreeFiles, packs: bool, done: &AtomicBool) -> io::Result<()> {
    let mut synced = Instant::now();
    while !done.load(Ordering::Acquire) {
        let packed = if packs { files.pack(SMALL, 512)?.packed } else { 0 };
        if packed > 0 {
            sync(tree, files)?;
        } else {
            std::thread::sleep(Duration::from_millis(5));
        }
        if synced.elapsed() > Duration::from_secs(1) {
            files.sync()?;
            sync(tree, files)?;
            synced = Instant::now();
        }
    }
    Ok(())
}

fn measure(directory: &Path, (count, bytes): (usize, usize), mode: &str) -> io::Result<()> {
    let before = used(directory)?;
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 0, 0), Moment(0));
    let log = Box::new(MountedLogDirectory::new(directory.join("log"))?);
    let (tree, _) = DelegatedTree::open(log, Arc::new(NothingBelow), DelegationSettings::default(), root)?;
    let (files, _) = TreeFiles::open(&directory.join("data"), tree.share())?;
    let (root, bytes) = (tree.root()?, vec![7; bytes]);
    let how = OpenHow { read: true, write: true, created: true, ..OpenHow::default() };
    let done = Arc::new(AtomicBool::new(false));
    let thread = {
        let (tree, files, done, packs) = (tree.share(), files.clone(), Arc::clone(&done), mode == "close");
        std::thread::spawn(move || beside(&tree, &files, packs, &done))
    };
    let nodes = timed("create, write, close", count, || {
        let create = |number: usize| -> io::Result<NodeNumber> {
            let (mode, name) = (NewMode { mode: 0o644, umask: 0 }, format!("file-{number:011}"));
            let new = NewFile { name: Some(OsStr::new(&name)), mode, exclusive: true };
            let node = tree.number_of(&tree.create(&USER, &root, new)?.0.inode)?;
            files.open_data(node, &how, &|| false)?.write_at(&bytes, WriteWhere::At(0))?;
            Ok(node)
        };
        (0..count).map(create).collect::<io::Result<Vec<_>>>()
    })?;
    let left = files.closed_len();
    timed(&format!("pack and sync the {left} that wait"), left.max(1), || {
        while mode != "off" && files.pack(SMALL, 4096)?.packed > 0 {}
        sync(&tree, &files)
    })?;
    done.store(true, Ordering::Release);
    thread.join().map_err(|_| io::ErrorKind::Other)??;
    while files.tidy_pack()? {}
    sync(&tree, &files)?;
    let read = |how: &OpenHow| {
        let mut buffer = vec![0; bytes.len()];
        nodes.iter().try_for_each(|node| files.open_data(*node, how, &|| false)?.read_at(&mut buffer, 0).map(drop))
    };
    timed("open, read, close", count, || read(&OpenHow { read: true, ..OpenHow::default() }))?;
    let after = used(directory)?;
    println!("  inodes {}, bytes {}, {:?}", after.0 - before.0, after.1 - before.1, files.usage());
    let some = &nodes[..nodes.len().min(1000)];
    timed("open for writing, write, close", some.len(), || {
        let how = OpenHow { read: true, write: true, ..OpenHow::default() };
        some.iter()
            .try_for_each(|node| files.open_data(*node, &how, &|| false)?.write_at(b"x", WriteWhere::At(0)).map(drop))
    })?;
    files.close();
    Ok(())
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or(io::ErrorKind::InvalidInput)?);
    let count = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let churned = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let bytes = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(3901);
    let given: Vec<String> = arguments.collect();
    let modes = if given.is_empty() { vec!["off".into(), "close".into(), "quiet".into()] } else { given };
    for mode in modes {
        let place = directory.join(&mode);
        fs::create_dir_all(&place)?;
        churn(&place, churned)?;
        println!("{mode}: {count} files of {bytes} bytes, {churned} removed before");
        measure(&place, (count, bytes), &mode)?;
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}
