//! A global store in memory for tests: everything that a real one does slowly, rarely or behind one's back happens
//! here on demand. It keeps a journal of changes and syncs, its clock is the test's, any operation can be made to
//! fail, and a machine crash forgets what was not synced.

mod content;
mod faults;
mod file;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use types::{ByteRange, Fingerprint, Identity, Timestamp};

use crate::{Anchor, GlobalStore, StoreAttributes, SyncPoint};
use content::Content;
use faults::Faults;
pub use faults::{Fault, JournalEntry, StoreOperation};
use file::MemoryAnchor;

/// Called before every operation of the file cache, without any lock of the store held: it may change the store.
pub type Hook = Arc<dyn Fn(&StoreOperation, &Identity) + Send + Sync>;

/// The store. Cheap to clone; clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<Identity, Inode>,
    names: BTreeMap<PathBuf, Identity>,
    /// What a machine crash would leave of them, if not all.
    durable_names: Option<BTreeMap<PathBuf, Identity>>,
    next_inode: u64,
    shared: bool,
    free: Option<u64>,
    /// Files are found by their present names only.
    by_name: bool,
    /// Times are kept in whole seconds.
    coarse: bool,
    /// The latest time of modification that can be kept.
    latest: Option<Timestamp>,
    /// Attributes that the client of the store remembers, where it does: what others change it sees when it is asked to look.
    remembered: Option<BTreeMap<Identity, StoreAttributes>>,
    clock: Clock,
    faults: Faults,
    hook: Option<Hook>,
    after: Option<Hook>,
    journal: Vec<JournalEntry>,
}

/// A file and what a machine crash would leave of it.
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

/// The store's time: it moves by `step_ns` with every change, so that no two changes look alike unless a test says so.
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
    /// A change of content: both times move.
    fn modify(&mut self, identity: &Identity, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        let now = self.clock.tick();
        let mtime = self.kept(now);
        let inode = self.files.get_mut(identity).ok_or_else(stale)?;
        change(&mut inode.content);
        inode.content.mtime = mtime;
        inode.ctime = now;
        Ok(())
    }

    /// A change of attributes: ctime moves.
    fn touch(&mut self, identity: &Identity, change: impl FnOnce(&mut Inode)) -> io::Result<()> {
        let now = self.clock.tick();
        let inode = self.files.get_mut(identity).ok_or_else(stale)?;
        change(inode);
        inode.ctime = now;
        Ok(())
    }

    /// A time as it keeps it.
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

/// What other programs and machines do with the store, behind the cache's back. Nothing here fails by injection or is
/// counted, and all of it is durable at once.
impl MemoryStore {
    /// An empty store that nobody else can change.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Sets what [`GlobalStore::is_shared`] says.
    pub fn set_shared(&self, shared: bool) {
        self.state.lock().shared = shared;
    }

    /// Sets what [`GlobalStore::free_bytes`] says.
    pub fn set_free(&self, bytes: u64) {
        self.state.lock().free = Some(bytes);
    }

    /// Keeps times of modification in whole seconds from now on.
    pub fn set_coarse(&self) {
        self.state.lock().coarse = true;
    }

    /// Has attributes remembered from now on, as clients of network file systems do: until the cache itself changes the file, or
    /// asks past that.
    pub fn remember_attributes(&self) {
        self.state.lock().remembered = Some(BTreeMap::new());
    }

    /// Replaces bytes and keeps size and mtime, as `cp -p` does of a file that was as long and as old.
    pub fn replace_keeping_mtime(&self, path: impl AsRef<Path>, data: &[u8]) {
        let mtime = self.attributes(&path).expect("a file").fingerprint.mtime;
        self.put(&path, data);
        self.set_mtime(path, mtime).expect("a file");
    }

    /// Keeps no later times of modification from now on.
    pub fn set_latest(&self, latest: Timestamp) {
        self.state.lock().latest = Some(latest);
    }

    /// Sets what [`GlobalStore::finds_by_identity`] says; without it `locate` goes by the hint.
    pub fn set_finds_by_identity(&self, finds: bool) {
        self.state.lock().by_name = !finds;
    }

    /// Creates an empty file, or says who has the name already.
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

    /// Creates a file or replaces the content of one that is there.
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

    /// Cuts or extends a file.
    pub fn set_len(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let identity = self.state.lock().at(path.as_ref())?;
        self.outside(&identity, |content| content.set_len(len))
    }

    /// Changes mode bits: only ctime moves.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        self.touch(path, |inode| inode.mode = libc::S_IFREG | (mode & 0o7777))
    }

    /// Sets atime, of which a crash of the machine knows nothing.
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

    /// All bytes of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        Ok(state.files[&identity].content.bytes().to_vec())
    }

    /// All bytes of a file by identity, whether or not it has a name.
    pub fn read_identity(&self, identity: &Identity) -> Option<Vec<u8>> {
        self.state.lock().files.get(identity).map(|inode| inode.content.bytes().to_vec())
    }

    /// Who has a name.
    pub fn identity(&self, path: impl AsRef<Path>) -> io::Result<Identity> {
        self.state.lock().at(path.as_ref())
    }

    /// Attributes of a file.
    pub fn attributes(&self, path: impl AsRef<Path>) -> io::Result<StoreAttributes> {
        let state = self.state.lock();
        let identity = state.at(path.as_ref())?;
        Ok(state.files[&identity].attributes())
    }

    /// Leaves a mark as another agent would.
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

/// The test's side of the file cache.
impl MemoryStore {
    /// Anchors a file by path.
    pub fn anchor(&self, path: impl AsRef<Path>) -> io::Result<Arc<dyn Anchor>> {
        let identity = self.state.lock().at(path.as_ref())?;
        Ok(self.anchor_identity(identity))
    }

    fn anchor_identity(&self, identity: Identity) -> Arc<dyn Anchor> {
        Arc::new(MemoryAnchor::new(self.clone(), identity))
    }

    /// Sets the time of the next change, and by how much time moves with each change after it (0: it stands still,
    /// and changes look alike).
    pub fn set_clock(&self, now: Timestamp, step_ns: u32) {
        self.state.lock().clock = Clock { now, step_ns };
    }

    /// Makes an operation of the cache fail; a second call replaces the first.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.arm(fault);
    }

    /// No operation fails any more.
    pub fn heal(&self) {
        self.state.lock().faults.disarm();
    }

    /// Operations of the cache so far: for "fail the nth" loops.
    pub fn operations(&self) -> u64 {
        self.state.lock().faults.operations()
    }

    /// Calls `hook` before every operation of the cache.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.state.lock().hook = hook;
    }

    /// Calls `hook` after every operation of the cache, before the cache learns what it came to.
    pub fn set_after(&self, hook: Option<Hook>) {
        self.state.lock().after = hook;
    }

    /// What the cache changed and synced, in order.
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.state.lock().journal.clone()
    }

    /// Forgets the journal so far.
    pub fn clear_journal(&self) {
        self.state.lock().journal.clear();
    }

    /// The machine of the store dies: every file is as it was last synced. Marks are durable at once here, and names unless
    /// [`set_forgets_names`](MemoryStore::set_forgets_names) says otherwise.
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
    /// The first half of a failing write arrived, as bytes that nobody wrote.
    fn torn_write(&mut self, identity: &Identity, range: ByteRange) {
        let half = vec![0xee; (range.len() / 2) as usize];
        // A file that is gone has nothing to tear.
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
