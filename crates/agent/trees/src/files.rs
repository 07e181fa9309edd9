//! Data of the regular files of one delegated tree: each in a local file of the burst buffer, which the kernel reads and writes
//! without the agent.
//!
//! The tree says which local file has a node's data before an open is answered. So the death of the agent loses nothing that the
//! kernel has written since: the next opening finds it by the time of the local file.
//!
//! # Invariants
//!
//! 1. A local file has the data of one node, and its number is never given again.
//! 2. Nobody can write a local file that the tree does not name, except while it is being made.
//! 3. While nobody can write a local file, its time is [`UNWRITTEN`](directory::UNWRITTEN) or the one that the tree has, and its
//!    size is the one that the tree has.
//! 4. While somebody can, each write makes the time another than [`UNWRITTEN`](directory::UNWRITTEN).
//!
//! # Locks
//!
//! In this order: the making of one local file, the use of one open file, the tree. The table's locks are taken alone.

mod contents;
mod dating;
mod directory;
mod dropping;
mod handle;
mod keeper;
pub mod limits;
mod node;
mod opening;
mod packing;
mod packs;
mod table;
mod window;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, RwLock};
use data_store::{FileState, OpenData, OpenHow, Overlay, ReadyObserver, RemovalObserver, Residency};
use delegation::{Contents, DataPlace, DelegatedTree, NodeNumber, NodeState, NotedContent};
use global_store::posix::lease;
use namespace::Names;
use types::Step;

pub(crate) use directory::{name_of as local_name, pack_of};
pub use opening::FilesReport;
pub(crate) use opening::is_unsettled;
pub use packing::PackReport;
pub(crate) use packs::Packs;

use contents::LocalContents;
use directory::LocalDirectory;
use handle::TreeHandle;
use node::{OpenNode, Place};
use table::OpenNodes;

/// The data of the regular files of one tree, cheap to clone. All methods may be called from any thread.
#[derive(Clone)]
pub struct TreeFiles {
    shared: Arc<Shared>,
}

/// Use that a tree's files make of the burst buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesUsage {
    /// Number of files in the burst buffer, packed ones among them.
    pub files: u64,
    /// Number of packed files.
    pub packed: u64,
    /// Number of open files.
    pub open: u64,
    /// Number of open file descriptions.
    pub handles: u64,
}

struct Shared {
    tree: DelegatedTree,
    directory: Arc<LocalDirectory>,
    table: OpenNodes,
    /// Files of which the kernel has, or had, a handle: the longest unseen first.
    mapped: Mutex<VecDeque<NodeNumber>>,
    /// Whether closed files are settled by the keeper, and not by who closes them.
    settles_later: AtomicBool,
    /// Whether the keeper is going to look at them.
    is_looking: AtomicBool,
    /// Whether files may have windows.
    has_windows: AtomicBool,
    /// Closed files that may be packed: the longest unseen first.
    closed: Mutex<VecDeque<NodeNumber>>,
    /// Whether there are more of them than are remembered.
    has_more_closed: AtomicBool,
    /// Whether nothing is written here any more: the global store answers. An open for writing holds this until it is counted.
    ended: RwLock<bool>,
}

impl Shared {
    fn place(&self) -> Place<'_> {
        Place { tree: &self.tree, directory: &self.directory }
    }

    fn sync_log(&self) -> io::Result<()> {
        self.tree.sync().step("sync the names of a delegated tree")
    }

    /// Counts one handle less. The last one drops the data of a file without a name.
    fn leave(&self, open: &OpenNode) {
        if !self.table.leave(open) {
            return self.look_again(open);
        }
        let (used, content) = (std::mem::take(&mut *open.using.lock()), self.tree.content(open.number));
        match (used.local, used.packed, content) {
            (Some(_), _, Some(NotedContent { has_name: true, size, .. })) => {
                if used.may_pack && size <= limits::PACKED_BYTES_MAX {
                    self.may_pack(open.number);
                }
            }
            (_, _, Some(NotedContent { has_name: true, .. })) => {}
            (Some(local), _, _) => self.place().drop_file(local.number),
            (None, Some(packed), _) => self.place().drop_data(DataPlace::Packed(packed.number)),
            // The last name went while somebody looked at the file who did not open it in the end.
            (None, None, content) if !used.is_dropped => {
                let left = content.map(|content| content.place).or(used.left);
                left.into_iter().for_each(|place| self.place().drop_data(place));
            }
            (None, None, _) => {}
        }
    }

    /// Releases the kernel's handle of a file that is not mapped any more.
    fn look_again(&self, open: &OpenNode) {
        if open.is_unmapped_now(self.place()) {
            self.leave(open);
        }
    }

    /// Notes that the kernel has, or may have, a handle of a file. The keeper looks later; who closes faster looks at those that
    /// were noted first. Often the kernel has only not finished the close yet.
    fn keep_mapped(self: &Arc<Shared>, node: NodeNumber) {
        let waiting = {
            let mut mapped = self.mapped.lock();
            mapped.push_back(node);
            mapped.len()
        };
        let is_looked_at =
            self.settles_later() && (self.is_looking.swap(true, Ordering::AcqRel) || keeper::look_soon(self));
        if !is_looked_at || waiting > limits::MAPPED_WAITING {
            self.look_at_mapped(limits::MAPPED_LOOKS);
        }
    }

    /// Looks at all closed files that may be mapped. Returns whether some are.
    fn look_at_all(&self) -> bool {
        self.is_looking.store(false, Ordering::Release);
        let count = self.mapped.lock().len();
        self.look_at_mapped(count);
        !self.mapped.lock().is_empty()
    }

    fn look_at_mapped(&self, count: usize) {
        for _ in 0..count {
            let Some(first) = self.mapped.lock().pop_front() else { return };
            let Some(open) = self.table.get(first) else { continue };
            self.look_again(&open);
            if open.is_mapped() {
                self.mapped.lock().push_back(first);
            }
        }
    }

    fn settles_later(&self) -> bool {
        self.settles_later.load(Ordering::Relaxed)
    }

    /// Returns an open file; `None` if neither programs nor the kernel have it.
    fn opened(&self, node: NodeNumber) -> Option<Arc<OpenNode>> {
        let open = self.table.get(node)?;
        if !open.is_unmapped_now(self.place()) {
            return Some(open);
        }
        self.leave(&open);
        self.table.get(node)
    }
}

impl TreeFiles {
    /// Opens the data directory of a tree, which is made if it is absent. What a killed agent's programs have written comes into
    /// the tree, and local files that no node refers to are removed. A directory is open once at a time. The process ignores SIGIO from
    /// then on.
    ///
    /// Errors: those of the directory and of the tree's log.
    pub fn open(directory: &Path, tree: DelegatedTree) -> io::Result<(TreeFiles, FilesReport)> {
        // An open that meets the question whether a file is mapped sends it.
        lease::ignore_signals();
        let (directory, found) = LocalDirectory::open(directory)?;
        let directory = Arc::new(directory);
        let report = opening::agree(&directory, found, &tree)?;
        let shared = Shared {
            tree,
            directory,
            table: OpenNodes::new(),
            mapped: Mutex::default(),
            settles_later: AtomicBool::new(false),
            is_looking: AtomicBool::new(false),
            has_windows: AtomicBool::new(false),
            closed: Mutex::default(),
            has_more_closed: AtomicBool::new(report.files > report.packed),
            ended: RwLock::new(false),
        };
        Ok((TreeFiles { shared: Arc::new(shared) }, report))
    }

    /// Chooses the place of a new file's data, which the tree then logs with the file; [`DataPlace::None`] if none is ready.
    pub fn new_place(&self) -> DataPlace {
        self.shared.directory.reserve().map_or(DataPlace::None, DataPlace::Replica)
    }

    /// Takes back the place of a file that was not made.
    pub fn return_place(&self, place: DataPlace) {
        if let DataPlace::Replica(number) = place {
            self.shared.directory.return_reserved(number);
        }
    }

    /// Ends the use of the directory, which may be removed then.
    pub fn close(&self) {
        self.shared.directory.close();
    }

    /// Calls `tell` with the number of each local file that is about to be removed. Only the first observer counts.
    pub fn observe_removals(&self, tell: RemovalObserver) {
        _ = self.shared.directory.removals.set(tell);
    }

    /// Calls `tell` with the number and a descriptor of each local file that is ready for a new file. Only the first observer counts.
    pub fn observe_ready(&self, tell: ReadyObserver) {
        _ = self.shared.directory.readied.set(tell);
    }

    /// Lets files be settled some milliseconds after their last close, or when somebody asks about them. Nothing is lost if the agent
    /// dies before: the next opening settles them.
    pub fn settle_later(&self) {
        self.shared.settles_later.store(true, Ordering::Relaxed);
    }

    /// Lets files have windows. A file that may get one is opened so that each of its writes is a request, which costs small files more than
    /// a window gives them.
    pub fn allow_windows(&self) {
        self.shared.has_windows.store(true, Ordering::Relaxed);
    }

    /// Opens the data of a regular file, as [`DataStore::open`](data_store::DataStore::open) does. A file whose data only the
    /// global store has is copied first.
    ///
    /// Errors: `ENOENT` if the node is gone; `ESTALE` if writing has ended; `EIO` if the local file is gone; `EINTR` if
    /// `interrupted` returns true during the copy; those
    /// of the log, the burst buffer and the store.
    pub fn open_data(
        &self,
        node: NodeNumber,
        how: &OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(TreeHandle::open(&self.shared, node, how, interrupted)?))
    }

    /// Sets the length of a file, in bytes. Errors: as for [`open_data`](TreeFiles::open_data), and those of truncate(2).
    pub fn set_len(&self, node: NodeNumber, len: u64) -> io::Result<()> {
        let how = OpenHow { write: true, truncate: len == 0, ..OpenHow::default() };
        let handle = TreeHandle::open(&self.shared, node, &how, &|| false)?;
        if len == 0 { Ok(()) } else { handle.set_len(len) }
    }

    /// Returns what `stat` must show instead of the tree's size, blocks, mtime and ctime that were read before: the file may have been
    /// closed since. `None` if the node is gone.
    pub fn overlay(&self, node: NodeNumber) -> io::Result<Option<Overlay>> {
        let open = self.shared.opened(node);
        let using = open.as_ref().map(|open| open.using.lock());
        let Some(content) = self.shared.tree.content(node) else { return Ok(None) };
        if let Some(written) = using.map_or(Ok(None), |using| using.overlay(&content))? {
            return Ok(Some(written));
        }
        let NotedContent { size, mtime, ctime, place, .. } = content;
        // Large files may have holes, which programs look for.
        let local = match place {
            DataPlace::Replica(number) if size > limits::WITHOUT_HOLES_BYTES => self.shared.directory.stat(number)?,
            _ => None,
        };
        let blocks = match (local, place) {
            (Some(stat), _) => stat.st_blocks as u64,
            // As the local file had them.
            (None, DataPlace::Packed(_)) if size > limits::WITHOUT_HOLES_BYTES => size.div_ceil(4096) * 8,
            (None, _) => size.div_ceil(512),
        };
        Ok(Some(Overlay { ahead: true, size, blocks, mtime, ctime, below: None }))
    }

    /// Brings size and time of what was written into the tree. Needed before the tree's times are set, and before an apply.
    pub fn settle(&self, node: NodeNumber) -> io::Result<()> {
        let Some(open) = self.shared.opened(node) else { return Ok(()) };
        open.using.lock().settle(self.shared.place(), node, false)
    }

    /// Brings size and time of everything that was written into the tree. Returns the first error, after trying all.
    pub fn settle_all(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        for open in self.shared.table.all() {
            self.shared.look_again(&open);
            let settled = open.using.lock().settle(self.shared.place(), open.number, false);
            outcome = outcome.and(settled);
        }
        outcome
    }

    /// Notes that the times of a node were set in the tree: they count until the file is written again.
    pub fn times_set(&self, node: NodeNumber) -> io::Result<()> {
        if let Some(open) = self.shared.opened(node) {
            let mut using = open.using.lock();
            if using.local.is_some() {
                return using.mark(self.shared.place());
            }
        }
        match self.shared.tree.content(node).map(|content| content.place) {
            Some(DataPlace::Replica(number)) => self.shared.directory.mark(number),
            _ => Ok(()),
        }
    }

    /// Notes that the last name of a node is gone. Its data is dropped at the last close. The caller holds an inode of the node.
    pub fn unlinked(&self, node: NodeNumber) {
        let open = self.shared.table.enter(node);
        open.unlinked(self.shared.place());
        self.shared.leave(&open);
    }

    /// Drops the data of a node that the tree has dropped. Programs that have the file open keep it until they close it.
    pub fn dropped(&self, state: &NodeState) {
        let open = self.shared.table.enter(state.number);
        open.dropped(self.shared.place(), state.data);
        self.shared.leave(&open);
    }

    /// Returns the state of a file's data, with [`Residency::Clean`] for what the global store has as well.
    pub fn state(&self, node: NodeNumber) -> FileState {
        let Some(content) = self.shared.tree.content(node) else { return FileState::default() };
        let is_written_to = self.is_written_to(node);
        let residency = match content.place {
            _ if is_written_to => Residency::Dirty,
            DataPlace::BelowOnly => Residency::Absent,
            _ if content.is_pending => Residency::Queued,
            _ => Residency::Clean,
        };
        let dirty = matches!(residency, Residency::Dirty | Residency::Queued);
        FileState { residency, dirty, open: true, lost: false, pinned: false, wants_look: false }
    }

    /// Makes everything that was written survive a crash of the machine, in all trees of the burst buffer. The owner syncs the log
    /// afterwards.
    pub fn sync(&self) -> io::Result<()> {
        self.shared.directory.sync()
    }

    /// Notes that the log is durable up to this sequence. Data of nodes that had lost their last name until then is dropped now: a crash
    /// of the machine would have brought the name back.
    pub fn names_synced(&self, upto: u64) {
        self.shared.directory.names_synced(upto);
    }

    /// Ends all writing for ever, if no file is open for writing and `end` returns true. Returns whether it has ended.
    pub fn end_writing(&self, end: impl FnOnce() -> bool) -> bool {
        let mut ended = self.shared.ended.write();
        *ended |= self.writers().is_empty() && end();
        *ended
    }

    /// Whether writing has ended. Waits for an end that is under way.
    pub fn has_ended(&self) -> bool {
        *self.shared.ended.read()
    }

    /// Returns the source of the files' bytes for an apply.
    pub fn contents(&self) -> Arc<dyn Contents> {
        Arc::new(LocalContents(Arc::clone(&self.shared)))
    }

    /// Returns whether a file is open for writing, or may be mapped by a program that had it open for writing.
    pub fn is_written_to(&self, node: NodeNumber) -> bool {
        self.shared.opened(node).is_some_and(|open| open.using.lock().writers > 0)
    }

    /// Returns the files that are open for writing.
    pub fn writers(&self) -> Vec<NodeNumber> {
        self.shared.table.all().iter().for_each(|open| self.shared.look_again(open));
        let writes = |open: &Arc<OpenNode>| open.using.lock().writers > 0;
        self.shared.table.all().into_iter().filter(writes).map(|open| open.number).collect()
    }

    /// Returns the files that programs have open, or the kernel.
    pub(crate) fn open_nodes(&self) -> Vec<NodeNumber> {
        self.shared.table.all().into_iter().map(|open| open.number).collect()
    }

    /// Returns the use of the burst buffer.
    pub fn usage(&self) -> FilesUsage {
        if self.shared.settles_later() {
            // What was only just closed does not count as open.
            self.shared.table.all().iter().for_each(|open| self.shared.look_again(open));
        }
        let (open, packed) = (self.shared.table.all(), self.shared.directory.packs.len());
        FilesUsage {
            files: self.shared.directory.len() + packed,
            packed,
            open: open.len() as u64,
            handles: open.iter().map(|open| u64::from(open.handles.load(Ordering::Relaxed))).sum(),
        }
    }

    /// Returns the bytes of the files that the global store lacks changes of. Looks at each of them.
    pub fn waiting_bytes(&self) -> u64 {
        let tree = &self.shared.tree;
        let pending = tree.pending(None, usize::MAX);
        pending.iter().filter_map(|node| tree.content(node.number)).map(|content| content.size).sum()
    }

    /// Drops the local data of a file that the global store has, unless it is open. Returns whether it was dropped.
    pub fn evict(&self, node: NodeNumber) -> io::Result<bool> {
        let open = self.shared.table.enter(node);
        let evicted = open.evict(self.shared.place());
        self.shared.leave(&open);
        evicted
    }
}
