//! The open files of one tree by their nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use concurrency::Mutex;
use delegation::NodeNumber;

use super::limits::TABLE_PARTS;
use super::node::OpenNode;

/// A table of open files. Its locks are the last to be taken.
pub(super) struct OpenNodes {
    parts: [Mutex<HashMap<NodeNumber, Arc<OpenNode>>>; TABLE_PARTS],
}

impl OpenNodes {
    pub fn new() -> OpenNodes {
        OpenNodes { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    fn part(&self, node: NodeNumber) -> &Mutex<HashMap<NodeNumber, Arc<OpenNode>>> {
        &self.parts[node.0 as usize % TABLE_PARTS]
    }

    /// Counts one more handle of a file.
    pub fn enter(&self, node: NodeNumber) -> Arc<OpenNode> {
        let mut part = self.part(node).lock();
        let open = part.entry(node).or_insert_with(|| Arc::new(OpenNode::new(node)));
        open.handles.fetch_add(1, Ordering::Relaxed);
        Arc::clone(open)
    }

    /// Counts one handle less. Returns whether it was the last.
    pub fn leave(&self, open: &OpenNode) -> bool {
        let mut part = self.part(open.number).lock();
        let is_last = open.handles.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last {
            part.remove(&open.number);
        }
        is_last
    }

    /// Returns an open file.
    pub fn get(&self, node: NodeNumber) -> Option<Arc<OpenNode>> {
        self.part(node).lock().get(&node).cloned()
    }

    /// Returns all open files.
    pub fn all(&self) -> Vec<Arc<OpenNode>> {
        self.parts.iter().flat_map(|part| part.lock().values().cloned().collect::<Vec<_>>()).collect()
    }
}
