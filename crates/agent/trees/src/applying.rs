//! Bringing one tree to the global store.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use concurrency::Instant;
use config::Policy;
use delegation::{
    ApplyProgress, ApplyReport, ApplyRequest, Contents, DataPlace, DelegatedTree, NodeNumber, NotedContent,
};
use global_store::StoreFile;
use rustix::io::Errno;
use types::reported;

use crate::files::TreeFiles;
use crate::mark;
use crate::open_tree::{Common, OpenTree};

/// How a tree is applied, as [`ApplyRequest`] says.
#[derive(Clone, Copy)]
pub struct Applying<'a> {
    pub width: usize,
    pub strict: bool,
    pub replaces: &'a dyn Fn(NodeNumber) -> bool,
    pub progress: &'a dyn Fn(ApplyProgress),
    pub interrupted: &'a dyn Fn() -> bool,
}

impl Applying<'_> {
    /// Follows a policy, tells nobody, and goes on to the end.
    pub fn by(policy: &Policy) -> Applying<'static> {
        let (width, strict) = (policy.name_streams, policy.delegate_strict);
        Applying { width, strict, replaces: &|_| false, progress: &|_| {}, interrupted: &|| false }
    }
}

/// Contents of files that nobody writes meanwhile.
struct Whole {
    tree: DelegatedTree,
    common: Arc<Common>,
    files: TreeFiles,
    contents: Arc<dyn Contents>,
}

impl Whole {
    fn check(&self, node: NodeNumber) -> io::Result<()> {
        if self.files.is_written_to(node) { Err(Errno::BUSY.into()) } else { Ok(()) }
    }
}

impl Contents for Whole {
    fn write(&self, node: NodeNumber, data: DataPlace, into: &dyn StoreFile) -> io::Result<()> {
        self.check(node)?;
        // Data that is moved within the burst buffer stays the same.
        let content = || self.tree.content(node).map(|content| NotedContent { place: data, ..content });
        let before = content();
        self.contents.write(node, data, into)?;
        self.check(node)?;
        if content() != before {
            // It was opened, written and closed during the copy, which may have parts of both.
            return Err(Errno::BUSY.into());
        }
        let bytes = self.tree.state(node).map_or(0, |state| state.size);
        self.common.files.fetch_add(1, Ordering::Relaxed);
        self.common.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl OpenTree {
    /// Brings what the global store lacks there, as far as that is possible now: all, or only one node and the directories above. What
    /// waits is noted.
    pub fn apply(&self, how: &Applying<'_>, only: Option<NodeNumber>) -> io::Result<ApplyReport> {
        // Before the mark is asked for: what was only closed may be the first change since.
        let settled = self.files.settle_all();
        let outcome = settled.and_then(|()| self.check_mark()).and_then(|()| self.apply_marked(how, only));
        self.note_waiting(&outcome, only);
        outcome
    }

    /// Fails with `ESTALE` if the directory is not marked as ours: somebody has ended the delegation, and others may change it.
    fn check_mark(&self) -> io::Result<()> {
        if self.tree.pending_len() == 0
            || mark::get(&*self.store.namespace, &self.root)? == Some(self.store.agent.clone())
        {
            return Ok(());
        }
        Err(reported(libc::ESTALE, mark::NOT_OURS))
    }

    fn apply_marked(&self, how: &Applying<'_>, only: Option<NodeNumber>) -> io::Result<ApplyReport> {
        let began = Instant::now();
        let (tree, common) = (self.tree.share(), Arc::clone(&self.common));
        let contents: Arc<dyn Contents> =
            Arc::new(Whole { tree, common, files: self.files.clone(), contents: self.files.contents() });
        let Applying { width, strict, replaces, progress, interrupted } = *how;
        let request = ApplyRequest {
            width,
            strict,
            replaces,
            progress,
            interrupted,
            ..ApplyRequest::new(&self.store, &contents)
        };
        let report = match only {
            Some(node) => self.tree.apply_node(node, &request),
            None => self.tree.apply(&request),
        };
        self.common.busy_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        Ok(report)
    }
}
