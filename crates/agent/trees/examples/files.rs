//! Figures of a delegated tree's files: creations, opens and removals a second on one thread, beside those of plain files in the
//! same directory, which is given.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use data_store::{OpenHow, WriteWhere};
use delegation::log::MountedLogDirectory;
use delegation::{DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber, NodeState};
use global_store::{Access, StoreFile};
use namespace::{Caller, FileSystemSpace, Inode, NameKind, Names, NewFile, NewMode};
use trees::TreeFiles;

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

fn timed(what: &str, calls: usize, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    step()?;
    let time = start.elapsed().as_secs_f64();
    println!("{what:44} {:10.0} a second, {:6.2} us each", calls as f64 / time, time * 1e6 / calls as f64);
    Ok(())
}

fn name(number: usize) -> String {
    format!("file-{number:011}")
}

fn plain(directory: &Path, count: usize, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let path = |number| directory.join(name(number));
    timed("plain: create, write, close", count, || {
        (0..count).try_for_each(|number| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(number))?;
            if bytes.is_empty() { Ok(()) } else { file.write_all_at(bytes, 0) }
        })
    })?;
    timed("plain: each is removed 100 later", count, || {
        (0..count).try_for_each(|number| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(count + number))?;
            file.write_all_at(bytes, 0)?;
            if number < 100 { Ok(()) } else { fs::remove_file(path(count + number - 100)) }
        })
    })?;
    timed("plain: open, read, close", count, || {
        let mut buffer = vec![0; bytes.len()];
        (0..count).try_for_each(|number| File::open(path(number))?.read_at(&mut buffer, 0).map(drop))
    })?;
    timed("plain: remove", count, || (0..count).try_for_each(|number| fs::remove_file(path(number))))
}

fn create(tree: &DelegatedTree, root: &Inode, number: usize) -> io::Result<(Inode, NodeNumber)> {
    let (mode, name) = (NewMode { mode: 0o644, umask: 0 }, name(number));
    let (found, _) = tree.create(&USER, root, NewFile { name: Some(OsStr::new(&name)), mode, exclusive: true })?;
    let number = tree.number_of(&found.inode)?;
    Ok((found.inode, number))
}

fn ours(directory: &Path, count: usize, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 0, 0), Moment(0));
    let log = Box::new(MountedLogDirectory::new(directory.join("log"))?);
    let (tree, _) = DelegatedTree::open(log, Arc::new(NothingBelow), DelegationSettings::default(), root)?;
    let (files, _) = TreeFiles::open(&directory.join("data"), tree.share())?;
    let root = tree.root()?;
    let mut nodes = Vec::new();
    let how = OpenHow { read: true, write: true, created: true, ..OpenHow::default() };
    timed("tree: create, write, close", count, || {
        for number in 0..count {
            let (_, node) = create(&tree, &root, number)?;
            nodes.push(node);
            let data = files.open_data(node, &how, &|| false)?;
            if !bytes.is_empty() {
                data.write_at(bytes, WriteWhere::At(0))?;
            }
        }
        Ok(())
    })?;
    let remove = |number: usize, node: NodeNumber| -> io::Result<()> {
        let held = tree.lookup(&root, name(number).as_ref())?;
        tree.remove(&USER, &root, name(number).as_ref(), NameKind::File)?;
        files.unlinked(node);
        drop(held);
        Ok(())
    };
    timed("tree: each is removed 100 later", count, || {
        let mut made = Vec::new();
        (0..count).try_for_each(|number| {
            let (_, node) = create(&tree, &root, count + number)?;
            made.push(node);
            let data = files.open_data(node, &how, &|| false)?;
            data.write_at(bytes, WriteWhere::At(0))?;
            drop(data);
            if number < 100 { Ok(()) } else { remove(count + number - 100, made[number - 100]) }
        })
    })?;
    timed("tree: open, read, close", count, || {
        let (how, mut buffer) = (OpenHow { read: true, ..OpenHow::default() }, vec![0; bytes.len()]);
        nodes.iter().try_for_each(|node| files.open_data(*node, &how, &|| false)?.read_at(&mut buffer, 0).map(drop))
    })?;
    timed("tree: remove", count, || nodes.iter().enumerate().try_for_each(|(number, node)| remove(number, *node)))?;
    println!("{:?}", files.usage());
    Ok(())
}

/// Names and nothing else: what a tree costs without the data.
fn names(directory: &Path, count: usize) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 0, 0), Moment(0));
    let log = Box::new(MountedLogDirectory::new(directory.join("log"))?);
    let (tree, _) = DelegatedTree::open(log, Arc::new(NothingBelow), DelegationSettings::default(), root)?;
    let root = tree.root()?;
    timed("names alone: create", count, || (0..count).try_for_each(|number| create(&tree, &root, number).map(drop)))
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or(io::ErrorKind::InvalidInput)?);
    let number = |text: Option<std::ffi::OsString>| text.and_then(|text| text.to_str()?.parse().ok());
    let count = number(arguments.next()).unwrap_or(50_000);
    let rounds = number(arguments.next()).unwrap_or(2);
    for round in 0..rounds {
        for size in [0, 4096] {
            println!("round {round}, {count} files of {size} bytes");
            let bytes = vec![7; size];
            let place = directory.join(format!("{round}-{size}"));
            plain(&place.join("plain"), count, &bytes)?;
            names(&place.join("names"), count)?;
            ours(&place.join("tree"), count, &bytes)?;
            fs::remove_dir_all(&place)?;
        }
    }
    Ok(())
}
