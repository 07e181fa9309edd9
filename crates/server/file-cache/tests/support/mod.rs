//! A cache over a memory store and a temporary burst buffer, without background threads unless asked for.
#![allow(dead_code)] // Each test binary uses its part.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use config::Policy;
use data_store::{OpenHow, Residency};
use file_cache::{FileCache, Settings, Space};
use global_store::{Anchor, GlobalStore};
use models::global::{MemoryStore, StoreOperation};
use models::{DataStoreExt, Handle, MemoryCatalogue, OpenDataExt};
use types::Identity;

pub const MIB: usize = 1 << 20;

pub struct World {
    pub dir: tempfile::TempDir,
    pub store: MemoryStore,
    pub catalogue: MemoryCatalogue,
    pub settings: Settings,
    pub cache: FileCache,
    pub clock: Arc<AtomicU64>,
    /// Free bytes of the burst buffer, of 1 TiB.
    pub free: Arc<AtomicU64>,
    pub policy: Arc<Policy>,
}

impl World {
    pub fn new() -> World {
        World::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let catalogue = MemoryCatalogue::new();
        let clock = Arc::new(AtomicU64::new(1));
        let free = Arc::new(AtomicU64::new(1 << 40));
        let shared: Arc<dyn GlobalStore> = Arc::new(store.clone());
        let mut settings = Settings::new(dir.path(), shared, "facts");
        settings.catalogue = Some(Arc::new(catalogue.clone()));
        settings.background = false;
        settings.streams = 1;
        settings.ballast_bytes = 0;
        let time = Arc::clone(&clock);
        settings.clock = Some(Arc::new(move || Duration::from_secs(time.load(Ordering::Relaxed))));
        let left = Arc::clone(&free);
        settings.space = Some(Arc::new(move || Ok(Space { total: 1 << 40, free: left.load(Ordering::Relaxed) })));
        change(&mut settings);
        let cache = FileCache::open(settings.clone()).unwrap();
        let policy = Arc::new(Policy { revalidate: Duration::ZERO, ..Policy::default() });
        World { dir, store, catalogue, settings, cache, clock, free, policy }
    }

    pub fn anchor(&self, path: &str) -> Arc<dyn Anchor> {
        self.store.anchor(path).unwrap()
    }

    pub fn identity(&self, path: &str) -> Identity {
        self.store.identity(path).unwrap()
    }

    pub fn how(&self, write: bool) -> OpenHow {
        OpenHow { read: true, write, policy: Arc::clone(&self.policy), ..OpenHow::default() }
    }

    pub fn open(&self, path: &str, write: bool) -> Handle {
        self.cache.open_file(self.anchor(path), self.how(write)).unwrap()
    }

    pub fn create(&self, path: &str) -> Handle {
        self.store.create(path);
        let how = OpenHow { created: true, ..self.how(true) };
        self.cache.open_file(self.anchor(path), how).unwrap()
    }

    /// Makes a new file and closes it, without staging it out.
    pub fn write_new(&self, path: &str, data: &[u8]) {
        self.create(path).write(data, 0).unwrap();
    }

    pub fn drain(&self) {
        let stuck = self.cache.drain_all();
        assert!(stuck.is_empty(), "{stuck:?}");
    }

    /// Stages everything out. Returns whether that was possible.
    pub fn drain_quietly(&self) -> bool {
        self.cache.drain_all().is_empty()
    }

    pub fn state(&self, path: &str) -> Residency {
        self.cache.residency(&self.identity(path))
    }

    /// Kills the process and starts it again.
    pub fn crash(&mut self) {
        self.cache.abandon();
        self.cache = FileCache::open(self.settings.clone()).unwrap();
    }

    /// Crashes the machine and starts again, where the replicas reached the medium before: the catalogue goes back to
    /// its last durable commit.
    pub fn machine_crash(&mut self) {
        self.cache.abandon();
        self.catalogue.crash();
        let page = self.dir.path().join("superblock");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains(boot.trim()), "the superblock names no boot");
        std::fs::write(&page, text.replace(boot.trim(), "another boot")).unwrap();
        self.cache = FileCache::open(self.settings.clone()).unwrap();
    }

    /// Returns the path of the only replica.
    pub fn replica(&self) -> std::path::PathBuf {
        let parts = std::fs::read_dir(self.dir.path().join("replicas")).unwrap();
        let files = parts.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
        let found: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(found.len(), 1);
        found[0].clone()
    }

    pub fn advance(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    pub fn writes(&self) -> Vec<StoreOperation> {
        self.store
            .journal()
            .into_iter()
            .map(|event| event.operation)
            .filter(|o| matches!(o, StoreOperation::Write(_)))
            .collect()
    }

    /// Returns the replica files in the burst buffer.
    pub fn replicas(&self) -> usize {
        let parts = std::fs::read_dir(self.dir.path().join("replicas")).unwrap();
        parts.map(|part| std::fs::read_dir(part.unwrap().path()).unwrap().count()).sum()
    }
}

pub fn read(handle: &Handle, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let read = handle.read_at(&mut buffer, 0).unwrap();
    buffer.truncate(read);
    buffer
}

/// Opens a replica as the kernel does for passthrough.
pub fn kernel_file(handle: &Handle) -> std::fs::File {
    kernel_open(handle, true)
}

fn kernel_open(handle: &Handle, write: bool) -> std::fs::File {
    assert!(handle.begin_passthrough());
    let link = format!("/proc/self/fd/{}", handle.backing().unwrap().as_raw_fd());
    std::fs::OpenOptions::new().read(true).write(write).open(link).unwrap()
}

pub fn kernel_write(handle: &Handle, data: &[u8], at: u64) {
    kernel_file(handle).write_all_at(data, at).unwrap();
}

/// Writes a page of `byte` past the page cache, if the file system can do that.
pub fn direct_write(handle: &Handle, byte: u8, at: u64) {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let file = kernel_file(handle);
    let _ = rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::DIRECT);
    file.write_all_at(&Page([byte; 4096]).0, at).unwrap();
}

/// A shared mapping of the replica's first page that outlives every descriptor.
pub struct Mapping(*mut u8);

// SAFETY: a page of shared memory, read and written as whole bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn of(handle: &Handle) -> Mapping {
        Mapping::with(&kernel_file(handle), libc::PROT_READ | libc::PROT_WRITE)
    }

    pub fn for_reading(handle: &Handle) -> Mapping {
        Mapping::with(&kernel_open(handle, false), libc::PROT_READ)
    }

    fn with(file: &std::fs::File, prot: i32) -> Mapping {
        let flags = libc::MAP_SHARED;
        // SAFETY: a new mapping of one page of an open file; checked below, unmapped in drop.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping(at.cast())
    }

    pub fn first(&self) -> u8 {
        // SAFETY: the first byte of a mapped page; the tests map files of at least one byte and never cut them.
        unsafe { self.0.read_volatile() }
    }

    /// Syncs the mapping (`msync`).
    pub fn sync(&self) {
        // SAFETY: the mapping made in `with`.
        assert_eq!(unsafe { libc::msync(self.0.cast(), 4096, libc::MS_SYNC) }, 0);
    }

    pub fn store(&self, byte: u8) {
        // SAFETY: the first byte of a mapped page; the tests map files of at least one byte and never cut them.
        unsafe { self.0.write_volatile(byte) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `with`.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes an ext4 of 64 MiB whose device has no room behind it for data: 24 MiB in the directory `small`.
pub fn without_room(tree: &testkit::TempTree) -> Option<testkit::Disk> {
    let image = tree.mount_tmpfs("small", 24 << 20).join("image");
    testkit::Disk::without_room(image, tree.dir("disk"), 64 << 20)
}
