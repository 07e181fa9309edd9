//! Tests that need a real file system.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use global_store::posix::{PosixStore, StoreOptions, reopen_as_path};
use global_store::{Access, Anchor, GlobalStore};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use types::{ByteRange, Timestamp};

fn store(directory: &Path, options: StoreOptions) -> PosixStore {
    let root = rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    PosixStore::new(root, options).unwrap()
}

fn open_path(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn create(store: &PosixStore, path: &Path) -> Arc<dyn Anchor> {
    fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
    store.anchor(open_path(path), None).unwrap()
}

fn content(anchor: &dyn Anchor) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = anchor.open(Access::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

/// Options for identities without handles: inode numbers and birth times.
const NO_HANDLES: StoreOptions = StoreOptions { shared: None, durable_handles: Some(false) };

#[test]
fn identity_holds_no_device_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let anchor = create(&store(directory.path(), NO_HANDLES), &path);
    let metadata = fs::metadata(&path).unwrap();
    let identity = anchor.identity().as_bytes();
    assert_eq!(identity[1..9], metadata.ino().to_le_bytes());
    if metadata.created().is_ok() {
        assert_eq!(identity.len(), 21);
    }
}

#[test]
fn both_ways_to_ask_for_an_identity_agree() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), StoreOptions::default());
    let anchor = create(&store, &directory.path().join("a"));
    let again = File::open(directory.path().join("a")).unwrap();
    assert_eq!(&store.identify(again.as_fd()).unwrap(), anchor.identity());
    assert_eq!(&PosixStore::identity_of(again.as_fd()).unwrap(), anchor.identity());
}

#[test]
fn only_regular_files_are_anchored_and_only_directories_are_roots() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), StoreOptions::default());
    symlink("a", directory.path().join("link")).unwrap();
    let error = |path: &Path| store.anchor(open_path(path), None).err().unwrap().raw_os_error();
    assert_eq!(error(directory.path()), Some(libc::EISDIR));
    assert_eq!(error(&directory.path().join("link")), Some(libc::EINVAL));
    let file = tempfile::tempfile().unwrap();
    assert_eq!(
        PosixStore::new(file.into(), StoreOptions::default()).err().unwrap().raw_os_error(),
        Some(libc::ENOTDIR)
    );
}

#[test] // S2
fn a_file_that_moved_is_found_by_handle_or_by_walk() {
    for options in [StoreOptions::default(), NO_HANDLES] {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path(), options);
        let anchor = create(&store, &directory.path().join("a"));
        fs::create_dir_all(directory.path().join("x/y/z")).unwrap();
        fs::rename(directory.path().join("a"), directory.path().join("x/y/z/b")).unwrap();
        let found = store.locate(anchor.identity(), Path::new("a"), true).unwrap().unwrap();
        assert_eq!(content(&*found), content(&*anchor));
        let found = store.locate(anchor.identity(), Path::new("x/y/z/b"), false).unwrap().unwrap();
        assert_eq!(found.path_hint(), Path::new("x/y/z/b"));
        if options.durable_handles == Some(false) {
            assert!(store.locate(anchor.identity(), Path::new("a"), false).unwrap().is_none());
        }
    }
}

/// While an inode number is being given to a new file, the kernel returns ENOMEM for it (`iget_locked`).
#[test]
fn a_file_that_is_gone_is_gone_also_while_another_gets_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), StoreOptions::default());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for maker in 0..2 {
            let (ended, name) = (&ended, directory.path().join(format!("other-{maker}")));
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    File::create(&name).unwrap();
                    fs::remove_file(&name).unwrap();
                }
            });
        }
        let look = || -> io::Result<()> {
            let name = directory.path().join("file");
            let identity = create(&store, &name).identity().clone();
            fs::remove_file(&name)?;
            for _ in 0..20 {
                assert!(store.locate(&identity, Path::new(""), false)?.is_none());
            }
            Ok(())
        };
        let start = Instant::now();
        let mut looked = Ok(());
        while looked.is_ok() && start.elapsed() < Duration::from_secs(1) {
            looked = look();
        }
        ended.store(true, Ordering::Relaxed);
        looked.unwrap();
    });
}

#[test]
fn a_hint_never_leads_through_links_or_out_of_the_root() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let store = store(&root, NO_HANDLES);
    let anchor = create(&store, &directory.path().join("outside"));
    symlink("..", root.join("up")).unwrap();
    symlink("../outside", root.join("link")).unwrap();
    for hint in ["../outside", "up/outside", "link", "/etc/passwd", "."] {
        assert!(store.locate(anchor.identity(), Path::new(hint), true).unwrap().is_none(), "{hint}");
    }
}

#[test]
fn hints_are_relative_and_empty_for_names_that_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), StoreOptions::default());
    fs::create_dir(directory.path().join("d")).unwrap();
    let path = directory.path().join("d/a");
    let anchor = create(&store, &path);
    assert_eq!(anchor.path_hint(), Path::new("d/a"));
    fs::hard_link(&path, directory.path().join("second")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(anchor.path_hint(), Path::new(""));
    fs::remove_file(directory.path().join("second")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new(""));
    let odd = create(&store, &directory.path().join("d/really (deleted)"));
    assert_eq!(odd.path_hint(), Path::new("d/really (deleted)"));
}

#[test]
fn a_created_file_is_hinted_at_where_it_was_created_and_then_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    let (store, sub) = (store(directory.path(), StoreOptions::default()), directory.path().join("sub"));
    let created = OwnedFd::from(File::create_new(sub.join("new")).unwrap());
    let fd = Arc::new(reopen_as_path(created.as_fd()).unwrap());
    let identity = PosixStore::identity_of(fd.as_fd()).unwrap();
    let place = open_path(&sub);
    let anchor = store.anchor_created(fd, identity, created, Some((place.as_fd(), "new".as_ref())));
    assert_eq!(anchor.path_hint(), Path::new("sub/new"));
    fs::rename(sub.join("new"), directory.path().join("moved")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new("moved"));
}

#[test]
fn a_descriptor_becomes_one_that_is_only_a_path_also_of_a_file_without_a_name() {
    let file = tempfile::tempfile().unwrap();
    let path = reopen_as_path(file.as_fd()).unwrap();
    let (one, other) = (rustix::fs::fstat(&file).unwrap(), rustix::fs::fstat(&path).unwrap());
    assert_eq!((one.st_dev, one.st_ino), (other.st_dev, other.st_ino));
    assert!(rustix::fs::fcntl_getfl(&path).unwrap().contains(OFlags::PATH));
}

#[test]
fn the_name_of_a_file_whose_path_nobody_can_tell_is_durable_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), StoreOptions::default());
    let mut place = open_path(directory.path());
    let name = "d".repeat(200);
    for _ in 0..=libc::PATH_MAX as usize / name.len() {
        rustix::fs::mkdirat(&place, &name, Mode::RWXU).unwrap();
        place = rustix::fs::openat(&place, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(&place, "f", flags, Mode::RUSR | Mode::WUSR).unwrap();
    let file = rustix::fs::openat(&place, "f", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let anchor = store.anchor(file, None).unwrap();
    assert_eq!(anchor.path_hint(), Path::new(""));
    anchor.sync_name().unwrap();
}

#[test]
fn a_file_that_left_the_root_has_no_hint_but_stays_itself() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("root")).unwrap();
    let store = store(&directory.path().join("root"), StoreOptions::default());
    let anchor = create(&store, &directory.path().join("root/a"));
    fs::rename(directory.path().join("root/a"), directory.path().join("away")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new(""));
    assert!(content(&*anchor).ends_with(b"root/a"));
    anchor.sync_name().unwrap();
}

#[test]
fn hints_stay_relative_to_a_root_that_moves() {
    for options in [StoreOptions::default(), NO_HANDLES] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("above/root/d")).unwrap();
        let store = store(&path("above/root"), options);
        let anchor = create(&store, &path("above/root/d/a"));
        assert_eq!(anchor.path_hint(), Path::new("d/a"));
        fs::rename(path("above"), path("moved")).unwrap();
        assert_eq!(anchor.path_hint(), Path::new("d/a"));
        fs::create_dir_all(path("above/root/d")).unwrap();
        fs::rename(path("moved/root/d/a"), path("above/root/d/a")).unwrap();
        assert_eq!(anchor.path_hint(), Path::new(""), "where the root was");
    }
}

#[test]
fn a_detached_clone_gives_relative_hints_handles_and_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let Ok(root) = rustix::mount::open_tree(CWD, directory.path(), flags) else {
        eprintln!("skipped: cloning a mount needs CAP_SYS_ADMIN");
        return;
    };
    fs::create_dir(directory.path().join("d")).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("d/a"), b"1").unwrap();
    let fd = rustix::fs::openat(&root, "d/a", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let anchor = store.anchor(fd, None).unwrap();
    assert_eq!(anchor.path_hint(), Path::new("d/a"));
    anchor.sync_name().unwrap();
    store.sync().unwrap();
    assert_eq!(&PosixStore::identity_of(open_path(&path("d/a")).as_fd()).unwrap(), anchor.identity());
    fs::rename(path("d/a"), path("b")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new("b"));
    let found = store.locate(anchor.identity(), Path::new("d/a"), false).unwrap().unwrap();
    assert_eq!(content(&*found), b"1");
    fs::rename(path("b"), path("d/c (deleted)")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new("d/c (deleted)"));
    fs::remove_file(path("d/c (deleted)")).unwrap();
    assert_eq!(anchor.path_hint(), Path::new(""));
    assert!(store.locate(anchor.identity(), Path::new("d/a"), true).unwrap().is_none());
}

#[test] // S36
fn reading_and_setting_mtime_leave_atime_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let anchor = create(&store(directory.path(), StoreOptions::default()), &path);
    // Older than mtime, so that even `relatime` would update it.
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    File::open(&path).unwrap().set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    content(&*anchor);
    anchor.open(Access::Write).unwrap().read_at(&mut [0], 0).unwrap();
    anchor.open(Access::Write).unwrap().set_mtime(Timestamp { seconds: 5, nanos: 6 }).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.atime(), metadata.mtime(), metadata.mtime_nsec()), (1000, 5, 6));
    anchor.set_atime(Timestamp { seconds: 7, nanos: 8 }).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.atime(), metadata.atime_nsec(), metadata.mtime(), metadata.mtime_nsec()), (7, 8, 5, 6));
    assert_eq!(anchor.attributes().unwrap().atime, Timestamp { seconds: 7, nanos: 8 });
}

#[test]
fn the_owner_decides_whether_a_store_is_shared() {
    let directory = tempfile::tempdir().unwrap();
    let shared = |shared| store(directory.path(), StoreOptions { shared, ..StoreOptions::default() }).is_shared();
    assert!(!shared(None) && !shared(Some(false)) && shared(Some(true)));
}

/// Runs on a thread of user 65534 without capabilities. If this user is not root, runs on a thread of this user.
fn without_privilege(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            const NOBODY: libc::c_long = 65534;
            // SAFETY: the bare system calls change the credentials of this thread alone, which ends here.
            unsafe {
                libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY);
                libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY);
            }
            run();
        });
        thread.join().unwrap();
    });
}

#[test]
fn the_descriptor_of_creation_serves_when_opening_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("a");
    without_privilege(|| {
        let store = store(directory.path(), StoreOptions::default());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
        let created = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        let anchor = store.anchor(open_path(&path), Some(created)).unwrap();
        let file = anchor.open(Access::Write).unwrap();
        file.write_at(b"12345", 0).unwrap();
        file.write_at(b"x", 1).unwrap();
        assert_eq!(content(&*anchor), b"1x345");
        anchor.set_mark(Some(b"mine")).unwrap();
        assert_eq!(anchor.mark().unwrap().unwrap(), b"mine");
        anchor.set_mark(None).unwrap();
        anchor.sync_name().unwrap();
        // Handles cannot be opened without privilege, or not for files like this; the hint and the walk work.
        assert!(store.locate(anchor.identity(), Path::new("a"), false).unwrap().is_some());
        let found = store.locate(anchor.identity(), Path::new("gone"), true).unwrap().unwrap();
        // After a restart there is no such descriptor, and acknowledged data must still be staged out.
        found.open(Access::Write).unwrap().write_at(b"5", 0).unwrap();
        assert_eq!(found.attributes().unwrap().mode & 0o7777, 0);
        assert!(found.open(Access::Read).is_err());
        assert_eq!(content(&*anchor), b"5x345");
    });
}

#[test]
fn a_directory_that_cannot_be_read_makes_not_found_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let anchor = create(&store(directory.path(), NO_HANDLES), &closed.join("a"));
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this test needs root");
        return;
    }
    without_privilege(|| {
        let error = store(directory.path(), NO_HANDLES).locate(anchor.identity(), Path::new("x"), true).err();
        assert_eq!(error.unwrap().raw_os_error(), Some(libc::EACCES));
    });
}

#[test]
fn what_is_left_behind_is_in_the_file_and_not_in_memory() {
    // A tmpfs, and perhaps the layer below an overlay, has only memory.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const OVERLAY_MAGIC: i64 = 0x794c_7630;
    let is_on_disk = |directory: &tempfile::TempDir| {
        let kind = rustix::fs::statfs(directory.path()).unwrap().f_type as i64;
        ![TMPFS_MAGIC, OVERLAY_MAGIC].contains(&kind)
    };
    let places = [PathBuf::from(env!("CARGO_TARGET_TMPDIR")), std::env::temp_dir()];
    let Some(directory) = places.iter().map(|place| tempfile::tempdir_in(place).unwrap()).find(is_on_disk) else {
        eprintln!("skipped: no directory on a disk file system");
        return;
    };
    let path = directory.path().join("a");
    let file = create(&store(directory.path(), StoreOptions::default()), &path).open(Access::Write).unwrap();
    let data = vec![7; 1 << 20];
    let all = ByteRange::at(0, 1 << 20);
    file.write_at(&data, 0).unwrap();
    file.begin_sync(all);
    file.leave_behind(all).unwrap();
    let reader = File::open(&path).unwrap();
    let at_once = || {
        let mut bytes = [0; 4096];
        let mut buffers = [std::io::IoSliceMut::new(&mut bytes)];
        rustix::io::preadv2(&reader, &mut buffers, 1 << 19, rustix::io::ReadWriteFlags::NOWAIT)
    };
    // A hint: pages that the kernel is using at the moment stay, on a busy machine for many tries.
    let end = Instant::now() + Duration::from_secs(10);
    while at_once() != Err(rustix::io::Errno::AGAIN) {
        assert!(Instant::now() < end, "the pages are still in memory");
        std::thread::sleep(Duration::from_millis(1));
        file.leave_behind(all).unwrap();
    }
    assert!(fs::read(&path).unwrap() == data);
}

#[test]
fn only_an_inode_number_alone_may_be_another_files_later() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "").unwrap();
    let file = open_path(&directory.path().join("a"));
    for options in [StoreOptions::default(), NO_HANDLES] {
        assert!(PosixStore::is_lasting(&store(directory.path(), options).identify(file.as_fd()).unwrap()));
    }
    let number_alone = [&[3][..], &fs::metadata(directory.path()).unwrap().ino().to_le_bytes()].concat();
    assert!(!PosixStore::is_lasting(&types::Identity::new(number_alone).unwrap()));
}
