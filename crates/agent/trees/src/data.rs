//! The data store that an agent gets: trees have the data of their files, the store below has the rest.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::{Atime, Policy};
use data_store::{
    CommandOutcome, DataStore, DrainProgress, Extensions, FileChange, FileState, Keep, LocalIndex, OpenData, OpenHow,
    Overlay, Residency, StatusScope, StoreCommand, StoreObserver, StoreStatus, Stuck, WindowStore, is_interrupted,
};
use delegation::{ApplyProgress, NodeNumber};
use global_store::Anchor;
use namespace::{AnchorFor, Inode};
use rustix::io::Errno;
use types::{Fingerprint, HasErrno, Identity, NewTime, Timestamp, reported};

use crate::applying::Applying;
use crate::open_tree::OpenTree;
use crate::registry::Trees;
use crate::telling::Notice;
use crate::waiting::{failure, is_early};

/// A data store with delegated trees.
pub struct TreesData {
    pub(crate) trees: Arc<Trees>,
    pub(crate) below: Arc<dyn DataStore>,
}

impl TreesData {
    /// Creates the data store of these trees and of what is below them.
    pub fn new(trees: &Arc<Trees>, below: Arc<dyn DataStore>) -> TreesData {
        let known = Arc::clone(&below);
        let has_data =
            move |identity: &Identity| !matches!(known.state(identity).residency, Residency::Absent | Residency::Clean);
        trees.observe_data(Arc::new(has_data));
        TreesData { trees: Arc::clone(trees), below }
    }

    /// Returns who has the data of a file.
    pub(crate) fn holder(&self, identity: &Identity) -> io::Result<DataHolder> {
        let Some((tree, node)) = self.trees.of_identity(identity) else {
            let is_forgotten = delegation::node_of_key(identity).is_some();
            return if is_forgotten { Err(Errno::STALE.into()) } else { Ok(DataHolder::Below(None)) };
        };
        let lowered = tree.lowered(node)?;
        Ok(lowered.map_or(DataHolder::Tree(tree, node), |inode| DataHolder::Below(Some(inode))))
    }

    /// Returns the anchor by which the store below knows a file.
    fn anchor_below(&self, lowered: Option<Arc<Inode>>, anchor: Arc<dyn Anchor>) -> io::Result<Arc<dyn Anchor>> {
        lowered.map_or(Ok(anchor), |inode| self.trees.settings.namespace.anchor(&inode, AnchorFor::Any))
    }

    /// Brings trees to the global store, and gives them back with `gives`. Returns what stays.
    fn apply(
        &self,
        trees: Vec<Arc<OpenTree>>,
        gives: bool,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        let mut stuck = Vec::new();
        let (mut done, progress) = (0, RefCell::new(progress));
        for tree in trees {
            let tell = |now: ApplyProgress| {
                let (files_done, files_left) = (done + now.nodes_done as u64, now.nodes_left as u64);
                progress.borrow_mut()(DrainProgress { files_done, files_left, bytes_left: now.bytes_left });
            };
            let how = Applying { progress: &tell, interrupted, ..Applying::by(&self.trees.policy_of(&tree)) };
            let outcome =
                if gives { self.trees.give_back(&tree, &how, true) } else { tree.apply(&how, None).map(Some) };
            let mut left = Vec::new();
            match outcome {
                Ok(None) => {}
                Ok(Some(report)) => {
                    done += (report.applied + report.removed) as u64;
                    left = report.stuck;
                    left.extend(report.interrupted.then(|| failure(&Errno::INTR.into())));
                }
                Err(error) => left.push(failure(&error)),
            }
            stuck.extend(self.trees.told_of(&tree, left).into_iter().map(Notice::stuck));
        }
        stuck
    }

    /// Gives back the tree of this name, or that of a file.
    fn give_back(&self, identity: &Identity) -> io::Result<()> {
        let found = self.trees.named(identity).or_else(|| Some(self.trees.of_identity(identity)?.0));
        let Some(tree) = found.filter(|tree| !tree.is_returned()) else { return Ok(()) };
        let how = Applying { interrupted: &is_interrupted, ..Applying::by(&self.trees.policy_of(&tree)) };
        match self.trees.give_back(&tree, &how, true)? {
            None => Ok(()),
            Some(report) => {
                let why = report.stuck.into_iter().next().map(|stuck| stuck.reason);
                Err(reported(libc::EBUSY, &why.unwrap_or_else(|| "a file in it is open for writing".into())))
            }
        }
    }

    /// Ends what waits in a tree. `None` if the identity is none of a tree's.
    fn resolve(&self, identity: &Identity, keep: Keep) -> Option<io::Result<CommandOutcome>> {
        let saved = self.trees.resolve_unopened(identity, keep).or_else(|| {
            if let Some(tree) = self.trees.named(identity) {
                return Some(self.trees.resolve(&tree, NodeNumber::ROOT, keep));
            }
            match self.holder(identity) {
                Ok(DataHolder::Tree(tree, node)) => Some(self.trees.resolve(&tree, node, keep)),
                _ => None,
            }
        });
        saved.map(|saved| saved.map(|path| path.map_or(CommandOutcome::Done, CommandOutcome::Saved)))
    }
}

/// Holder of the data of a file.
pub(crate) enum DataHolder {
    Tree(Arc<OpenTree>, NodeNumber),
    /// The store below; with the file's inode there if it was a tree's.
    Below(Option<Arc<Inode>>),
}

fn identity_below<'a>(lowered: &'a Option<Arc<Inode>>, identity: &'a Identity) -> &'a Identity {
    lowered.as_ref().map_or(identity, |inode| inode.identity())
}

impl DataStore for TreesData {
    fn open(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        match self.holder(anchor.identity())? {
            DataHolder::Tree(tree, node) => {
                if tree.is_leased() && how.read {
                    tree.copy_ahead(node, how.policy.name_streams, || self.trees.has_room());
                }
                let opened = tree.files.open_data(node, &how, interrupted);
                match opened {
                    // The tree was given back meanwhile.
                    Err(error) if error.errno() == Some(libc::ESTALE) => match tree.lowered(node)? {
                        Some(inode) => self.below.open(self.anchor_below(Some(inode), anchor)?, how, interrupted),
                        None => Err(error),
                    },
                    // The kernel looks the name up again, which may be another's now.
                    Err(error) if error.errno() == Some(libc::ENOENT) && tree.is_nameless(node) => {
                        Err(Errno::STALE.into())
                    }
                    opened => opened,
                }
            }
            DataHolder::Below(lowered) => self.below.open(self.anchor_below(lowered, anchor)?, how, interrupted),
        }
    }

    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        match self.holder(anchor.identity())? {
            DataHolder::Tree(tree, node) => match tree.files.set_len(node, len) {
                Err(error) if error.errno() == Some(libc::ESTALE) => match tree.lowered(node)? {
                    Some(inode) => {
                        let anchor = self.anchor_below(Some(inode), Arc::clone(anchor))?;
                        self.below.set_len(&anchor, len, policy, interrupted)
                    }
                    None => Err(error),
                },
                done => done,
            },
            DataHolder::Below(lowered) => {
                self.below.set_len(&self.anchor_below(lowered, Arc::clone(anchor))?, len, policy, interrupted)
            }
        }
    }

    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        times: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.holder(anchor.identity())? {
            DataHolder::Tree(tree, node) => {
                tree.files.settle(node)?;
                apply()?;
                tree.files.times_set(node)
            }
            DataHolder::Below(lowered) => {
                self.below.set_times(&self.anchor_below(lowered, Arc::clone(anchor))?, times, apply)
            }
        }
    }

    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        match self.holder(identity)? {
            DataHolder::Tree(tree, node) => tree.files.overlay(node),
            DataHolder::Below(lowered) => self.below.attributes(identity_below(&lowered, identity), below),
        }
    }

    fn staged_count(&self) -> u64 {
        self.below.staged_count()
    }

    fn note(&self, identity: &Identity, change: FileChange<'_>) {
        match self.holder(identity) {
            Ok(DataHolder::Tree(tree, node)) => {
                if matches!(change, FileChange::Unlinked) {
                    tree.files.unlinked(node);
                }
            }
            Ok(DataHolder::Below(lowered)) => self.below.note(identity_below(&lowered, identity), change),
            Err(_) => {}
        }
    }

    fn state(&self, identity: &Identity) -> FileState {
        match self.holder(identity) {
            // The data of a tree is as safe as its names, so nothing has to wait for the global store.
            Ok(DataHolder::Tree(tree, node)) => FileState { dirty: false, ..tree.files.state(node) },
            Ok(DataHolder::Below(lowered)) => self.below.state(identity_below(&lowered, identity)),
            Err(_) => FileState::default(),
        }
    }

    fn command(&self, command: StoreCommand<'_>) -> io::Result<CommandOutcome> {
        if let StoreCommand::Resolve(identity, keep) = command
            && let Some(outcome) = self.resolve(identity, keep)
        {
            return outcome;
        }
        if let StoreCommand::GiveBack(identity) = command {
            return self.give_back(identity).map(|()| CommandOutcome::Done);
        }
        let identity = match &command {
            StoreCommand::StageIn(anchor, _) => Some(anchor.identity()),
            StoreCommand::Evict(identity) | StoreCommand::Pin(identity, _) => Some(*identity),
            _ => None,
        };
        if identity.is_some_and(|identity| matches!(self.holder(identity), Ok(DataHolder::Tree(..)))) {
            return match command {
                // The data of a tree is in the burst buffer for as long as the tree is delegated.
                StoreCommand::StageIn(..) | StoreCommand::Pin(..) => Ok(CommandOutcome::Done),
                _ => Err(Errno::OPNOTSUPP.into()),
            };
        }
        match command {
            StoreCommand::SyncAll => self.trees.sync()?,
            StoreCommand::Quiesce(on) => self.trees.quiet.store(on, Ordering::Release),
            StoreCommand::Shutdown => self.trees.give_back_settled(),
            _ => {}
        }
        self.below.command(command)
    }

    fn drain(
        &self,
        identity: Option<&Identity>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        let Some(identity) = identity else {
            self.trees.open_again();
            let mut stuck = self.apply(self.trees.all(), true, progress, interrupted);
            stuck.extend(self.trees.told_unopened().into_iter().map(Notice::stuck));
            stuck.extend(self.below.drain(None, progress, interrupted));
            return stuck;
        };
        match self.holder(identity) {
            Ok(DataHolder::Tree(tree, _)) => self.apply(vec![tree], false, progress, interrupted),
            Ok(DataHolder::Below(lowered)) => {
                self.below.drain(Some(identity_below(&lowered, identity)), progress, interrupted)
            }
            Err(_) => Vec::new(),
        }
    }

    fn status(&self, scope: StatusScope) -> StoreStatus {
        let mut status = self.below.status(scope);
        if let Ok(counters) = &mut status.counters {
            let common = &self.trees.common;
            counters.staged_out_files += common.files.load(Ordering::Relaxed);
            counters.staged_out_bytes += common.bytes.load(Ordering::Relaxed);
            counters.staged_out_us += common.busy_us.load(Ordering::Relaxed);
            for tree in self.trees.all() {
                let usage = tree.files.usage();
                let waiting = tree.tree.pending_len() as u64;
                counters.files += usage.files;
                counters.packed_files += usage.packed;
                counters.open += usage.open;
                counters.handles += usage.handles;
                if scope == StatusScope::All {
                    counters.dirty_bytes += tree.files.waiting_bytes();
                }
                counters.delegated_trees += 1;
                counters.waiting_names += waiting;
                let mut left = tree.waiting();
                left.retain(|node| !is_early(node.errno));
                let told = self.trees.told_of(&tree, left);
                let decided = told.iter().filter(|told| told.is_decided()).count() as u64;
                counters.dirty += waiting.saturating_sub(decided);
                told.into_iter().for_each(|told| told.show(counters));
            }
            self.trees.told_unopened().into_iter().for_each(|told| told.show(counters));
        }
        status
    }

    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        self.below.notes_reads(atime)
    }

    fn extensions(&self) -> Extensions<'_> {
        let below = self.below.extensions();
        Extensions {
            index: below.index.map(|_| self as &dyn LocalIndex),
            windows: below.windows.map(|_| self as &dyn WindowStore),
            ..below
        }
    }
}

impl TreesData {
    fn index(&self) -> Option<&dyn LocalIndex> {
        self.below.extensions().index
    }
}

impl LocalIndex for TreesData {
    fn may_know(&self, start: &[u8]) -> bool {
        self.index().is_none_or(|index| index.may_know(start))
    }

    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        match self.trees.of_identity(identity) {
            Some(_) => below,
            None => self.index().map_or(below, |index| index.accessed(identity, below)),
        }
    }

    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        self.index()?.anchor_of_open(identity)
    }

    fn observe(&self, observer: StoreObserver) {
        let Some(index) = self.index() else { return };
        match observer {
            StoreObserver::Removals(tell) => {
                let tell = Arc::new(tell);
                let of_trees = Arc::clone(&tell);
                self.trees.observe_removals(Box::new(move |version| of_trees(version)));
                index.observe(StoreObserver::Removals(Box::new(move |version| tell(version))));
            }
            StoreObserver::Ready(tell) => {
                let tell = Arc::new(tell);
                let of_trees = Arc::clone(&tell);
                self.trees.observe_ready(Box::new(move |version, atime, file| of_trees(version, atime, file)));
                index.observe(StoreObserver::Ready(Box::new(move |version, atime, file| tell(version, atime, file))));
            }
            // Nobody watches the changes of a tree's files: those who do are servers.
            StoreObserver::Changes(_) => index.observe(observer),
        }
    }
}
