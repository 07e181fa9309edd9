//! Stage-outs that give a file another's place (`publish = atomic`), and what deaths in between leave.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use config::Policy;
use file_cache::{FileCache, FileHandle, OpenHow, Residency, Settings, fault};
use global_store::posix::{Options, PosixStore};
use global_store::{Anchor, GlobalStore, hidden};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags, getxattr, setxattr, utimensat,
};
use testkit::{PATIENCE, wait_until};

const MIB: usize = 1 << 20;

struct World {
    root: PathBuf,
    buffer: PathBuf,
    store: PosixStore,
    cache: FileCache,
}

impl World {
    fn open(dir: &Path, background: bool) -> World {
        let root = dir.join("global");
        std::fs::create_dir_all(root.join("d")).unwrap();
        let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let store = PosixStore::new(fd, Options { shared: Some(false), durable_handles: None }).unwrap();
        let below: Arc<dyn GlobalStore> = Arc::new(store.clone());
        let buffer = dir.join("bb");
        let mut settings = Settings::new(&buffer, below, "publish");
        settings.background = background;
        settings.streams = 2;
        settings.ballast_bytes = 0;
        World { root, buffer, store, cache: FileCache::open(settings).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn anchor(&self, name: &str) -> Arc<dyn Anchor> {
        let fd = rustix::fs::open(self.path(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        self.store.anchor(fd, None).unwrap()
    }

    fn open_file(&self, name: &str, write: bool, truncate: bool) -> FileHandle {
        let policy = Arc::new(Policy { revalidate: Duration::ZERO, publish_atomic: true, ..Policy::default() });
        let how = OpenHow { read: true, write, truncate, created: false, sync: false, policy };
        self.cache.open_file(self.anchor(name), how).unwrap()
    }

    fn rewrite(&self, name: &str, data: &[u8]) {
        self.open_file(name, true, true).write_at(data, 0, false).unwrap();
    }

    fn content(&self, name: &str) -> Vec<u8> {
        let handle = self.open_file(name, false, false);
        let mut buffer = vec![0; 8 * MIB];
        let read = handle.read_at(&mut buffer, 0).unwrap();
        buffer.truncate(read);
        buffer
    }

    fn drain(&self) {
        let stuck = self.cache.drain_all(&mut |_| {}, &|| false);
        assert!(stuck.is_empty(), "{stuck:?}");
    }

    fn state(&self, name: &str) -> Residency {
        self.cache.state(self.anchor(name).identity())
    }

    fn inode(&self, name: &str) -> u64 {
        std::fs::metadata(self.path(name)).unwrap().ino()
    }

    /// Hidden files anywhere below.
    fn hidden(&self) -> usize {
        let in_one = |dir: PathBuf| {
            let entries = std::fs::read_dir(dir).unwrap();
            entries.filter(|entry| hidden::is_hidden(&entry.as_ref().unwrap().file_name())).count()
        };
        in_one(self.root.clone()) + in_one(self.root.join("d"))
    }

    fn replicas(&self) -> usize {
        let parts = std::fs::read_dir(self.buffer.join("replicas")).unwrap();
        parts.map(|part| std::fs::read_dir(part.unwrap().path()).unwrap().count()).sum()
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at / 5) as u8)).collect()
}

#[test]
fn a_published_file_appears_at_once_with_all_that_the_former_one_had() {
    let dir = scratch();
    let world = World::open(dir.path(), false);
    let (path, old, new) = (world.path("d/f"), pattern(1, 2 * MIB), pattern(2, 3 * MIB + 17));
    std::fs::write(&path, &old).unwrap();
    chown(&path, Some(1234), Some(4321)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2640)).unwrap();
    setxattr(&path, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    let (before, former) = (world.inode("d/f"), world.anchor("d/f"));
    let mut reader = std::fs::File::open(&path).unwrap();

    world.rewrite("d/f", &new);
    let mtime = world.cache.attributes(former.identity()).unwrap().mtime;
    assert!(std::fs::read(&path).unwrap() == old, "nothing is below yet");
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time(77, 5), last_modification: time(0, UTIME_OMIT) };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    world.drain();

    let stat = std::fs::metadata(&path).unwrap();
    assert_ne!(stat.ino(), before, "another file");
    assert!(std::fs::read(&path).unwrap() == new);
    let mut through_old = Vec::new();
    reader.read_to_end(&mut through_old).unwrap();
    assert!(through_old == old, "who had it open reads what it was");
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1234, 4321, 0o2640));
    assert_eq!((stat.atime(), stat.atime_nsec()), (77, 5));
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (mtime.seconds, i64::from(mtime.nanos)));
    let mut value = [0; 8];
    assert_eq!(getxattr(&path, "user.colour", &mut value[..]), Ok(4));
    assert_eq!((world.state("d/f"), world.hidden(), world.replicas()), (Residency::Clean, 0, 1));

    // It is read from the replica, and who asks by the former identity looks again.
    let copied = world.cache.status().staged_in_bytes;
    assert!(world.content("d/f") == new);
    assert_eq!(world.cache.status().staged_in_bytes, copied);
    assert!(world.cache.is_superseded(former.identity()) && !world.cache.is_superseded(world.anchor("d/f").identity()));
    let how = OpenHow {
        read: true,
        write: false,
        truncate: false,
        created: false,
        sync: false,
        policy: Arc::new(Policy::default()),
    };
    let refused = world.cache.open_file(former, how).err().unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::ESTALE));

    world.rewrite("d/f", b"and again");
    world.drain();
    assert_eq!((std::fs::read(&path).unwrap(), world.hidden(), world.replicas()), (b"and again".to_vec(), 0, 1));
    world.cache.shutdown();
}

#[test]
fn what_has_two_names_or_is_in_use_when_a_command_wants_it_below_is_written_in_place() {
    let dir = scratch();
    let world = World::open(dir.path(), false);
    for name in ["linked", "open"] {
        std::fs::write(world.path(name), b"old").unwrap();
    }
    std::fs::hard_link(world.path("linked"), world.path("other")).unwrap();
    let inodes = [world.inode("linked"), world.inode("open")];
    for name in ["linked", "open"] {
        world.rewrite(name, b"newer");
    }
    let reader = world.open_file("open", false, false);
    world.drain();
    for name in ["linked", "other", "open"] {
        assert_eq!(std::fs::read(world.path(name)).unwrap(), b"newer");
    }
    assert_eq!([world.inode("linked"), world.inode("open")], inodes);
    drop(reader);
    world.cache.shutdown();
}

#[test]
fn what_is_published_by_itself_waits_for_its_last_reader() {
    let dir = scratch();
    let world = World::open(dir.path(), true);
    std::fs::write(world.path("f"), b"old").unwrap();
    let inode = world.inode("f");
    let reader = world.open_file("f", false, false);
    world.rewrite("f", b"new");
    // One that nobody reads passes it.
    std::fs::write(world.path("g"), b"").unwrap();
    world.rewrite("g", b"other");
    wait_until("the one that is not in use", PATIENCE, || std::fs::read(world.path("g")).unwrap() == b"other");
    assert_eq!((std::fs::read(world.path("f")).unwrap(), world.inode("f")), (b"old".to_vec(), inode));
    drop(reader);
    wait_until("the other", PATIENCE, || std::fs::read(world.path("f")).unwrap() == b"new");
    assert_ne!(world.inode("f"), inode);
    world.cache.shutdown();
}

#[test]
fn a_change_below_is_a_conflict_here_too_and_nothing_hidden_stays() {
    let dir = scratch();
    let world = World::open(dir.path(), false);
    std::fs::write(world.path("f"), b"old").unwrap();
    world.open_file("f", true, false).write_at(b"ours", 0, false).unwrap();
    std::fs::write(world.path("f"), b"theirs, longer").unwrap();
    let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
    assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict));
    assert_eq!((std::fs::read(world.path("f")).unwrap(), world.hidden()), (b"theirs, longer".to_vec(), 0));
    world.cache.shutdown();
}

/// What the child does: three files in one agent's life, the last in one that follows.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_PUBLISH_DIR") else { return };
    let dir = PathBuf::from(dir);
    let world = World::open(&dir, false);
    for (name, seed) in [("f", 2), ("d/g", 4), ("h", 6)] {
        world.rewrite(name, &pattern(seed, MIB + 300_000 * usize::from(seed)));
        std::fs::write(dir.join("acknowledged"), name).unwrap();
        world.drain();
    }
    world.cache.shutdown();
}

#[test]
fn a_death_at_any_step_of_a_publication_leaves_one_whole_version_and_no_other_file() {
    for point in fault::PUBLICATION {
        for nth in 1..=3 {
            let dir = scratch();
            {
                let world = World::open(dir.path(), false);
                for (name, seed) in [("f", 1), ("d/g", 3), ("h", 5)] {
                    std::fs::write(world.path(name), pattern(seed, MIB)).unwrap();
                }
                world.cache.shutdown();
            }
            let log = dir.path().join("hits");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
            command.env("FOREBAY_PUBLISH_DIR", dir.path()).env("FOREBAY_FAULT", format!("{point}:{nth}"));
            let output = command.env("FOREBAY_FAULT_LOG", &log).output().unwrap();
            let hit = std::fs::read_to_string(&log).is_ok_and(|text| text.trim() == *point);
            assert!(hit, "{point}:{nth}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.signal(), Some(9), "{point}:{nth}");
            check(dir.path(), &format!("{point}:{nth}"));
        }
    }
}

fn check(dir: &Path, label: &str) {
    let last = std::fs::read_to_string(dir.join("acknowledged")).unwrap();
    let files = [("f", 1_u8), ("d/g", 3), ("h", 5)];
    let done = files.iter().position(|(name, _)| *name == last).unwrap();
    let version = |seed: u8, new: bool| {
        if new { pattern(seed + 1, MIB + 300_000 * usize::from(seed + 1)) } else { pattern(seed, MIB) }
    };
    for (number, (name, seed)) in files.iter().enumerate() {
        let below = std::fs::read(dir.join("global").join(name)).unwrap();
        let (old, new) = (below == version(*seed, false), below == version(*seed, true));
        assert!(
            if number < done { new } else { old || (number == done && new) },
            "{label}: {name} is a part of a version"
        );
    }
    let world = World::open(dir, false);
    for (number, (name, seed)) in files.iter().enumerate() {
        assert!(world.content(name) == version(*seed, number <= done), "{label}: {name}");
    }
    world.drain();
    for (number, (name, seed)) in files.iter().enumerate() {
        let below = std::fs::read(world.path(name)).unwrap();
        assert!(below == version(*seed, number <= done), "{label}: {name} below");
    }
    world.cache.sweep().unwrap();
    assert_eq!((world.hidden(), world.replicas() as u64), (0, world.cache.status().files), "{label}");
    world.cache.shutdown();
}
