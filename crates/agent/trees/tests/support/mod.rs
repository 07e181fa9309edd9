//! A delegated tree on a scratch directory, over a global store in memory.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use data_store::{OpenData, OpenHow, WriteWhere};
use delegation::log::MountedLogDirectory;
use delegation::{DataPlace, DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber, NodeState};
use global_store::{Access, StoreAttributes, StoreFile};
use namespace::{Attributes, Caller, FileAttributes, FileSystemSpace, Inode, NameKind, Names, NewFile, NewMode};
use testkit::TempTree;
use trees::{FilesReport, TreeFiles};
use types::{ByteRange, Fingerprint, Timestamp};

pub const ALICE: Caller = Caller { uid: 1000, gid: 1000, pid: 0 };

/// A file of a store, which remembers which ranges were written and punched.
#[derive(Clone, Default)]
pub struct MemoryFile {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub written: Arc<Mutex<Vec<ByteRange>>>,
    pub punched: Arc<Mutex<Vec<ByteRange>>>,
    /// Ranges with data; `None`: all.
    pub data: Option<Vec<ByteRange>>,
}

impl MemoryFile {
    pub fn of(bytes: &[u8]) -> MemoryFile {
        MemoryFile { bytes: Arc::new(Mutex::new(bytes.to_vec())), ..MemoryFile::default() }
    }
}

impl StoreFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let (mut bytes, start) = (self.bytes.lock().unwrap(), offset as usize);
        let end = start + data.len();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[start..end].copy_from_slice(data);
        self.written.lock().unwrap().push(ByteRange::at(offset, data.len() as u64));
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<ByteRange>> {
        let all = vec![ByteRange::new(0, self.bytes.lock().unwrap().len() as u64)];
        let data = self.data.as_ref().unwrap_or(&all);
        Ok(data.iter().find(|range| range.end > offset).map(|range| ByteRange::new(range.start.max(offset), range.end)))
    }

    fn punch(&self, range: ByteRange) -> io::Result<()> {
        self.bytes.lock().unwrap()[range.start as usize..range.end as usize].fill(0);
        self.punched.lock().unwrap().push(range);
        Ok(())
    }

    fn allocate(&self, _: u32, _: ByteRange) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn set_mtime(&self, _: Timestamp) -> io::Result<()> {
        Ok(())
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        let (size, time) = (self.bytes.lock().unwrap().len() as u64, Timestamp::default());
        let fingerprint = Fingerprint { size, mtime: time, ctime: time, attributes: 0 };
        Ok(StoreAttributes { fingerprint, atime: time, links: 1, mode: 0o600, uid: 0, gid: 0, append_only: false })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Files of a global store by the nodes that have them.
#[derive(Default)]
pub struct MemoryBelow(pub Mutex<HashMap<NodeNumber, MemoryFile>>);

impl FilesBelow for MemoryBelow {
    fn open(&self, node: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        match self.0.lock().unwrap().get(&node) {
            Some(file) => Ok(Box::new(file.clone())),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }
}

/// The directory of a bed.
pub struct Scratch {
    root: PathBuf,
    kept: Option<TempTree>,
}

impl Scratch {
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }
}

/// One opening of a tree with its files.
pub struct Bed {
    pub scratch: Arc<Scratch>,
    pub below: Arc<MemoryBelow>,
    pub tree: DelegatedTree,
    pub files: TreeFiles,
    pub report: FilesReport,
}

impl Bed {
    pub fn new() -> Bed {
        let kept = TempTree::new();
        Bed::on(Arc::new(Scratch { root: kept.root().to_owned(), kept: Some(kept) }), Arc::default())
    }

    fn on(scratch: Arc<Scratch>, below: Arc<MemoryBelow>) -> Bed {
        let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o755, 1000, 1000), Moment(0));
        let log = Box::new(MountedLogDirectory::new(scratch.path("log")).unwrap());
        let (tree, report) =
            DelegatedTree::open(log, Arc::clone(&below) as _, DelegationSettings::default(), root).unwrap();
        assert_eq!(report.damage, None);
        let (files, report) = TreeFiles::open(&scratch.path("data"), tree.share()).unwrap();
        Bed { scratch, below, tree, files, report }
    }

    /// Forgets everything as the death of the agent does, and opens the tree again. Handles were forgotten before.
    pub fn killed(self) -> Bed {
        let (scratch, below) = (Arc::clone(&self.scratch), Arc::clone(&self.below));
        // The system would take the lock of the pack from a process that died.
        self.files.close();
        std::mem::forget(self);
        Bed::on(scratch, below)
    }

    /// Opens the tree in a directory that stays.
    pub fn at(directory: &Path) -> Bed {
        Bed::on(Arc::new(Scratch { root: directory.to_owned(), kept: None }), Arc::default())
    }

    /// Packs all that may be packed. Returns how many files were.
    pub fn pack(&self) -> usize {
        self.files.pack(256 << 10, usize::MAX >> 1).unwrap().packed
    }

    /// Path of a node's local file.
    pub fn local(&self, number: NodeNumber) -> PathBuf {
        match self.tree.content(number).unwrap().place {
            DataPlace::Replica(local) | DataPlace::Packed(local) => {
                self.scratch.path("data").join(format!("{local:016x}"))
            }
            place => panic!("{place:?}"),
        }
    }

    /// Makes a file, and opens it as the program that made it.
    pub fn create(&self, name: &str) -> (Inode, NodeNumber, Box<dyn OpenData>) {
        let root = self.tree.root().unwrap();
        let mode = NewMode { mode: 0o644, umask: 0 };
        let new = NewFile { name: Some(OsStr::new(name)), mode, exclusive: true };
        let (found, _) = self.tree.create(&ALICE, &root, new).unwrap();
        let number = self.tree.number_of(&found.inode).unwrap();
        let how = OpenHow { created: true, ..writing() };
        let data = self.files.open_data(number, &how, &|| false).unwrap();
        (found.inode, number, data)
    }

    /// Makes a file with a content.
    pub fn make(&self, name: &str, bytes: &[u8]) -> (Inode, NodeNumber) {
        let (inode, number, data) = self.create(name);
        data.write_at(bytes, WriteWhere::At(0)).unwrap();
        (inode, number)
    }

    pub fn open(&self, number: NodeNumber, how: &OpenHow) -> Box<dyn OpenData> {
        self.files.open_data(number, how, &|| false).unwrap()
    }

    pub fn read(&self, number: NodeNumber) -> Vec<u8> {
        content_of(&*self.open(number, &reading()))
    }

    pub fn find(&self, name: &str) -> (Inode, NodeNumber) {
        let inode = self.tree.lookup(&self.tree.root().unwrap(), OsStr::new(name)).unwrap().inode;
        let number = self.tree.number_of(&inode).unwrap();
        (inode, number)
    }

    pub fn remove(&self, name: &str, number: NodeNumber) {
        self.tree.remove(&ALICE, &self.tree.root().unwrap(), OsStr::new(name), NameKind::File).unwrap();
        self.files.unlinked(number);
    }

    /// Returns what `stat` shows.
    pub fn stat(&self, inode: &Inode) -> FileAttributes {
        let mut shown = self.tree.attributes(inode).unwrap();
        if let Some(overlay) = self.files.overlay(self.tree.number_of(inode).unwrap()).unwrap() {
            (shown.size, shown.blocks, shown.mtime, shown.ctime) =
                (overlay.size, overlay.blocks, overlay.mtime, overlay.ctime);
        }
        assert!(shown.mtime.seconds > 1 && shown.ctime.seconds > 1, "{shown:?}");
        shown
    }

    /// Makes the log durable, and drops what has waited for that.
    pub fn sync_names(&self) {
        let end = self.tree.log().end();
        self.tree.log().sync(end).unwrap();
        self.files.names_synced(end);
    }

    /// Returns the paths of all local files.
    pub fn local_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.scratch.path("data")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

pub fn reading() -> OpenHow {
    OpenHow { read: true, ..OpenHow::default() }
}

pub fn writing() -> OpenHow {
    OpenHow { read: true, write: true, may_map: true, ..OpenHow::default() }
}

pub fn content_of(data: &dyn OpenData) -> Vec<u8> {
    let mut bytes = vec![0; data.seek(0, data_store::SeekFor::End).unwrap() as usize];
    assert_eq!(data.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}
