//! A file cache over a directory, and observations for its tests.
#![allow(dead_code)] // Each test binary uses its part.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalogue::Catalogue;
use config::Policy;
use data_store::{OpenHow, Residency};
use file_cache::{FileCache, Settings};
use global_store::posix::{PosixStore, StoreOptions};
use global_store::{Anchor, GlobalStore, hidden};
use models::{DataStoreExt, Handle, OpenDataExt};
use rustix::fs::{Mode, OFlags};

use crate::hooked::Hooked;

pub const MIB: usize = 1 << 20;

pub struct World {
    pub root: PathBuf,
    pub buffer: PathBuf,
    pub store: Hooked,
    pub cache: FileCache,
}

/// How a world is opened.
#[derive(Clone, Copy, Default)]
pub struct How {
    pub background: bool,
    /// Whether other machines see the store.
    pub shared: bool,
    /// Whether files are found by path alone.
    pub no_handles: bool,
    /// Whether this is another agent on another machine.
    pub other: bool,
    /// Whether the store does not say at first if there are hidden files.
    pub silent: bool,
    /// Whether publications wait for a signal.
    pub held: bool,
}

impl World {
    pub fn open(dir: &Path, how: How) -> World {
        World::open_with(dir, how, None)
    }

    pub fn open_with(dir: &Path, how: How, catalogue: Option<Arc<dyn Catalogue>>) -> World {
        let root = dir.join("global");
        std::fs::create_dir_all(root.join("d")).unwrap();
        let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let options = StoreOptions { shared: Some(how.shared), durable_handles: how.no_handles.then_some(false) };
        let store = Hooked::new(PosixStore::new(fd, options).unwrap(), how.silent);
        let below: Arc<dyn GlobalStore> = Arc::new(store.clone());
        let buffer = dir.join("bb");
        let mut settings = Settings::new(&buffer, below, "publish");
        settings.background = how.background;
        settings.streams = 2;
        settings.ballast_bytes = 0;
        settings.catalogue = catalogue;
        if how.other {
            settings.agent_id = "another".into();
        }
        let cache = FileCache::open(settings).unwrap();
        if !how.held {
            cache.begin_publishing();
        }
        World { root, buffer, store, cache }
    }

    /// Makes a world with the file `f`: old content in the global store and new content in the burst buffer.
    pub fn changing(dir: &Path, how: How, new: &[u8]) -> World {
        let world = World::open(dir, how);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", new);
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn anchor(&self, name: &str) -> Arc<dyn Anchor> {
        let fd = rustix::fs::open(self.path(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        self.store.wrap(self.store.store.anchor(fd, None).unwrap())
    }

    pub fn open_file(&self, name: &str, write: bool, truncate: bool) -> Handle {
        self.cache.open_file(self.anchor(name), how(write, truncate)).unwrap()
    }

    pub fn rewrite(&self, name: &str, data: &[u8]) {
        self.open_file(name, true, true).write(data, 0).unwrap();
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let handle = self.open_file(name, false, false);
        let mut buffer = vec![0; 8 * MIB];
        let read = handle.read_at(&mut buffer, 0).unwrap();
        buffer.truncate(read);
        buffer
    }

    pub fn drain(&self) {
        let stuck = self.cache.drain_all();
        assert!(stuck.is_empty(), "{stuck:?}");
    }

    pub fn state(&self, name: &str) -> Residency {
        self.cache.residency(self.anchor(name).identity())
    }

    pub fn inode(&self, name: &str) -> u64 {
        std::fs::metadata(self.path(name)).unwrap().ino()
    }

    pub fn below(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Returns the hidden files anywhere in the global store.
    pub fn hidden(&self) -> usize {
        let mut directories = vec![self.root.clone()];
        let mut found = 0;
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                found += usize::from(hidden::is_hidden(&entry.file_name()));
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        found
    }

    pub fn replicas(&self) -> usize {
        let parts = std::fs::read_dir(self.buffer.join("replicas")).unwrap();
        parts.map(|part| std::fs::read_dir(part.unwrap().path()).unwrap().count()).sum()
    }
}

pub fn how(write: bool, truncate: bool) -> OpenHow {
    let policy = Arc::new(Policy { revalidate: Duration::ZERO, publish_atomic: true, ..Policy::default() });
    OpenHow { read: true, write, truncate, policy, ..OpenHow::default() }
}

pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at / 5) as u8)).collect()
}
