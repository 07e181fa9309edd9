//! The threads that make names durable each second, bring trees to the global store, and pack small files.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::Instant;
use config::{Policy, StageOut};
use delegation::Cleaning;

use crate::applying::Applying;
use crate::limits;
use crate::open_tree::OpenTree;
use crate::registry::Trees;
use crate::waiting::is_early;

/// Starts the threads, which end with the trees.
pub fn start(trees: &Arc<Trees>) -> io::Result<()> {
    let (synced, applied) = (Arc::downgrade(trees), Arc::downgrade(trees));
    // The global store may take its time, and the names must be durable meanwhile.
    concurrency::spawn("tree names", move || keep_durable(&synced))?;
    let packed = Arc::downgrade(trees);
    concurrency::spawn("small files", move || pack(&packed))?;
    concurrency::spawn("trees", move || run(&applied))
}

fn pack(trees: &Weak<Trees>) {
    // Trees whose failure was told.
    let mut told = HashSet::new();
    loop {
        concurrency::sleep(limits::APPLY_LOOK);
        let Some(trees) = trees.upgrade() else { return };
        for tree in trees.all() {
            // For a while packed files take room twice.
            let small_bytes = if trees.has_room() { trees.policy_of(&tree).small_file_bytes } else { 0 };
            match tree.pack(small_bytes) {
                Err(error) if !tree.is_returned() && told.insert(tree.id()) => {
                    tracing::warn!(%error, tree = %tree.directory().display(), "small files could not be packed");
                }
                _ => {}
            }
        }
    }
}

fn keep_durable(trees: &Weak<Trees>) {
    loop {
        concurrency::sleep(limits::SYNC_EVERY);
        let Some(trees) = trees.upgrade() else { return };
        let is_needed = trees.all().iter().any(|tree| tree.is_unsynced());
        if is_needed && let Err(error) = trees.sync() {
            tracing::error!(%error, "the names of delegated trees are not durable");
        }
        trees.all().iter().for_each(|tree| tree.clean());
    }
}

fn run(trees: &Weak<Trees>) {
    loop {
        concurrency::sleep(limits::APPLY_LOOK);
        let Some(trees) = trees.upgrade() else { return };
        trees.forget_returned();
        // The store's own answers are better then than names that may not find room in it.
        let gives_back = !trees.is_empty() && trees.store_lacks_room();
        for tree in trees.all() {
            tree.count_below();
            let policy = trees.policy_of(&tree);
            let waits = matches!(policy.stage_out, StageOut::Manual | StageOut::Exit);
            if (tree.is_due() || gives_back) && !waits {
                apply(&tree, &policy);
                if gives_back && tree.is_settled() {
                    give_back(&trees, &tree, &policy);
                }
            }
        }
        trees.make_room();
    }
}

/// Applies a tree. What could not be brought is told once, and again if the reason is another.
fn apply(tree: &OpenTree, policy: &Policy) {
    let before: HashSet<_> = tree.waiting().into_iter().map(|node| (node.number, node.errno)).collect();
    // The outcome is noted.
    let _ = tree.apply(&Applying::by(policy), None);
    for stuck in tree.waiting() {
        let is_new = !is_early(stuck.errno) && !before.contains(&(stuck.number, stuck.errno));
        if is_new {
            let path = tree.recorded_path.join(&stuck.path);
            tracing::warn!(path = %path.display(), reason = stuck.reason, "could not bring a name to the global store");
        }
    }
    let mut changes = tree.changes.lock();
    // What stays is tried again after the same time.
    changes.pending = (tree.tree.pending_len() > 0).then(Instant::now);
}

fn give_back(trees: &Arc<Trees>, tree: &Arc<OpenTree>, policy: &Policy) {
    tracing::warn!(path = %tree.recorded_path.display(), "the global store is nearly full: a directory is delegated no longer");
    if let Err(error) = trees.give_back(tree, &Applying::by(policy), true) {
        tracing::warn!(%error, "a delegated tree could not be given back");
    }
}

impl OpenTree {
    /// Cleans the log, up to a bound.
    fn clean(&self) {
        for _ in 0..limits::CLEAN_STEPS {
            match self.tree.clean() {
                Ok(Cleaning::Progress) => {}
                Ok(Cleaning::Idle) => return,
                Err(error) => return tracing::warn!(%error, "the name log of a delegated tree could not be cleaned"),
            }
        }
    }

    /// Packs small files, as long as nobody changes the tree or too many wait.
    fn pack(&self, small_bytes: u64) -> io::Result<()> {
        let waiting = self.files.closed_len();
        let mut is_packing = waiting >= limits::PACKED_AT_LEAST && small_bytes > 0;
        let (mut has_packed, are_too_many) = (false, waiting >= limits::PACKED_AT_MOST);
        while is_packing {
            let is_urgent = are_too_many && self.files.closed_len() > limits::PACKED_AT_MOST / 2;
            if !is_urgent && !self.is_quiet(limits::PACK_QUIET) {
                break;
            }
            let packed = self.files.pack(small_bytes, limits::PACKED_AT_ONCE)?.packed;
            (is_packing, has_packed) = (packed > 0, has_packed || packed > 0);
        }
        // What was dropped since may have left segments that are not worth their room.
        if has_packed || self.files.has_dead_packed() {
            while self.files.tidy_pack()? {}
        }
        Ok(())
    }

    /// Notes what has changed since the last look. Returns whether the last change was seen at least `quiet` ago.
    fn is_quiet(&self, quiet: Duration) -> bool {
        self.changes.lock().are_quiet(self.tree.changes(), quiet)
    }

    /// Notes what has changed since the last look. Returns whether the tree is to be applied now.
    fn is_due(&self) -> bool {
        let is_pending = self.tree.pending_len() > 0;
        let mut changes = self.changes.lock();
        let is_quiet = changes.are_quiet(self.tree.changes(), limits::QUIET);
        if !is_pending {
            changes.pending = None;
            return false;
        }
        let since = *changes.pending.get_or_insert_with(Instant::now);
        is_quiet || since.elapsed() >= limits::APPLIED_WITHIN
    }
}
