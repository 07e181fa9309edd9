//! A global store in memory for tests. Rare, slow or external events of a real store happen here on demand.
//!
//! The store keeps a journal of changes and syncs. The test sets its clock. Any operation can be made to fail. A
//! machine crash discards everything that was not synced.

mod content;
mod faults;
mod file;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use concurrency::Mutex;
use types::{ByteRange, Fingerprint, Identity, Timestamp};

use content::Content;
use faults::Faults;
pub use faults::{Fault, JournalEntry, StoreOperation};
use file::MemoryAnchor;
use global_store::{Anchor, GlobalStore, StoreAttributes, SyncPoint};

/// A function called before every operation of the file cache. No lock of the store is held, so the function may change
/// the store.
pub type Hook = Arc<dyn Fn(&StoreOperation, &Identity) + Send + Sync>;

/// A global store in memory. Cheap to clone; clones share one store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<Identity, Inode>,
    names: BTreeMap<PathBuf, Identity>,
    /// Names that a machine crash would leave; `None`: all of them.
    durable_names: Option<BTreeMap<PathBuf, Identity>>,
    next_inode: u64,
    shared: bool,
    free: Option<u64>,
    /// Whether `locate` finds files only by their present names.
    by_name: bool,
    /// Whether mtimes are stored in whole seconds.
    coarse: bool,
    /// Latest mtime that can be stored.
    latest: Option<Timestamp>,
    /// Attributes cached by the store's client, if that is simulated. Changes by others show only when the attributes
    /// are requested anew.
    remembered: Option<BTreeMap<Identity, StoreAttributes>>,
    clock: Clock,
    faults: Faults,
    hook: Option<Hook>,
    after: Option<Hook>,
    journal: Vec<JournalEntry>,
}

/// A file, and the state of it that a machine crash would leave.
#[derive(Clone)]
struct Inode {
    content: Content,
    durable: Content,
    atime: Timestamp,
    ctime: Timestamp,
    links: u64,
    mode: u32,
    mark: Option<Vec<u8>>,
}

/// The store's clock. It advances by `step_ns` with every change, so no two changes have equal times unless a test
/// wants that.
struct Clock {
    now: Timestamp,
    step_ns: u32,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { now: Timestamp { seconds: 1_000_000_000, nanos: 0 }, step_ns: 1_000_000 }
    }
}

impl Clock {
    fn tick(&mut self) -> Timestamp {
        let nanos = u64::from(self.now.nanos) + u64::from(self.step_ns);
        self.now.seconds += (nanos / 1_000_000_000) as i64;
        self.now.nanos = (nanos % 1_000_000_000) as u32;
        self.now
    }
}

impl Inode {
    fn attributes(&self) -> StoreAttributes {
        let attributes = Fingerprint::attributes_of(self.mode, 0, 0, self.links);
        let (size, mtime) = (self.content.len(), self.content.mtime);
        let fingerprint = Fingerprint { size, mtime, ctime: self.ctime, attributes };
        let (mode, links) = (self.mode, self.links);
        StoreAttributes { fingerprint, atime: self.atime, links, mode, uid: 0, gid: 0, append_only: false }
    }
}

impl State {
    /// Changes the content; mtime and ctime are updated.
    fn modify(&mut self, identity: &Identity, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        let now = self.clock.tick();
        let mtime = self.kept(now);
        let inode = self.files.get_mut(identity).ok_or_else(stale)?;
        change(&mut inode.content);
        inode.content.mtime = mtime;
        inode.ctime = now;
        Ok(())
    }

    /// Changes attributes; ctime is updated.
    fn touch(&mut self, identity: &Identity, change: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let now = self.clock.tick();
        let inode = self.files.get_mut(identity).ok_or_else(stale)?;
        change(inode);
        inode.ctime = now;
        Ok(())
    }

    /// Returns an mtime as the store would store it.
    fn kept(&self, time: Timestamp) -> Timestamp {
        let time = self.latest.map_or(time, |latest| time.min(latest));
        if self.coarse { Timestamp { nanos: 0, ..time } } else { time }
    }

    fn at(&self, path: &Path) -> io::Result<Identity> {
        self.names.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

/// Changes by other programs and machines, unknown to the file cache. These are not counted, no fault is injected into
/// them, and all of them are durable at once.
impl MemoryStore {
    /// Creates an empty store that no other machine can change.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Sets the result of [`GlobalStore::is_shared`].
    pub fn set_shared(&self, shared: bool) {
        self.state.lock().shared = shared;
    }

    /// Sets the result of [`GlobalStore::free_bytes`].
    pub fn set_free(&self, bytes: u64) {
        self.state.lock().free = Some(bytes);
    }

    /// Stores mtimes in whole seconds from now on.
    pub fn set_coarse(&self) {
        self.state.lock().coarse = true;
    }

    /// Caches attributes from now on, like the client of a network file system. The file cache sees cached values until
    /// it changes the file or bypasses the cache.
    pub fn remember_attributes(&self) {
        self.state.lock().remembered = Some(BTreeMap::new());
    }

    /// Replaces the content but keeps size and mtime, as `cp -p` does from a file of equal size and mtime.
    pub fn replace_keeping_mtime(&self, path: impl AsRef<Path>, data: &[u8]) {
        let mtime = self.attributes(&path).expect("a file").fingerprint.mtime;
        self.put(&path, data);
        self.set_mtime(path, mtime).expect("a file");
    }

    /// Stores no mtime later than `latest` from now on.
    pub fn set_latest(&self, latest: Timestamp) {
        self.state.lock().latest = Some(latest);
    }

    /// Sets the result of [`GlobalStore::finds_by_identity`]. If false, `locate` uses the hint.
    pub fn set_finds_by_identity(&self, finds: bool) {
        self.state.lock().by_name = !finds;
    }

    /// Creates an empty file, or returns the identity of the file that has the name.
    pub fn create(&self, path: impl AsRef<Path>) -> Identity {
        let mut state = self.state.lock();
        if let Ok(identity) = state.at(path.as_ref()) {
            return identity;
        }
        state.next_inode += 1;
        let identity = Identity::new(state.next_inode.to_le_bytes()).expect("eight bytes are an identity");
        let now = state.clock.tick();
        let content = Content::new(now);
        let inode = Inode {
            durable: content.clone(),
            content,
            atime: now,
            ctime: now,
            links: 1,
            mode: libc::S_IFREG | 0o644,
            mark: None,
        };
        state.files.insert(identity.clone(), inode);
        state.names.insert(path.as_ref().to_path_buf(), identity.clone());
        identity
    }

    /// Creates a file or replaces the content of an existing one.
    pub fn put(&self, path: impl AsRef<Path>, data: &[u8]) -> Identity {
        let identity = self.create(path);
        let done = self.outside(&identity, |content| {
            content.set_len(0);
            content.write(data, 0);
        });
        done.expect("the file was just created");
        identity
    }

    /// Writes into a file.
    pub fn write(&self, path: impl AsRef<Path>, data: &[u8], offset: u64) -> io::Result<()> {
        let identity = self.state.lock().at(path.as_ref())?;
        self.outside(&identity, |content| content.write(data, offset))
    }

    /// Truncates or extends a file.
    pub fn set_len(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let identity = self.state.lock().at(path.as_ref())?;
        self.outside(&identity, |content| content.set_len(len))
    }

    /// Changes mode bits; only ctime is updated.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        self.touch(path, |inode| inode.mode = libc::S_IFREG | (mode & 0o7777))
    }

    /// Sets the access time, which is not restored by a machine crash.
    pub fn set_atime(&self, path: impl AsRef<Path>, atime: Timestamp) -> io::Result<()> {
        self.touch(path, |inode| inode.atime = atime)
    }

    /// Sets mtime.
    pub fn set_mtime(&self, path: impl AsRef<Path>, mtime: Timestamp) -> io::Result<()> {
        self.touch(path, |inode| (inode.content.mtime, inode.durable.mtime) = (mtime, mtime))
    }

    fn touch(&self, path: impl AsRef<Path>, change: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let mut state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        state.touch(&identity, change)
    }

    /// Returns all bytes of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        Ok(state.files[&identity].content.bytes().to_vec())
    }

    /// Returns all bytes of a file by identity, whether or not the file has a name.
    pub fn read_identity(&self, identity: &Identity) -> Option<Vec<u8>> {
        self.state.lock().files.get(identity).map(|inode| inode.content.bytes().to_vec())
    }

    /// Returns the identity of the file with this name.
    pub fn identity(&self, path: impl AsRef<Path>) -> io::Result<Identity> {
        self.state.lock().at(path.as_ref())
    }

    /// Returns the attributes of a file.
    pub fn attributes(&self, path: impl AsRef<Path>) -> io::Result<StoreAttributes> {
        let state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        Ok(state.files[&identity].attributes())
    }

    /// Sets or removes a mark, as another agent would.
    pub fn put_mark(&self, path: impl AsRef<Path>, mark: Option<&[u8]>) -> io::Result<()> {
        let mut state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        state.touch(&identity, |inode| inode.mark = mark.map(<[u8]>::to_vec))
    }

    fn outside(&self, identity: &Identity, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        let mut state = self.state.lock();
        state.modify(identity, change)?;
        let inode = state.files.get_mut(identity).ok_or_else(stale)?;
        inode.durable = inode.content.clone();
        Ok(())
    }
}

/// Functions for the test around the file cache.
impl MemoryStore {
    /// Anchors a file by path.
    pub fn anchor(&self, path: impl AsRef<Path>) -> io::Result<Arc<dyn Anchor>> {
        let identity = self.state.lock().at(path.as_ref())?;
        Ok(self.anchor_identity(identity))
    }

    fn anchor_identity(&self, identity: Identity) -> Arc<dyn Anchor> {
        Arc::new(MemoryAnchor::new(self.clone(), identity))
    }

    /// Sets the time of the next change, and the step by which the clock advances with each change after it. With step
    /// 0 the clock stands still, and all changes get equal times.
    pub fn set_clock(&self, now: Timestamp, step_ns: u32) {
        self.state.lock().clock = Clock { now, step_ns };
    }

    /// Injects a fault into operations of the cache; a second call replaces the first fault.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.arm(fault);
    }

    /// Removes the injected fault.
    pub fn heal(&self) {
        self.state.lock().faults.disarm();
    }

    /// Returns the number of operations of the cache so far, for "fail the nth" loops.
    pub fn operations(&self) -> u64 {
        self.state.lock().faults.operations()
    }

    /// Sets the function that is called before every operation of the cache.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.state.lock().hook = hook;
    }

    /// Sets the function that is called after every operation of the cache, before the cache gets the result.
    pub fn set_after(&self, hook: Option<Hook>) {
        self.state.lock().after = hook;
    }

    /// Returns the changes and syncs of the cache, in order.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.state.lock().journal.clone()
    }

    /// Clears the journal.
    pub fn clear_journal(&self) {
        self.state.lock().journal.clear();
    }

    /// Simulates a crash of the store's machine: every file returns to its last synced content. Marks are durable at
    /// once. So are names, unless [`set_forgets_names`](MemoryStore::set_forgets_names) was called.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.files.values_mut().for_each(|inode| inode.content = inode.durable.clone());
        state.restore_names();
    }

    /// Runs one operation of the cache: the hook, the fault, then the operation itself.
    fn operate<T>(
        &self,
        operation: StoreOperation,
        identity: &Identity,
        run: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let result = self.operate_before(operation.clone(), identity, run);
        let after = self.state.lock().after.clone();
        if let Some(after) = after {
            after(&operation, identity);
        }
        result
    }

    fn operate_before<T>(
        &self,
        operation: StoreOperation,
        identity: &Identity,
        run: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let hook = self.state.lock().hook.clone();
        if let Some(hook) = hook {
            hook(&operation, identity);
        }
        let mut state = self.state.lock();
        if let Some(error) = state.faults.next(&operation, identity) {
            if let (true, StoreOperation::Write(range)) = (error.torn, &operation) {
                state.torn_write(identity, *range);
            }
            return Err(io::Error::from_raw_os_error(error.errno));
        }
        let result = run(&mut state)?;
        if operation.changes() {
            state.remembered.iter_mut().for_each(|remembered| _ = remembered.remove(identity));
            state.journal.push(JournalEntry { operation, identity: identity.clone() });
        }
        Ok(result)
    }
}

impl State {
    /// Leaves garbage in the first half of a failing write's range.
    fn torn_write(&mut self, identity: &Identity, range: ByteRange) {
        let half = vec![0xee; (range.len() / 2) as usize];
        // A file that is gone is not changed.
        let _ = self.modify(identity, |content| content.write(&half, range.start));
    }
}

impl SyncPoint for MemoryStore {
    fn sync(&self) -> io::Result<()> {
        let nobody = Identity::new([0]).expect("one byte is an identity");
        self.operate(StoreOperation::SyncStore, &nobody, |state| {
            state.files.values_mut().for_each(|inode| inode.durable = inode.content.clone());
            state.keep_names();
            Ok(())
        })
    }
}

impl GlobalStore for MemoryStore {
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        let found = self.operate(StoreOperation::Locate, identity, |state| {
            let there = state.files.get(identity).is_some_and(|inode| inode.links > 0);
            Ok(there && (!state.by_name || scan || state.names.get(hint) == Some(identity)))
        })?;
        Ok(found.then(|| self.anchor_identity(identity.clone())))
    }

    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>> {
        Ok(Box::new(self.clone()))
    }

    fn sync_names(&self) -> io::Result<()> {
        let nobody = Identity::new([0]).expect("one byte is an identity");
        self.operate(StoreOperation::SyncNames, &nobody, |state| {
            state.keep_names();
            Ok(())
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        self.state.lock().free
    }

    fn is_shared(&self) -> bool {
        self.state.lock().shared
    }

    fn finds_by_identity(&self) -> bool {
        !self.state.lock().by_name
    }
}
