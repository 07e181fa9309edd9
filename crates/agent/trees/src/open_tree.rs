//! One delegated tree that is open: its index, its files' data, and its directory in the global store.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use concurrency::{Mutex, RwLock};
use delegation::{
    BelowState, DataPlace, DelegatedTree, DelegationSettings, FilesBelow, NodeKind, NodeNumber, NodeState, StoreTree,
};
use durable::sync_directory;
use global_store::{Access, StoreFile};
use namespace::{AnchorFor, Caller, FileAttributes, FileSystemSpace, Inode, KnownSince, Names, Namespace};
use rustix::io::Errno;
use types::{HasErrno, Identity, Step};

use crate::ahead::LastDirectory;
use crate::change_times::ChangeTimes;
use crate::files::TreeFiles;
use crate::limits;
use crate::noted_waiting::NotedWaiting;
use crate::reading::{DirectoryReads, HasData, path_below, xattrs_below};
use crate::record::TreeRecord;
use crate::waiting::WaitingNames;

/// Names in the directory of a tree.
pub(crate) const LOG: &str = "log";
pub(crate) const DATA: &str = "data";

/// A delegated tree.
pub struct OpenTree {
    /// Index and log.
    pub tree: DelegatedTree,
    /// Data of the regular files.
    pub files: TreeFiles,
    /// The tree's directory in the global store.
    pub root: Arc<Inode>,
    /// Identity of that directory.
    pub identity: Identity,
    directory: PathBuf,
    below: Arc<StoreBelow>,
    pub(crate) store: Arc<StoreTree>,
    pub(crate) common: Arc<Common>,
    /// Path of the directory below the accelerated directory, as the record has it.
    pub(crate) recorded_path: PathBuf,
    /// Nodes that could not be brought to the global store.
    pub(crate) waiting: Mutex<WaitingNames>,
    /// Sequence up to which the log survives a crash of the machine.
    synced: AtomicU64,
    pub(crate) changes: Mutex<ChangeTimes>,
    /// The number of names that wait, as the directory says.
    pub(crate) noted_waiting: Mutex<NotedWaiting>,
    /// Files of a tree that was given back, as they are in the global store.
    lowered: Mutex<HashMap<NodeNumber, Arc<Inode>>>,
    /// Whether the directory existed before.
    is_leased: bool,
    /// Nodes of files for which the global store answers, as far as they were looked up.
    outside: Mutex<HashMap<Identity, NodeNumber>>,
    /// Directory of the last file that was copied from the global store.
    pub(crate) last_directory: LastDirectory,
    /// Directories that are being read from the global store.
    pub(crate) reading: DirectoryReads,
}

/// Files of the global store, as a tree asks for them.
struct StoreBelow {
    namespace: Arc<dyn Namespace>,
    root: Arc<Inode>,
    /// Whether the root's name was made durable, by this opening of the tree.
    has_durable_root: AtomicBool,
    /// Taken away at the end of the tree, which holds this.
    tree: RwLock<Option<(DelegatedTree, TreeFiles)>>,
}

impl FilesBelow for StoreBelow {
    fn open(&self, node: NodeNumber, access: Access) -> io::Result<Box<dyn StoreFile>> {
        // The tree asks for places under its own lock.
        let tree = self.tree.read().as_ref().map(|(tree, _)| tree.share()).ok_or(Errno::STALE)?;
        let state = tree.state(node).ok_or(Errno::STALE)?;
        let BelowState::At(copy) = &state.below else { return Err(Errno::NOENT.into()) };
        let identity = copy.identity.as_ref().ok_or(Errno::NOENT)?;
        // Not every store finds a file by its identity alone.
        let hint = path_below(&*self.namespace, (&tree, &self.root), node);
        let found = self.namespace.find(identity, &hint, KnownSince::InUse)?.ok_or(Errno::NOENT)?;
        self.namespace.anchor(&found, AnchorFor::Any)?.open(access)
    }

    fn sync_root(&self) -> io::Result<()> {
        if self.has_durable_root.load(Ordering::Acquire) {
            return Ok(());
        }
        let synced = self.sync_directory(&self.root).and_then(|()| match self.parent()? {
            Some(parent) => self.sync_directory(&parent),
            None => Ok(()),
        });
        synced.step("sync the name of a delegated directory in the global store")?;
        self.has_durable_root.store(true, Ordering::Release);
        Ok(())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        self.namespace.space()
    }

    fn new_place(&self) -> DataPlace {
        self.tree.read().as_ref().map_or(DataPlace::None, |(_, files)| files.new_place())
    }

    fn return_place(&self, place: DataPlace) {
        self.tree.read().iter().for_each(|(_, files)| files.return_place(place));
    }
}

impl StoreBelow {
    fn sync_directory(&self, directory: &Inode) -> io::Result<()> {
        self.namespace.open_directory(&Caller::own(), directory)?.sync()
    }

    /// Returns the directory that has the root's name; `None` if the root is gone.
    fn parent(&self) -> io::Result<Option<Inode>> {
        let Some(path) = self.namespace.path_of(&self.root) else { return Ok(None) };
        let mut above = path.parent().into_iter().flatten();
        above.try_fold(self.namespace.root()?, |at, name| Ok(self.namespace.lookup(&at, name)?.inode)).map(Some)
    }
}

/// Surroundings of all trees of one accelerated directory, with sums of the work for the global store since the start.
#[derive(Default)]
pub(crate) struct Common {
    /// Tells whether the agent has data of a file that the global store lacks. Not set: it has none.
    pub has_data: OnceLock<Arc<HasData>>,
    /// Regular files whose content was copied, as often as it was.
    pub files: AtomicU64,
    /// Bytes of their content.
    pub bytes: AtomicU64,
    /// Microseconds in which a tree was applied.
    pub busy_us: AtomicU64,
}

impl OpenTree {
    /// Opens the tree in `directory` of the burst buffer, or begins one there.
    pub fn open(
        namespace: &Arc<dyn Namespace>,
        directory: PathBuf,
        record: &TreeRecord,
        root: Inode,
        common: &Arc<Common>,
    ) -> io::Result<OpenTree> {
        let log = delegation::log::MountedLogDirectory::new(directory.join(LOG))?;
        let root = Arc::new(root);
        let below = Arc::new(StoreBelow {
            namespace: Arc::clone(namespace),
            root: Arc::clone(&root),
            has_durable_root: AtomicBool::new(false),
            tree: RwLock::new(None),
        });
        let settings = DelegationSettings {
            log_file_bytes: limits::LOG_FILE_BYTES,
            root_ino: root.ino(),
            ..DelegationSettings::default()
        };
        let state = state_of(&**namespace, &root, record.leased)?;
        let theirs: Arc<dyn FilesBelow> = Arc::clone(&below) as _;
        let (tree, report) = DelegatedTree::open(Box::new(log), theirs, settings, state)?;
        if let Some(damage) = &report.damage {
            tracing::error!(?damage, tree = %directory.display(), "the name log of a delegated tree is damaged");
        }
        let (files, found) = TreeFiles::open(&directory.join(DATA), tree.share())?;
        if found.returned > 0 {
            let (files, tree) = (found.returned, directory.display());
            tracing::warn!(files, %tree, "a crash has taken files from the pack, which are as they were before");
        }
        for node in &found.lost {
            tracing::error!(node = node.0, tree = %directory.display(), "the data of a file is lost");
        }
        *below.tree.write() = Some((tree.share(), files.clone()));
        let store = StoreTree { namespace: Arc::clone(namespace), root: Arc::clone(&root), agent: record.mark.clone() };
        let changes = Mutex::new(ChangeTimes::new(tree.changes(), tree.pending_len() > 0));
        let (synced, lowered) = (AtomicU64::new(0), Mutex::default());
        let common = Arc::clone(common);
        let (identity, store) = (record.identity.clone(), Arc::new(store));
        let (recorded_path, waiting) = (record.path.clone(), Mutex::default());
        Ok(OpenTree {
            tree,
            files,
            root,
            identity,
            directory,
            below,
            store,
            common,
            recorded_path,
            waiting,
            synced,
            changes,
            noted_waiting: Mutex::new(NotedWaiting::Unknown),
            lowered,
            is_leased: record.leased,
            outside: Mutex::default(),
            last_directory: LastDirectory::default(),
            reading: DirectoryReads::default(),
        })
    }

    /// Returns the question whether the agent has data of a file that the global store lacks.
    pub(crate) fn has_data(&self) -> Option<Arc<HasData>> {
        self.common.has_data.get().cloned()
    }

    /// Whether the directory existed before the tree, so that the global store may have names of it that the tree has not.
    pub(crate) fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Notes the node of a file for which the global store answers.
    pub(crate) fn note_outside(&self, file: &Identity, node: NodeNumber) {
        self.outside.lock().insert(file.clone(), node);
    }

    /// Returns a node with a name of a file for which the global store answers; `None` if it was not looked up in this tree, or has
    /// no name left in it.
    pub(crate) fn outside_node(&self, file: &Identity) -> Option<NodeNumber> {
        let noted = self.outside.lock().get(file).copied()?;
        let is_named = |state: &NodeState| !state.names.is_empty() && state.data == DataPlace::Outside;
        if self.tree.state(noted).is_some_and(|state| is_named(&state)) {
            return Some(noted);
        }
        // Each name that was read is a node of its own.
        let is_of =
            |state: &NodeState| matches!(&state.below, BelowState::At(copy) if copy.identity.as_ref() == Some(file));
        let found = self.tree.states().into_iter().find(|state| is_named(state) && is_of(state))?.number;
        self.note_outside(file, found);
        Some(found)
    }

    /// Directory of the tree in the burst buffer.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Name of the tree in commands, as that of its directory.
    pub fn id(&self) -> Identity {
        id_of(&self.directory)
    }

    /// Whether the tree's directory is not in the global store any more.
    pub fn is_gone(&self) -> bool {
        match self.store.namespace.attributes(&self.root) {
            Ok(found) => found.nlink == 0,
            Err(error) => matches!(error.errno(), Some(libc::ENOENT | libc::ESTALE)),
        }
    }

    /// Makes the names in the burst buffer durable by which a new tree is found.
    pub fn sync_place(&self) -> io::Result<()> {
        let above = self.directory.ancestors().take(3);
        above.into_iter().try_for_each(sync_directory).step("sync the directory of a delegated tree")
    }

    /// Makes everything that was done so far survive a crash of the machine.
    pub fn sync(&self) -> io::Result<()> {
        let end = self.tree.log().end();
        self.files.sync()?;
        self.sync_names(end)
    }

    /// Makes names durable up to a sequence of the log. The files' data comes before.
    pub fn sync_names(&self, end: u64) -> io::Result<()> {
        self.below.sync_root()?;
        let pack = self.files.sync_pack();
        self.tree.log().sync(end)?;
        self.synced.fetch_max(end, Ordering::AcqRel);
        // Without the pack, local files stay.
        pack?;
        self.files.names_synced(end);
        Ok(())
    }

    /// Whether the log has records that a crash of the machine may lose.
    pub fn is_unsynced(&self) -> bool {
        self.tree.log().end() > self.synced.load(Ordering::Acquire)
    }

    /// Whether the global store has everything, and nobody writes.
    pub fn is_settled(&self) -> bool {
        // Whoever asks for writers settles what was closed.
        self.files.writers().is_empty() && self.tree.pending_len() == 0
    }

    /// Ends the use of the tree, whose directory in the burst buffer may be removed then.
    pub fn close(&self) {
        *self.below.tree.write() = None;
        self.files.close();
    }
}

impl OpenTree {
    /// Ends the delegation if the global store has everything and nobody writes. Returns whether it has ended.
    pub fn give_up(&self) -> bool {
        self.files.end_writing(|| {
            let is_frozen = self.tree.freeze();
            if is_frozen {
                self.find_open();
            }
            is_frozen
        })
    }

    /// Finds the open files in the global store while they have their names: who has them open may use them when they are removed.
    fn find_open(&self) {
        for node in self.files.open_nodes() {
            if let Err(error) = self.lower(node) {
                tracing::warn!(%error, node = node.0, "an open file was not found in the global store");
            }
        }
    }

    /// Ends the delegation, whatever the global store lacks. Returns false if a file is open for writing.
    pub fn abandon(&self) -> bool {
        self.files.end_writing(|| {
            self.tree.abandon();
            true
        })
    }

    /// Whether the tree was given back: the global store answers from now on.
    pub fn is_returned(&self) -> bool {
        self.files.has_ended()
    }

    /// Returns the file of the global store that a node of a tree has become; `None` while the tree is delegated, and for a node
    /// without a name.
    pub fn lowered(&self, node: NodeNumber) -> io::Result<Option<Arc<Inode>>> {
        if self.is_returned() { self.lower(node) } else { Ok(None) }
    }

    fn lower(&self, node: NodeNumber) -> io::Result<Option<Arc<Inode>>> {
        if node == NodeNumber::ROOT {
            return Ok(Some(Arc::clone(&self.root)));
        }
        if let Some(known) = self.lowered.lock().get(&node) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(BelowState::At(copy)) = self.tree.state(node).map(|state| state.below) else { return Ok(None) };
        let Some(identity) = copy.identity.as_ref() else { return Ok(None) };
        let namespace = &self.store.namespace;
        let inside = self.tree.inode(node).and_then(|inode| self.tree.path_of(&inode)).unwrap_or_default();
        let hint = namespace.path_of(&self.root).unwrap_or_default().join(inside);
        let inode = Arc::new(namespace.find(identity, &hint, KnownSince::InUse)?.ok_or(Errno::STALE)?);
        self.lowered.lock().insert(node, Arc::clone(&inode));
        Ok(Some(inode))
    }
}

impl OpenTree {
    /// Notes the file of the global store that a node has become, if it is that.
    pub(crate) fn note_lowered(&self, node: NodeNumber, there: Inode) -> io::Result<()> {
        let Some(BelowState::At(copy)) = self.tree.state(node).map(|state| state.below) else { return Ok(()) };
        self.store.namespace.identify(&there, &|_| true)?;
        if copy.identity.as_ref() == Some(there.identity()) {
            self.lowered.lock().insert(node, Arc::new(there));
        }
        Ok(())
    }
}

/// Returns the name in commands of the tree in this directory.
pub(crate) fn id_of(directory: &Path) -> Identity {
    let name = directory.file_name().unwrap_or_default();
    let id = name.to_str().and_then(Identity::from_hex);
    id.unwrap_or_else(|| Identity::new(*b"unnamed").expect("7 bytes"))
}

/// Returns the state of a directory that becomes the root of a tree.
fn state_of(namespace: &dyn Namespace, root: &Inode, is_leased: bool) -> io::Result<NodeState> {
    let found: FileAttributes = namespace.attributes(root)?;
    let dress = ((found.mode & 0o7777) as u16, found.uid, found.gid);
    let mut state = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, dress, found.ctime.into());
    (state.atime, state.mtime) = (found.atime.into(), found.mtime.into());
    state.xattrs = xattrs_below(namespace, root)?.carried;
    if is_leased {
        (state.data, state.size) = (DataPlace::BelowOnly, found.nlink.into());
    }
    Ok(state)
}

impl OpenTree {
    /// Whether the root has no names.
    pub fn is_bare(&self) -> io::Result<bool> {
        let mut bare = true;
        let root = self.tree.root()?;
        self.tree.open_directory(&Caller::own(), &root)?.read(0, &mut |entry| {
            bare &= entry.name == "." || entry.name == "..";
            bare
        })?;
        Ok(bare)
    }
}
