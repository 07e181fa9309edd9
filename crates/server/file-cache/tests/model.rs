//! Random operations on the cache beside a plain map of file contents.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use config::{Cache, KeepAfter, Policy, Verify};
use data_store::{DataStore, NewTime, OpenHow, Residency, SyncScope};
use file_cache::{FileCache, Settings, Space};
use global_store::{Anchor, GlobalStore};
use models::global::MemoryStore;
use models::{DataStoreExt, Handle, MemoryCatalogue, OpenDataExt};
use proptest::prelude::*;

/// Unit of sizes. Four units are a little more than a block of the cache, so files have up to four blocks.
const UNIT: u64 = 300 << 10;
const UNITS: u64 = 13;

#[derive(Debug, Clone)]
enum Op {
    Create { name: u8, policy: u8 },
    Open { name: u8, write: bool, truncate: bool, policy: u8 },
    Write { handle: u8, at: u64, len: u64, byte: u8, kernel: bool },
    Append { handle: u8, len: u64, byte: u8 },
    Read { handle: u8, at: u64, len: u64 },
    SetLen { handle: u8, len: u64 },
    Punch { handle: u8, at: u64, len: u64 },
    Sync { handle: u8 },
    Close { handle: u8 },
    Truncate { name: u8, len: u64 },
    Unlink { name: u8 },
    Rename { from: u8, to: u8 },
    Outside { name: u8, at: u64, byte: u8 },
    SetTimes { name: u8, seconds: i64 },
    Drain,
    DrainFile { name: u8 },
    StageIn { name: u8 },
    Evict { name: u8 },
    Expire,
    Fill { full: bool },
    Quiesce { on: bool },
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..3_u8;
    let handle = 0..4_u8;
    let at = 0..UNITS;
    let policy = 0..8_u8;
    prop_oneof![
        4 => (name.clone(), policy.clone()).prop_map(|(name, policy)| Op::Create { name, policy }),
        8 => (name.clone(), any::<bool>(), prop::bool::weighted(0.2), policy)
            .prop_map(|(name, write, truncate, policy)| Op::Open { name, write, truncate, policy }),
        8 => (handle.clone(), at.clone(), 1..UNITS, any::<u8>(), any::<bool>())
            .prop_map(|(handle, at, len, byte, kernel)| Op::Write { handle, at, len, byte, kernel }),
        2 => (handle.clone(), 1..3_u64, any::<u8>()).prop_map(|(handle, len, byte)| Op::Append { handle, len, byte }),
        6 => (handle.clone(), at.clone(), 1..UNITS).prop_map(|(handle, at, len)| Op::Read { handle, at, len }),
        2 => (handle.clone(), at.clone()).prop_map(|(handle, len)| Op::SetLen { handle, len }),
        2 => (handle.clone(), at.clone(), 1..4_u64).prop_map(|(handle, at, len)| Op::Punch { handle, at, len }),
        1 => handle.clone().prop_map(|handle| Op::Sync { handle }),
        5 => handle.prop_map(|handle| Op::Close { handle }),
        2 => (name.clone(), at.clone()).prop_map(|(name, len)| Op::Truncate { name, len }),
        2 => name.clone().prop_map(|name| Op::Unlink { name }),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Op::Rename { from, to }),
        3 => (name.clone(), at, any::<u8>()).prop_map(|(name, at, byte)| Op::Outside { name, at, byte }),
        1 => (name.clone(), 1..2_000_000_000_i64).prop_map(|(name, seconds)| Op::SetTimes { name, seconds }),
        3 => Just(Op::Drain),
        3 => name.clone().prop_map(|name| Op::DrainFile { name }),
        2 => name.clone().prop_map(|name| Op::StageIn { name }),
        2 => name.prop_map(|name| Op::Evict { name }),
        1 => Just(Op::Expire),
        1 => any::<bool>().prop_map(|full| Op::Fill { full }),
        1 => any::<bool>().prop_map(|on| Op::Quiesce { on }),
        2 => Just(Op::Crash),
    ]
}

fn policy(number: u8) -> Arc<Policy> {
    let mut policy = Policy { revalidate: Duration::ZERO, ..Policy::default() };
    match number {
        3 => policy.keep_after = KeepAfter::Delete,
        4 => policy.cache = Cache::WriteCache,
        5 => policy.cache = Cache::Preload,
        6 => policy.cache = Cache::Through,
        7 => policy.verify = Verify::Full,
        _ => {}
    }
    Arc::new(policy)
}

type Content = Rc<RefCell<Vec<u8>>>;

struct Open {
    handle: Handle,
    content: Content,
    name: Option<u8>,
    write: bool,
}

struct World {
    _dir: tempfile::TempDir,
    settings: Settings,
    store: MemoryStore,
    cache: FileCache,
    clock: Arc<AtomicU64>,
    full: Arc<AtomicBool>,
    names: BTreeMap<u8, Content>,
    open: Vec<Open>,
}

fn path(name: u8) -> String {
    format!("f{name}")
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let clock = Arc::new(AtomicU64::new(1));
        let full = Arc::new(AtomicBool::new(false));
        let shared: Arc<dyn GlobalStore> = Arc::new(store.clone());
        let mut settings = Settings::new(dir.path(), shared, "model");
        settings.catalogue = Some(Arc::new(MemoryCatalogue::new()));
        settings.background = false;
        settings.streams = 1;
        settings.ballast_bytes = 0;
        let time = Arc::clone(&clock);
        settings.clock = Some(Arc::new(move || Duration::from_secs(time.load(Ordering::Relaxed))));
        let is_full = Arc::clone(&full);
        settings.space = Some(Arc::new(move || {
            Ok(Space { total: 1 << 40, free: if is_full.load(Ordering::Relaxed) { 0 } else { 1 << 40 } })
        }));
        let cache = FileCache::open(settings.clone()).unwrap();
        World { _dir: dir, settings, store, cache, clock, full, names: BTreeMap::new(), open: Vec::new() }
    }

    fn anchor(&self, name: u8) -> Arc<dyn Anchor> {
        self.store.anchor(path(name)).unwrap()
    }

    fn open_file(&mut self, name: u8, write: bool, truncate: bool, created: bool, number: u8) {
        if self.open.len() >= 4 {
            return;
        }
        let how = OpenHow {
            read: true,
            write,
            truncate,
            created,
            sync: number == 2,
            policy: policy(number),
            ..OpenHow::default()
        };
        let handle = self.cache.open_file(self.anchor(name), how).unwrap();
        let content = Rc::clone(&self.names[&name]);
        if truncate {
            content.borrow_mut().clear();
        }
        self.open.push(Open { handle, content, name: Some(name), write: write || truncate });
    }

    fn handle(&self, number: u8) -> Option<&Open> {
        if self.open.is_empty() { None } else { self.open.get(number as usize % self.open.len()) }
    }

    fn writer(&self, number: u8) -> Option<&Open> {
        self.handle(number).filter(|open| open.write)
    }

    fn is_open(&self, name: u8) -> bool {
        self.open.iter().any(|open| open.name == Some(name))
    }

    fn drop_name(&mut self, name: u8) {
        self.names.remove(&name);
        self.open.iter_mut().filter(|open| open.name == Some(name)).for_each(|open| open.name = None);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create { name, policy } => {
                if !self.names.contains_key(&name) && self.open.len() < 4 {
                    self.store.create(path(name));
                    self.names.insert(name, Content::default());
                    self.open_file(name, true, false, true, policy);
                }
            }
            Op::Open { name, write, truncate, policy } => {
                if self.names.contains_key(&name) {
                    self.open_file(name, write, truncate, false, policy);
                }
            }
            Op::Write { handle, at, len, byte, kernel } => self.write(handle, at, len, byte, kernel),
            Op::Append { handle, len, byte } => {
                let Some(open) = self.writer(handle) else { return };
                let data = vec![byte; (len * 1000) as usize];
                let end = open.content.borrow().len() as u64;
                assert_eq!(open.handle.append(&data).unwrap().offset, end);
                open.content.borrow_mut().extend_from_slice(&data);
            }
            Op::Read { handle, at, len } => {
                let Some(open) = self.handle(handle) else { return };
                let mut buffer = vec![0xaa; (len * UNIT) as usize];
                let read = open.handle.read_at(&mut buffer, at * UNIT + 7).unwrap();
                let content = open.content.borrow();
                let start = (at * UNIT + 7).min(content.len() as u64) as usize;
                let end = (start + buffer.len()).min(content.len());
                assert!(buffer[..read] == content[start..end], "read of {start}..{end} differs");
            }
            Op::SetLen { handle, len } => {
                let Some(open) = self.writer(handle) else { return };
                open.handle.set_len(len * UNIT).unwrap();
                open.content.borrow_mut().resize((len * UNIT) as usize, 0);
            }
            Op::Punch { handle, at, len } => {
                let Some(open) = self.writer(handle) else { return };
                let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
                open.handle.fallocate(mode, at * UNIT, len * UNIT).unwrap();
                let mut content = open.content.borrow_mut();
                let size = content.len();
                content[((at * UNIT) as usize).min(size)..(((at + len) * UNIT) as usize).min(size)].fill(0);
            }
            Op::Sync { handle } => {
                let Some(open) = self.handle(handle) else { return };
                open.handle.sync(if handle % 2 == 0 { SyncScope::Data } else { SyncScope::All }).unwrap();
                open.handle.flush().unwrap();
            }
            Op::Close { handle } => {
                if !self.open.is_empty() {
                    let number = handle as usize % self.open.len();
                    self.open.swap_remove(number);
                }
            }
            ref other => self.apply_to_names(other),
        }
    }

    fn write(&self, handle: u8, at: u64, len: u64, byte: u8, kernel: bool) {
        let Some(open) = self.writer(handle) else { return };
        let data = vec![byte; (len * UNIT / 2 + 11) as usize];
        let at = at * UNIT + u64::from(byte) * 3;
        // Not if there is little room.
        match open.handle.backing().filter(|_| kernel && open.handle.begin_passthrough()) {
            Some(backing) => {
                use std::os::fd::AsRawFd;
                use std::os::unix::fs::FileExt;
                let link = format!("/proc/self/fd/{}", backing.as_raw_fd());
                let file = std::fs::OpenOptions::new().write(true).open(link).unwrap();
                file.write_all_at(&data, at).unwrap();
            }
            None => assert_eq!(open.handle.write(&data, at).unwrap().written, data.len()),
        }
        let mut content = open.content.borrow_mut();
        let end = at as usize + data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[at as usize..end].copy_from_slice(&data);
    }

    fn apply_to_names(&mut self, op: &Op) {
        let name = match *op {
            Op::Truncate { name, .. }
            | Op::Unlink { name }
            | Op::Rename { from: name, .. }
            | Op::Outside { name, .. }
            | Op::SetTimes { name, .. }
            | Op::DrainFile { name }
            | Op::StageIn { name }
            | Op::Evict { name } => name,
            ref other => return self.apply_to_all(other),
        };
        let Some(content) = self.names.get(&name).cloned() else { return };
        let identity = self.store.identity(path(name)).unwrap();
        match *op {
            Op::Truncate { len, .. } => {
                self.cache.set_len(&self.anchor(name), len * UNIT, &policy(0), &|| false).unwrap();
                content.borrow_mut().resize((len * UNIT) as usize, 0);
            }
            Op::Unlink { .. } => {
                self.store.unlink(path(name)).unwrap();
                self.cache.unlinked(&identity);
                self.drop_name(name);
            }
            Op::Rename { to, .. } if to != name => {
                let target = self.names.contains_key(&to).then(|| self.store.identity(path(to)).unwrap());
                self.store.rename(path(name), path(to)).unwrap();
                if let Some(target) = target {
                    self.cache.unlinked(&target);
                    self.drop_name(to);
                }
                self.cache.renamed(&*self.anchor(to));
                self.names.remove(&name);
                self.names.insert(to, content);
                self.open.iter_mut().filter(|open| open.name == Some(name)).for_each(|open| open.name = Some(to));
            }
            Op::Outside { at, byte, .. } if !self.is_open(name) && !self.cache.is_dirty(&identity) => {
                self.store.write(path(name), &[byte; 5000], at * UNIT).unwrap();
                *content.borrow_mut() = self.store.read(path(name)).unwrap();
            }
            Op::SetTimes { seconds, .. } => {
                let mtime = types::Timestamp { seconds, nanos: 5 };
                let anchor = self.anchor(name);
                self.cache
                    .date(&anchor, Some(NewTime::At(mtime)), &mut || self.store.set_mtime(path(name), mtime))
                    .unwrap();
                let seen = self.cache.ahead(&identity).map(|overlay| overlay.mtime);
                assert_eq!(seen.unwrap_or(self.store.attributes(path(name)).unwrap().fingerprint.mtime), mtime);
            }
            Op::DrainFile { .. } => self.cache.drain_file(&identity).unwrap(),
            Op::StageIn { .. } => {
                let done = self.cache.stage_in(&self.anchor(name), &policy(0));
                let may_fail = self.is_open(name) || self.full.load(Ordering::Relaxed);
                assert!(done.is_ok() || may_fail, "{done:?}");
            }
            Op::Evict { .. } => {
                let dirty = self.cache.is_dirty(&identity);
                let evicted = self.cache.evict(&identity);
                assert!(evicted.is_ok() || dirty || self.is_open(name), "{evicted:?}");
                assert!(evicted.is_err() || !dirty);
            }
            _ => {}
        }
    }

    fn apply_to_all(&mut self, op: &Op) {
        match *op {
            Op::Drain => {
                let stuck = self.cache.drain_all();
                assert!(stuck.iter().all(|stuck| stuck.errno == libc::EBUSY), "{stuck:?}");
            }
            Op::Expire => {
                self.clock.fetch_add(10_000, Ordering::Relaxed);
                self.cache.housekeep();
            }
            Op::Fill { full } => {
                self.full.store(full, Ordering::Relaxed);
                self.clock.fetch_add(2, Ordering::Relaxed);
            }
            Op::Quiesce { on } => self.cache.quiesce(on),
            Op::Crash => {
                self.cache.abandon();
                self.open.clear();
                self.cache = FileCache::open(self.settings.clone()).unwrap();
                self.cache.sweep().unwrap();
            }
            _ => {}
        }
    }

    /// Asserts that `stat` reports the model's values.
    fn check_sizes(&self) {
        for (&name, content) in &self.names {
            let identity = self.store.identity(path(name)).unwrap();
            let overlay = self.cache.ahead(&identity).map(|overlay| overlay.size);
            let size = overlay.unwrap_or_else(|| self.store.attributes(path(name)).unwrap().fingerprint.size);
            assert_eq!(size, content.borrow().len() as u64, "size of {}", path(name));
        }
    }

    /// Asserts that the global store holds the model's content once everything is closed and staged out.
    fn finish(mut self) {
        self.open.clear();
        let stuck = self.cache.drain_all();
        assert!(stuck.is_empty(), "{stuck:?}");
        for (&name, content) in &self.names {
            let identity = self.store.identity(path(name)).unwrap();
            assert!(matches!(self.cache.residency(&identity), Residency::Clean | Residency::Absent));
            assert!(self.store.read(path(name)).unwrap() == *content.borrow(), "{} differs below", path(name));
        }
        let replicas = walk(self.settings.burst_buffer.join("replicas"));
        assert_eq!(replicas as u64, self.cache.counters().files, "a replica without a record, or none with one");
        self.cache.shutdown();
    }
}

fn walk(dir: std::path::PathBuf) -> usize {
    std::fs::read_dir(dir).unwrap().map(|part| std::fs::read_dir(part.unwrap().path()).unwrap().count()).sum()
}

/// `FOREBAY_MODEL_CASES` sets another number of cases.
fn cases() -> u32 {
    std::env::var("FOREBAY_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(96)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]
    #[test] // S8, S66
    fn any_story_ends_with_the_contents_of_a_plain_map(ops in prop::collection::vec(op(), 1..100)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check_sizes();
        }
        world.finish();
    }
}
