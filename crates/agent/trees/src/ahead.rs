//! Copying small files ahead: who opens two files of a directory that only the global store has will open more of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use concurrency::Mutex;
use data_store::OpenHow;
use delegation::NodeNumber;

use crate::files::TreeFiles;
use crate::limits;
use crate::open_tree::OpenTree;

/// The directory in which a file was opened last that only the global store has.
#[derive(Default)]
pub struct LastDirectory(Mutex<Option<NodeNumber>>);

impl OpenTree {
    /// Notes that a file is about to be opened. Begins to copy those that follow it in its directory, by `width` threads at most, if
    /// the last one was in the same directory and `has_room` agrees.
    pub fn copy_ahead(&self, node: NodeNumber, width: usize, has_room: impl FnOnce() -> bool) {
        let unread = self.tree.unread_after(node, limits::AHEAD_BYTES, limits::AHEAD_FILES);
        let Some((directory, following)) = unread else { return };
        let is_second = self.last_directory.0.lock().replace(directory) == Some(directory);
        if !is_second || following.is_empty() || !has_room() {
            return;
        }
        let (threads, work) = (width.min(following.len()), Arc::new((following, AtomicUsize::new(0))));
        for _ in 0..threads {
            let (files, work) = (self.files.clone(), Arc::clone(&work));
            // With fewer threads than wanted the files come later.
            let _ = concurrency::spawn("copy ahead", move || copy(&files, &work.0, &work.1));
        }
    }
}

/// Copies files until all were begun.
fn copy(files: &TreeFiles, nodes: &[NodeNumber], next: &AtomicUsize) {
    while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
        // Who opens the file hears of an error.
        let _ = files.open_data(*node, &OpenHow { read: true, ..OpenHow::default() }, &|| false);
    }
}
