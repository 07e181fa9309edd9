//! A process that dies at every named fault point, and the recovery by its successor.
//!
//! The child writes a log: before each step what the file may hold while the step runs, after it what it must hold.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use config::{KeepAfter, Policy};
use data_store::{DataStore, OpenHow};
use file_cache::{FileCache, Settings, fault};
use global_store::posix::{PosixStore, StoreOptions};
use global_store::{Anchor, GlobalStore};
use models::{DataStoreExt, Handle, OpenDataExt};
use rustix::fs::{Mode, OFlags};

const MIB: usize = 1 << 20;
/// Stands in the log for a file that does not exist.
const GONE: &str = "-";

struct World {
    root: PathBuf,
    store: PosixStore,
    cache: FileCache,
    shared: bool,
}

impl World {
    fn open(dir: &Path, shared: bool) -> World {
        let root = dir.join("global");
        std::fs::create_dir_all(&root).unwrap();
        let fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let store = PosixStore::new(fd, StoreOptions { shared: Some(shared), durable_handles: None }).unwrap();
        let below: Arc<dyn GlobalStore> = Arc::new(store.clone());
        let mut settings = Settings::new(dir.join("bb"), below, "crash");
        settings.background = false;
        settings.streams = 1;
        settings.ballast_bytes = 0;
        settings.agent_id = "agent".into();
        World { root, store, cache: FileCache::open(settings).unwrap(), shared }
    }

    fn anchor(&self, name: &str) -> Arc<dyn Anchor> {
        let fd = rustix::fs::open(self.root.join(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        self.store.anchor(fd, None).unwrap()
    }

    fn open_file(&self, name: &str, change: impl FnOnce(&mut OpenHow)) -> Handle {
        let policy = Arc::new(Policy { revalidate: Duration::ZERO, ..Policy::default() });
        let mut how = OpenHow { read: true, write: true, policy, ..OpenHow::default() };
        change(&mut how);
        self.cache.open_file(self.anchor(name), how).unwrap()
    }

    fn create(&self, name: &str, data: &[u8]) {
        std::fs::write(self.root.join(name), b"").unwrap();
        self.open_file(name, |how| how.created = true).write(data, 0).unwrap();
    }

    fn content(&self, name: &str) -> Vec<u8> {
        let handle = self.open_file(name, |how| how.write = false);
        let mut buffer = vec![0; 8 * MIB];
        let read = handle.read_at(&mut buffer, 0).unwrap();
        buffer.truncate(read);
        buffer
    }
}

/// Returns the content that a name in the log stands for: `seed.length`, with a hole in the middle of long content.
fn content(name: &str) -> Vec<u8> {
    let (seed, len) = name.split_once('.').unwrap();
    let (mut seed, len): (u64, usize) = (seed.parse().unwrap(), len.parse().unwrap());
    let mut bytes: Vec<u8> = (0..len)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        })
        .collect();
    if len > 3 * MIB {
        bytes[MIB..2 * MIB].fill(0);
    }
    bytes
}

struct Ledger(std::fs::File);

impl Ledger {
    fn line(&mut self, name: &str, contents: &[&str]) {
        writeln!(self.0, "{name} {}", contents.join(" ")).unwrap();
    }

    /// Runs `work`. The file holds `before` until then, and must hold `after` when it is done.
    fn step(&mut self, name: &str, before: &[&str], after: &str, work: impl FnOnce()) {
        let mut may: Vec<&str> = before.to_vec();
        may.push(after);
        self.line(name, &may);
        work();
        self.line(name, &[after]);
    }
}

/// The contents that each file may hold, given the last line of the child about each.
fn read_ledger(path: &Path) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            (words.next().unwrap(), words.collect())
        })
        .collect()
}

/// Does the work of the child. Every fault point is passed.
fn work(world: &World, ledger: &mut Ledger) {
    let (cache, root) = (&world.cache, &world.root);
    let drain = || assert!(cache.drain_all().is_empty());
    for (name, what) in [("old", "1.4194304"), ("cut", "2.3145728"), ("read", "3.2500000"), ("little", "4.999")] {
        std::fs::write(root.join(name), content(what)).unwrap();
        ledger.line(name, &[what]);
    }
    for name in ["read", "little", "old"] {
        world.cache.stage_in(&world.anchor(name), &Arc::new(Policy::default())).unwrap();
    }
    ledger.step("new", &[GONE, "0.0"], "5.3500000", || world.create("new", &content("5.3500000")));
    ledger.step("gone", &[GONE, "0.0"], "6.100000", || world.create("gone", &content("6.100000")));
    // One write of one block: afterwards the file has the old or the new content, nothing in between.
    ledger.step("old", &["1.4194304"], "7.4194304", || {
        world.open_file("old", |_| ()).write(&content("7.4194304"), 0).unwrap();
    });
    ledger.step("cut", &["2.3145728", "0.0"], "8.1000", || {
        world.open_file("cut", |how| how.truncate = true).write(&content("8.1000"), 0).unwrap();
    });
    for number in 0..4 {
        let name = format!("small{number}");
        ledger.step(&name, &[GONE, "0.0"], "9.700", || world.create(&name, &content("9.700")));
    }
    ledger.step("kept", &[GONE, "0.0"], "12.5000", || world.create("kept", &content("12.5000")));
    world.open_file("kept", |_| ()).fsync().unwrap();
    for (name, what) in [("gone", "6.100000"), ("kept", "12.5000")] {
        let identity = world.anchor(name).identity().clone();
        ledger.step(name, &[what], GONE, || {
            cache.removing(&identity);
            std::fs::remove_file(root.join(name)).unwrap();
            cache.unlinked(&identity);
        });
    }
    drain();
    cache.evict(world.anchor("read").identity()).unwrap();
    ledger.step("old", &["7.4194304"], "10.4194304", || {
        world.open_file("old", |_| ()).write(&content("10.4194304"), 0).unwrap();
    });
    ledger.step("new", &["5.3500000"], "0.0", || {
        let policy = Arc::new(Policy { keep_after: KeepAfter::Delete, ..Policy::default() });
        cache.set_len(&world.anchor("new"), 0, &policy, &|| false).unwrap();
    });
    ledger.step("new", &["0.0"], "11.2000000", || {
        let handle = world.open_file("new", |how| {
            how.policy = Arc::new(Policy { keep_after: KeepAfter::Delete, ..Policy::default() });
        });
        handle.write(&content("11.2000000"), 0).unwrap();
    });
    drain();
}

/// Runs the child's work, if this process is one.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_CRASH_DIR") else { return };
    let dir = PathBuf::from(dir);
    let shared = std::env::var_os("FOREBAY_CRASH_SHARED").is_some();
    let world = World::open(&dir, shared);
    let mut ledger = Ledger(std::fs::File::create(dir.join("ledger")).unwrap());
    work(&world, &mut ledger);
    ledger.line("done", &[]);
    world.cache.shutdown();
}

/// Runs the child with one point armed. Returns false if it passed the point fewer than `nth` times.
fn run_child(dir: &Path, point: &str, nth: u32, shared: bool) -> bool {
    let log = dir.join("hits");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture"])
        .env("FOREBAY_CRASH_DIR", dir)
        .env("FOREBAY_FAULT", format!("{point}:{nth}"))
        .env("FOREBAY_FAULT_LOG", &log)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if shared {
        command.env("FOREBAY_CRASH_SHARED", "1");
    }
    let output = command.output().unwrap();
    let hit = std::fs::read_to_string(&log).is_ok_and(|text| text.trim() == point);
    if hit {
        assert_eq!(output.status.signal(), Some(9), "{point}:{nth}");
    } else {
        assert!(output.status.success(), "{point}:{nth}: {}", String::from_utf8_lossy(&output.stderr));
    }
    hit
}

fn which(found: &[u8], may: &[String]) -> Option<usize> {
    may.iter().position(|name| name != GONE && (if name == "0.0" { found.is_empty() } else { found == content(name) }))
}

/// Recovers, reads everything through the cache, stages out, and reads the global store.
fn check(dir: &Path, label: &str, shared: bool) {
    let ledger = read_ledger(&dir.join("ledger"));
    let world = World::open(dir, shared);
    let mut chosen = BTreeMap::new();
    for (name, may) in ledger.iter().filter(|(name, _)| *name != "done") {
        if !world.root.join(name).exists() {
            assert!(may.iter().any(|what| what == GONE), "{label}: {name} is gone, it may hold {may:?}");
            continue;
        }
        let found = world.content(name);
        let Some(index) = which(&found, may) else {
            panic!("{label}: {name} reads {} bytes that are none of {may:?}", found.len());
        };
        chosen.insert(name.clone(), may[index].clone());
    }
    let stuck = world.cache.drain_all();
    assert!(stuck.is_empty(), "{label}: {stuck:?}");
    for (name, what) in chosen {
        let below = std::fs::read(world.root.join(&name)).unwrap();
        assert!(below == if what == "0.0" { Vec::new() } else { content(&what) }, "{label}: {name} differs below");
        if world.shared {
            assert_eq!(world.anchor(&name).mark().unwrap(), None, "{label}: {name} is marked");
        }
    }
    world.cache.sweep().unwrap();
    let status = world.cache.counters();
    let parts = std::fs::read_dir(dir.join("bb/replicas")).unwrap();
    let replicas: usize = parts.map(|part| std::fs::read_dir(part.unwrap().path()).unwrap().count()).sum();
    assert_eq!(replicas as u64, status.files, "{label}: garbage stays, or a record has no replica");
    world.cache.shutdown();
}

fn scratch() -> tempfile::TempDir {
    // Only the process dies here, so a memory file system suffices, and is fast.
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn crash_everywhere(shared: bool, skipped: &[&str]) {
    for point in fault::POINTS.iter().filter(|point| !skipped.contains(point)) {
        for nth in [1, 2, 3, 5] {
            let dir = scratch();
            let hit = run_child(dir.path(), point, nth, shared);
            assert!(hit || nth > 1, "{point} was never reached");
            check(dir.path(), &format!("{point}:{nth}"), shared);
            if !hit {
                break;
            }
        }
    }
}

#[test] // S15, S16
fn after_a_crash_at_any_point_every_acknowledged_byte_is_there_and_nothing_older() {
    crash_everywhere(false, &["w6.unmarked"]);
}

#[test] // S16, S28
fn the_same_holds_on_a_shared_store_with_marks() {
    crash_everywhere(true, &[]);
}

#[test] // S17
fn a_lost_catalogue_is_rebuilt_from_the_dirty_replicas() {
    let dir = scratch();
    let world = World::open(dir.path(), false);
    std::fs::write(world.root.join("clean"), b"clean").unwrap();
    world.content("clean");
    world.create("dirty", b"precious");
    world.cache.abandon();
    drop(world);
    std::fs::remove_dir_all(dir.path().join("bb/catalogue")).unwrap();
    let world = World::open(dir.path(), false);
    assert_eq!(world.content("dirty"), b"precious");
    assert!(world.cache.drain_all().is_empty());
    assert_eq!(std::fs::read(world.root.join("dirty")).unwrap(), b"precious");
    world.cache.sweep().unwrap();
    assert_eq!(world.cache.counters().files, 1);
}

/// The inode number is reused at once, as ext4 does.
#[test] // S15
fn a_new_file_with_the_number_of_one_that_was_removed_is_another_file() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), false);
    world.create("old", b"synced");
    world.open_file("old", |_| ()).fsync().unwrap();
    let (identity, number) = (world.anchor("old").identity().clone(), world.root.join("old").metadata().unwrap().ino());
    world.cache.removing(&identity);
    std::fs::remove_file(world.root.join("old")).unwrap();
    world.cache.unlinked(&identity);
    let has_number = |name: &str| world.root.join(name).metadata().unwrap().ino() == number;
    // Other file systems reuse it later.
    let mut names = (0..20).map(|next| format!("new{next}"));
    let make = |name: &String| {
        world.create(name, name.as_bytes());
        has_number(name)
    };
    let new = &names.find(make).unwrap_or("new19".to_owned());
    let content = world.content(new);
    assert!(content == new.as_bytes() && world.anchor(new).identity() != &identity);
    assert_eq!((world.cache.counters().removed, world.cache.is_dirty(&identity)), (1, false));
    assert!(world.cache.drain_all().is_empty());
    world.cache.shutdown();
    let world = World::open(dir.path(), false);
    assert_eq!((world.content(new), std::fs::read(world.root.join(new)).unwrap()), (content.clone(), content));
    assert_eq!(world.cache.counters().removed, 0);
}
