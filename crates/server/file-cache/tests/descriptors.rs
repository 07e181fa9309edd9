//! A process with few descriptors and thousands of dirty files.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use config::{Policy, StageOut};
use data_store::{DataStore, OpenHow, SyncScope};
use file_cache::{FileCache, Settings};
use global_store::GlobalStore;
use global_store::descriptors::{Charge, DescriptorOwner};
use global_store::posix::{PosixStore, StoreOptions};
use models::{DataStoreExt, OpenDataExt};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};

const FILES: usize = 3000;
const DESCRIPTORS: u64 = 512;

/// Makes the world. `handles`: the store finds files by handles.
fn work(dir: &Path, handles: bool) {
    let root = dir.join("global");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let store = PosixStore::new(fd, StoreOptions { shared: Some(false), durable_handles: Some(handles) }).unwrap();
    let below: Arc<dyn GlobalStore> = Arc::new(store.clone());
    assert_eq!(
        below.finds_by_identity(),
        handles,
        "the test wants a file system with handles, and the right to use them"
    );
    let cache = FileCache::open(Settings::new(dir.join("bb"), below, "few")).unwrap();
    let policy = Arc::new(Policy { stage_out: StageOut::Exit, ..Policy::default() });
    for number in 0..FILES {
        let path = root.join("dir").join(number.to_string());
        let created = std::fs::File::create_new(&path).unwrap();
        let fd = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let anchor = store.anchor(fd, Some(created.into())).unwrap();
        let policy = Arc::clone(&policy);
        let how = OpenHow { read: true, write: true, created: true, policy, ..OpenHow::default() };
        let handle = cache.open_file(anchor, how).unwrap();
        handle.write(number.to_string().as_bytes(), 0).unwrap();
    }
    // One file was moved by somebody else meanwhile.
    std::fs::rename(root.join("dir/5"), root.join("moved")).unwrap();
    let stuck = cache.drain_all();
    assert!(stuck.is_empty(), "{} are stuck, the first: {:?}", stuck.len(), stuck.first());
    assert_eq!(cache.counters().errors, 0);
    cache.shutdown();
    for number in 0..FILES {
        let path = if number == 5 { root.join("moved") } else { root.join("dir").join(number.to_string()) };
        assert_eq!(std::fs::read_to_string(path).unwrap(), number.to_string());
    }
}

/// Number of files that only this test opens, all at once.
const OPEN: usize = 340;

/// Opens many files at once. Each of them is written, read, cut, synced and dated, and some are removed.
fn work_open(dir: &Path) {
    let root = dir.join("global");
    std::fs::create_dir_all(&root).unwrap();
    let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let store = PosixStore::new(fd, StoreOptions { shared: Some(false), durable_handles: None }).unwrap();
    let cache = FileCache::open(Settings::new(dir.join("bb"), Arc::new(store.clone()), "few")).unwrap();
    let policy = Arc::new(Policy { stage_out: StageOut::Exit, ..Policy::default() });
    let open = |number: usize| {
        let path = root.join(number.to_string());
        let created: OwnedFd =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap().into();
        let fd = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let identity = store.identify(fd.as_fd()).unwrap();
        let anchor = store.anchor_created(Arc::new(fd), identity, created, None);
        let policy = Arc::clone(&policy);
        let how = OpenHow { read: true, write: true, created: true, policy, ..OpenHow::default() };
        let handle = cache.open_file(Arc::clone(&anchor), how).unwrap();
        assert!(handle.backing().is_some() && handle.begin_passthrough());
        handle.write(number.to_string().as_bytes(), 0).unwrap();
        (anchor, handle, Charge::take(DescriptorOwner::User(0)).unwrap())
    };
    let all: Vec<_> = (0..OPEN).map(open).collect();
    for (number, (anchor, handle, _)) in all.iter().enumerate() {
        let (text, mut bytes) = (number.to_string(), [0; 8]);
        handle.set_len(text.len() as u64 + 1).unwrap();
        if number % 3 == 0 {
            std::fs::remove_file(root.join(&text)).unwrap();
            cache.unlinked(anchor.identity());
        }
        handle.set_len(text.len() as u64).unwrap();
        assert_eq!(handle.read_at(&mut bytes, 0).unwrap(), text.len());
        assert_eq!(&bytes[..text.len()], text.as_bytes());
        handle.sync(if number % 2 == 0 { SyncScope::Data } else { SyncScope::All }).unwrap();
        assert_eq!(handle.size().unwrap(), text.len() as u64);
    }
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(used < OPEN + 40, "{used} descriptors for {OPEN} open files");
    drop(all);
    // Another thread holds all remaining descriptors, and closes them while the drain reports progress.
    let mut others: Vec<std::fs::File> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let stuck = cache.drain(None, &mut |_| others.truncate(others.len().saturating_sub(4)), &|| false);
    assert!(stuck.is_empty(), "{} are stuck, the first: {:?}", stuck.len(), stuck.first());
    assert_eq!(cache.counters().errors, 0);
    cache.shutdown();
    drop(others);
    for number in (0..OPEN).filter(|number| number % 3 != 0) {
        assert_eq!(std::fs::read_to_string(root.join(number.to_string())).unwrap(), number.to_string());
    }
}

/// Runs the child's work, if this process is one.
#[test]
fn child() {
    let (Some(dir), Some(what)) = (std::env::var_os("FOREBAY_FEW_DIR"), std::env::var_os("FOREBAY_FEW")) else {
        return;
    };
    let most = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    match what.to_str() {
        Some("open") => work_open(&PathBuf::from(dir)),
        what => work(&PathBuf::from(dir), what == Some("handles")),
    }
}

fn in_a_child(what: &str) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env("FOREBAY_FEW_DIR", dir.path()).env("FOREBAY_FEW", what);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test] // S62
fn an_open_file_needs_one_descriptor_and_works_as_ever() {
    in_a_child("open");
}

#[test] // S19
fn thousands_of_dirty_files_need_few_descriptors() {
    in_a_child("handles");
}

#[test] // S19
fn thousands_of_dirty_files_need_few_descriptors_where_a_store_has_no_handles() {
    in_a_child("names");
}
