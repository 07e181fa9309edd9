//! All trees of one accelerated directory.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use concurrency::{Instant, Mutex, RwLock};
use config::Policy;
use data_store::{ReadyObserver, RemovalObserver};
use delegation::{ApplyReport, NodeNumber, node_of_key};
use namespace::{FileAttributes, Inode, Namespace};
use rustix::io::Errno;
use types::{Identity, Step, reported};

use crate::applying::Applying;
use crate::background;
use crate::holder::Holder;
use crate::lease::MetDirectories;
use crate::left_files::OpenLeft;
use crate::limits;
use crate::mark::{self, UnmarkedDirectories};
use crate::open_tree::{Common, OpenTree};
use crate::reading::HasData;
use crate::unopened::Unopened;
use crate::waiting::failure;

/// Policy of a path below the accelerated directory.
pub type PolicyOf = Box<dyn Fn(&Path) -> Arc<Policy> + Send + Sync>;

/// Callback for the end of a delegation. It makes the kernel forget what it trusts, and waits for requests that are under way.
pub type ReturnObserver = Box<dyn Fn() + Send + Sync>;

/// Surroundings of the trees.
pub struct TreesSettings {
    /// Names and attributes of the global store.
    pub namespace: Arc<dyn Namespace>,
    /// Directory of all trees in the burst buffer; made with the first tree.
    pub directory: PathBuf,
    /// This agent's name, which no other agent has.
    pub agent: String,
    /// Policies of directories.
    pub policy: PolicyOf,
    /// Asks the agent that holds a directory to give it back, if that can be asked from here. Returns when it has answered.
    pub recall: Arc<dyn Fn(&Holder) + Send + Sync>,
    /// How long a lookup waits for another agent to give back a directory.
    pub remote_wait: Duration,
    /// Whether directories may become trees, and trees are applied in the background.
    pub background: bool,
    /// Whether files of trees may have windows.
    pub windows: bool,
}

/// The delegated trees of one accelerated directory.
pub struct Trees {
    pub(crate) settings: TreesSettings,
    all: RwLock<All>,
    /// Number of open trees, for calls that have nothing to do if there are none.
    count: AtomicUsize,
    /// Users for whom the store was found to keep what it is told, and those for whom it was not.
    pub(crate) tried: Mutex<HashMap<u32, bool>>,
    pub(crate) common: Arc<Common>,
    /// Called before each removal of a local file.
    removals: OnceLock<Arc<RemovalObserver>>,
    ready: OnceLock<Arc<ReadyObserver>>,
    /// Called after a tree was given back, before others may change what was in it.
    returns: OnceLock<ReturnObserver>,
    /// Directories that no other agent has.
    pub(crate) unmarked: UnmarkedDirectories,
    /// Directories that programs may have something of.
    pub(crate) met: MetDirectories,
    /// Whether the global store had little room, and when that was asked.
    pub(crate) store_room: Mutex<Option<(bool, Instant)>>,
    /// Whether another agent is being asked for a directory.
    is_recalling: Arc<AtomicBool>,
    /// Whether no directory becomes a tree any more.
    pub(crate) quiet: AtomicBool,
    /// Trees of the burst buffer that could not be opened.
    pub(crate) unopened: Mutex<Vec<Unopened>>,
    /// Those of them into whose files come records of windows.
    pub(crate) open_left: OpenLeft,
}

#[derive(Default)]
struct All {
    by_log: HashMap<[u8; 16], Arc<OpenTree>>,
    /// Inode numbers of roots below.
    roots: HashSet<u64>,
}

impl Trees {
    /// Opens the trees that an earlier agent left in the burst buffer. [`begin_work`](Trees::begin_work) is to follow.
    pub fn open(settings: TreesSettings) -> io::Result<Arc<Trees>> {
        let trees = Arc::new(Trees {
            settings,
            all: RwLock::default(),
            count: AtomicUsize::new(0),
            tried: Mutex::default(),
            common: Arc::default(),
            removals: OnceLock::new(),
            ready: OnceLock::new(),
            returns: OnceLock::new(),
            unmarked: UnmarkedDirectories::default(),
            met: MetDirectories::default(),
            store_room: Mutex::default(),
            is_recalling: Arc::default(),
            quiet: AtomicBool::new(false),
            unopened: Mutex::default(),
            open_left: OpenLeft::default(),
        });
        let listed = match std::fs::read_dir(&trees.settings.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            listed => Some(listed.step("list the delegated trees")?),
        };
        for entry in listed.into_iter().flatten() {
            trees.open_left(entry?.path())?;
        }
        if trees.settings.background {
            trees.lease_root().step("begin with the accelerated directory")?;
        }
        Ok(trees)
    }

    /// Begins to bring trees to the global store by themselves, if the settings say so. Before, what killed agents left in windows comes
    /// into the files: nobody else may see a file without it.
    pub fn begin_work(self: &Arc<Trees>) -> io::Result<()> {
        self.open_left.lock().clear();
        if self.settings.background { background::start(self) } else { Ok(()) }
    }

    /// Sets the callback for the end of a delegation. Only the first counts.
    pub fn observe_returns(&self, tell: ReturnObserver) {
        _ = self.returns.set(tell);
    }

    /// Sets the question whether the agent has data of a file that the global store lacks. Only the first counts.
    pub(crate) fn observe_data(&self, has_data: Arc<HasData>) {
        _ = self.common.has_data.set(has_data);
    }

    /// Asks the holder of a mark for its directory, unless somebody is asked already. Does not wait.
    fn recall(&self, mark: &str) {
        let Some(holder) = Holder::parse(mark) else { return };
        if self.is_recalling.swap(true, Ordering::AcqRel) {
            return;
        }
        let (recall, is_recalling) = (Arc::clone(&self.settings.recall), Arc::clone(&self.is_recalling));
        let asked = concurrency::spawn("recall", move || {
            recall(&holder);
            is_recalling.store(false, Ordering::Release);
        });
        if asked.is_err() {
            self.is_recalling.store(false, Ordering::Release);
        }
    }

    /// Waits until no other agent has a directory. Errors: as for [`UnmarkedDirectories::check`].
    pub(crate) fn wait_for_mark(&self, directory: &Inode, found: &FileAttributes) -> io::Result<()> {
        let (own, most) = (&self.settings.agent, self.settings.remote_wait);
        let recall = |mark: &str| self.recall(mark);
        self.unmarked.check(&*self.settings.namespace, (directory, found), (own, &recall), most)
    }

    /// Sets the callback for removals of local files. Only the first counts.
    pub(crate) fn observe_removals(&self, tell: RemovalObserver) {
        _ = self.removals.set(Arc::new(tell));
        self.all().iter().for_each(|tree| self.tell_files(tree));
    }

    /// Sets the callback for local files that are ready for new files. Only the first counts.
    pub(crate) fn observe_ready(&self, tell: ReadyObserver) {
        _ = self.ready.set(Arc::new(tell));
        self.all().iter().for_each(|tree| self.tell_files(tree));
    }

    fn tell_files(&self, tree: &OpenTree) {
        if let Some(tell) = self.removals.get().cloned() {
            tree.files.observe_removals(Box::new(move |version| tell(version)));
        }
        if let Some(tell) = self.ready.get().cloned() {
            tree.files.observe_ready(Box::new(move |version, atime, file| tell(version, atime, file)));
        }
    }

    pub(crate) fn add(&self, tree: OpenTree) -> Arc<OpenTree> {
        self.tell_files(&tree);
        if self.settings.background {
            tree.files.settle_later();
        }
        if self.settings.windows {
            tree.files.allow_windows();
        }
        let tree = Arc::new(tree);
        let mut all = self.all.write();
        all.roots.insert(tree.root.ino());
        all.by_log.insert(*tree.tree.log().id(), Arc::clone(&tree));
        self.count.store(all.by_log.len(), Ordering::Release);
        tree
    }

    /// Ends a tree that was given back, or whose directory is gone: nothing of it stays in the burst buffer.
    pub(crate) fn end(&self, tree: &Arc<OpenTree>) -> io::Result<()> {
        // Programs may still have something of it.
        self.met.meet(tree.root.ino());
        {
            let mut all = self.all.write();
            let is_held = tree.is_returned() && tree.tree.is_held();
            all.by_log.retain(|_, other| is_held || !Arc::ptr_eq(other, tree));
            all.roots = all.by_log.values().filter(|tree| !tree.is_returned()).map(|tree| tree.root.ino()).collect();
            self.count.store(all.by_log.len(), Ordering::Release);
        }
        tree.close();
        if let Err(error) = std::fs::remove_dir_all(tree.directory()) {
            // The next start removes what is left: the directory has no mark, and nothing waits.
            tracing::warn!(%error, tree = %tree.directory().display(), "a delegated tree stays in the burst buffer");
        }
        Ok(())
    }

    /// Gives a tree back: the global store gets everything and answers from then on. Returns why that was not possible, or `None`.
    /// Others may change what was in the tree once the mark is gone. `waits`: returns no earlier; not for a thread that serves
    /// requests.
    pub(crate) fn give_back(
        self: &Arc<Trees>,
        tree: &Arc<OpenTree>,
        how: &Applying<'_>,
        waits: bool,
    ) -> io::Result<Option<ApplyReport>> {
        let mut last = (0, ApplyReport::default());
        for _ in 0..limits::GIVE_BACK_TRIES {
            let waiting = tree.tree.pending_len();
            let report = tree.apply(how, None)?;
            if !report.stuck.is_empty() || report.interrupted {
                return Ok(Some(report));
            }
            // What was changed meanwhile takes another turn.
            if tree.give_up() {
                tree.tree.end_exclusivity();
                let (trees, tree) = (Arc::clone(self), Arc::clone(tree));
                let ending = concurrency::spawn_joined("give back", move || trees.let_go(&tree))?;
                return if waits { ending.join().map_or(Ok(None), |ended| ended.map(|()| None)) } else { Ok(None) };
            }
            last = (waiting, report);
        }
        // Programs go on changing it, or have a file open.
        let (waiting, last) = last;
        if waiting > 0 && tree.tree.pending_len() > 0 && last.applied + last.removed + last.changed == 0 {
            let error = reported(libc::EAGAIN, "names wait that were neither brought nor refused");
            return Ok(Some(ApplyReport { stuck: vec![failure(&error)], ..last }));
        }
        Ok(Some(ApplyReport::default()))
    }

    /// Makes the kernel forget what it trusts of trees that are not held exclusively any more.
    pub(crate) fn tell_return(&self) {
        self.returns.get().into_iter().for_each(|tell| tell());
    }

    /// Lets others have a tree that was given back.
    fn let_go(&self, tree: &Arc<OpenTree>) -> io::Result<()> {
        self.tell_return();
        let forgotten = tree.forget_count_below().and_then(|()| mark::remove(&*self.settings.namespace, &tree.root));
        let done = forgotten.and_then(|()| self.end(tree));
        done.inspect_err(|error| tracing::warn!(%error, "a delegated tree could not be given back"))
    }

    /// Whether there are no trees.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of open trees.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns all trees that are delegated.
    pub(crate) fn all(&self) -> Vec<Arc<OpenTree>> {
        self.all.read().by_log.values().filter(|tree| !tree.is_returned()).cloned().collect()
    }

    /// Forgets trees that were given back, once the kernel has no inode of them.
    pub(crate) fn forget_returned(&self) {
        let is_over = |tree: &OpenTree| tree.is_returned() && !tree.tree.is_held();
        if self.all.read().by_log.values().any(|tree| is_over(tree)) {
            let mut all = self.all.write();
            all.by_log.retain(|_, tree| !is_over(tree));
            self.count.store(all.by_log.len(), Ordering::Release);
        }
    }

    /// Returns the tree and the node that a provisional identity names.
    pub(crate) fn of_identity(&self, identity: &Identity) -> Option<(Arc<OpenTree>, NodeNumber)> {
        let (log, number) = node_of_key(identity)?;
        Some((self.all.read().by_log.get(&log)?.clone(), number))
    }

    /// Returns the tree and the node of an inode; `None` for one of the namespace below. `ESTALE` if the tree is forgotten.
    pub(crate) fn of(&self, inode: &Inode) -> io::Result<Option<(Arc<OpenTree>, NodeNumber)>> {
        match self.of_identity(inode.key()) {
            None if node_of_key(inode.key()).is_some() => Err(Errno::STALE.into()),
            found => Ok(found),
        }
    }

    /// Returns the tree whose root an inode of the namespace below is.
    pub(crate) fn rooted_at(&self, inode: &Inode) -> io::Result<Option<Arc<OpenTree>>> {
        if self.is_empty() || !self.all.read().roots.contains(&inode.ino()) {
            return Ok(None);
        }
        self.settings.namespace.identify(inode, &|_| true)?;
        Ok(self
            .all
            .read()
            .by_log
            .values()
            .find(|tree| !tree.is_returned() && tree.identity == *inode.identity())
            .cloned())
    }

    /// Returns the path of a tree's root below the accelerated directory, as far as known.
    pub(crate) fn path_of(&self, tree: &OpenTree) -> PathBuf {
        self.settings.namespace.path_of(&tree.root).unwrap_or_default()
    }

    /// Returns the path of a tree's root as last known, if it is gone as well.
    pub(crate) fn last_path_of(&self, tree: &OpenTree) -> PathBuf {
        if tree.is_gone() { tree.recorded_path.clone() } else { self.path_of(tree) }
    }

    /// Returns the policy of a tree.
    pub(crate) fn policy_of(&self, tree: &OpenTree) -> Arc<Policy> {
        (self.settings.policy)(&self.path_of(tree))
    }

    /// Makes everything in all trees survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let trees: Vec<_> = self.all().into_iter().map(|tree| (tree.tree.log().end(), tree)).collect();
        // One burst buffer has the data of all.
        trees.first().map_or(Ok(()), |(_, tree)| tree.files.sync())?;
        trees.iter().try_for_each(|(end, tree)| tree.sync_names(*end))
    }

    /// Gives back the trees of which the global store has everything. Called when nobody uses them any more.
    pub(crate) fn give_back_settled(self: &Arc<Trees>) {
        self.quiet.store(true, Ordering::Release);
        for tree in self.all().into_iter().filter(|tree| tree.is_settled()) {
            if let Err(error) = self.give_back(&tree, &Applying::by(&self.policy_of(&tree)), true) {
                tracing::warn!(%error, "a delegated tree could not be given back");
            }
        }
    }
}
