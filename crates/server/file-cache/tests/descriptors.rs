//! A process with few descriptors and thousands of dirty files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use config::{Policy, StageOut};
use file_cache::{FileCache, OpenHow, Settings};
use global_store::GlobalStore;
use global_store::posix::{Options, PosixStore};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};

const FILES: usize = 3000;
const DESCRIPTORS: u64 = 512;

/// `handles`: the store finds files by them.
fn work(dir: &Path, handles: bool) {
    let root = dir.join("global");
    std::fs::create_dir_all(root.join("dir")).unwrap();
    let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let store = PosixStore::new(fd, Options { shared: Some(false), durable_handles: Some(handles) }).unwrap();
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
        let how =
            OpenHow { read: true, write: true, appends: false, truncate: false, created: true, sync: false, policy };
        let handle = cache.open_file(anchor, how).unwrap();
        handle.write_at(number.to_string().as_bytes(), 0, false).unwrap();
    }
    // One was moved by somebody else meanwhile.
    std::fs::rename(root.join("dir/5"), root.join("moved")).unwrap();
    let stuck = cache.drain_all(&mut |_| {}, &|| false);
    assert!(stuck.is_empty(), "{} are stuck, the first: {:?}", stuck.len(), stuck.first());
    assert_eq!(cache.status().errors, 0);
    cache.shutdown();
    for number in 0..FILES {
        let path = if number == 5 { root.join("moved") } else { root.join("dir").join(number.to_string()) };
        assert_eq!(std::fs::read_to_string(path).unwrap(), number.to_string());
    }
}

/// The child, when it is one.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_FEW_DIR") else { return };
    let most = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    work(&PathBuf::from(dir), std::env::var_os("FOREBAY_FEW_HANDLES").is_some());
}

fn in_a_child(handles: bool) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env("FOREBAY_FEW_DIR", dir.path());
    if handles {
        command.env("FOREBAY_FEW_HANDLES", "1");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn thousands_of_dirty_files_need_few_descriptors() {
    in_a_child(true);
}

#[test]
fn thousands_of_dirty_files_need_few_descriptors_where_a_store_has_no_handles() {
    in_a_child(false);
}
