//! Content of regular files, as the owner of a delegated tree notes it.

use std::io;

use rustix::io::Errno;
use types::Timestamp;

use super::DelegatedTree;
use crate::state::{DataPlace, LogRecord, NodeKind, NodeNumber, NodeState};

/// Knowledge of a regular file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedContent {
    /// Bytes of the content.
    pub size: u64,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change.
    pub ctime: Timestamp,
    /// Where the data is.
    pub place: DataPlace,
    /// Whether the global store lacks changes of the file.
    pub is_pending: bool,
    /// Whether the file has a name.
    pub has_name: bool,
}

impl DelegatedTree {
    /// Returns what is noted of a regular file's content; `None` if the node is gone or no regular file.
    pub fn content(&self, number: NodeNumber) -> Option<NotedContent> {
        let inner = self.shared.inner.read();
        let member = inner.tree.member(inner.tree.slot_of(number)?);
        (member.kind == NodeKind::File).then(|| NotedContent {
            size: member.size,
            mtime: member.mtime.into(),
            ctime: member.ctime.into(),
            place: member.data(),
            is_pending: member.stamp != 0,
            has_name: member.names() > 0,
        })
    }

    /// Notes the content of a regular file, as its last close leaves it. Its ctime becomes `mtime`, unless it is later already.
    /// Errors: `ENOENT` if the node is gone; `EINVAL` if it is no regular file; those of the log.
    pub fn set_content(&self, number: NodeNumber, size: u64, mtime: Timestamp, data: DataPlace) -> io::Result<()> {
        let mut inner = self.shared.change();
        let slot = inner.tree.slot_of(number).ok_or(Errno::NOENT)?;
        let member = inner.tree.member(slot);
        if member.kind != NodeKind::File {
            return Err(Errno::INVAL.into());
        }
        let ctime = member.ctime.max(mtime.into());
        inner.update(&self.shared, slot, |state| {
            (state.size, state.mtime, state.ctime, state.data) = (size, mtime.into(), ctime, data);
            state.below = state.below.doubted();
        })
    }

    /// Notes where the data of a regular file is. Programs see no change, and the global store lacks no more than before. Errors:
    /// as for [`set_content`](DelegatedTree::set_content).
    pub fn set_place(&self, number: NodeNumber, data: DataPlace) -> io::Result<()> {
        let mut inner = self.shared.change();
        let slot = inner.tree.slot_of(number).ok_or(Errno::NOENT)?;
        let member = inner.tree.member(slot);
        if member.kind != NodeKind::File {
            return Err(Errno::INVAL.into());
        }
        let (has_name, linkable) = (member.names() > 0, member.is_linkable());
        let state = NodeState { data, ..inner.tree.state(slot) };
        if !has_name {
            inner.tree.apply_unlogged(state, linkable);
            return Ok(());
        }
        let mut draft = inner.draft(&self.shared);
        draft.records.push(LogRecord::State(Box::new(state)));
        inner.commit(&self.shared, draft)?;
        inner.unchanging += 1;
        Ok(())
    }
}
