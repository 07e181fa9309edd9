//! Set-id bits and file capabilities, which any write removes, also our own write of a stage-out.

use std::ffi::CStr;
use std::io;
use types::HasErrno;

use namespace::Caller;
use rustix::fs::XattrFlags;
use types::Shown;

use crate::agent::Agent;
use crate::node::Node;

/// Extended attribute that holds a file's capabilities.
pub const CAPABILITY: &CStr = c"security.capability";

/// Permission bit `S_ISUID`.
pub(crate) const SET_USER_ID: u32 = 0o4000;
/// Permission bit `S_ISGID`.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// Both set-id bits.
pub(crate) const SET_IDS: u32 = SET_USER_ID | SET_GROUP_ID;
/// Permission bit `S_IXGRP`.
const GROUP_EXECUTES: u32 = 0o010;

/// Privileges removed from a file that is about to change.
#[derive(Default)]
#[must_use = "a change that fails gives it back"]
pub(crate) struct Privileges {
    /// Mode after the removal, and mode before.
    mode: Option<(u32, u32)>,
    capability: Option<Vec<u8>>,
}

impl Agent {
    /// Whether the file has privileges that a write removes. If so, its writes must go through the agent.
    pub(crate) fn has_privileges(&self, node: &Node) -> io::Result<bool> {
        Ok(self.stat(node)?.mode & SET_IDS != 0 || self.capability_of(node).is_some())
    }

    /// Removes privileges as a write does: [`take_privileges_of`](Agent::take_privileges_of), without a way back.
    pub(crate) fn drop_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<()> {
        self.take_privileges_of(node, set_id).map(drop)
    }

    /// Removes privileges as a write or truncation does, and returns them. Capabilities are always removed; set-id bits
    /// only if `set_id`, for a writer without privilege. Set-group-id without group execution once meant mandatory
    /// locking and stays. On an error, nothing is changed.
    pub(crate) fn take_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<Privileges> {
        let mode = self.stat(node)?.mode & 0o7777;
        let mut kept = mode;
        if set_id {
            kept &= !SET_USER_ID;
            if kept & GROUP_EXECUTES != 0 {
                kept &= !SET_GROUP_ID;
            }
        }
        let mut taken = Privileges::default();
        if kept != mode {
            self.change_mode(node, kept)?;
            taken.mode = Some((kept, mode));
        }
        // Capabilities are queried first: a store that refuses changes is not asked to change a file without any.
        if let Some(capability) = self.capability_of(node) {
            let remove = || self.names.remove_xattr(&Caller::own(), node.inode(), CAPABILITY);
            match self.as_ours(node, remove) {
                Ok(()) => taken.capability = Some(capability),
                Err(error) if is_refusal(&error) => {}
                Err(error) => {
                    self.give_back(node, taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Restores privileges after a change that failed, unless the mode was changed by others since.
    pub(crate) fn give_back(&self, node: &Node, taken: Privileges) {
        let mut failed = Ok(());
        if let Some((left, had)) = taken.mode
            && self.stat(node).is_ok_and(|stat| stat.mode & 0o7777 == left)
        {
            failed = self.change_mode(node, had);
        }
        if let Some(capability) = taken.capability {
            let how = XattrFlags::CREATE.bits();
            let set = || self.names.set_xattr(&Caller::own(), node.inode(), CAPABILITY, &capability, how);
            failed = failed.and(self.as_ours(node, set));
        }
        if let Err(error) = failed {
            tracing::warn!(
                %error,
                file = %node.identity(),
                "could not restore set-id bits or capabilities after a failed change; set them again"
            );
        }
    }

    fn change_mode(&self, node: &Node, mode: u32) -> io::Result<()> {
        self.as_ours(node, || self.names.set_mode(&Caller::own(), node.inode(), mode))
    }

    fn capability_of(&self, node: &Node) -> Option<Vec<u8>> {
        self.names.xattr(node.inode(), CAPABILITY).ok().filter(|value| !value.is_empty())
    }

    /// Stages out a dirty file before it gets privileges, because the write to the global copy would remove them. A
    /// later stage-out that finds no changes writes nothing.
    pub(crate) fn settle_before_privileges(&self, node: &Node) {
        // If the identity is unknown, the file may be dirty; the change that follows will report the error.
        if !node.is_regular() || !self.may_hold(node).unwrap_or(false) || !self.data.state(node.identity()).dirty {
            return;
        }
        if let Err(stuck) = self.data.drain_file(node.identity(), &|| false) {
            // The privileges are set nevertheless. A retried stage-out may remove them, which cannot be reported to the
            // program.
            tracing::warn!(
                path = %stuck.path_hint.shown(),
                reason = stuck.reason,
                "could not stage out before setting privileges; a later stage-out may remove them"
            );
        }
    }
}

/// Whether a file has no capabilities, or its store does not let them be removed.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::ENODATA | libc::EOPNOTSUPP | libc::EPERM | libc::EACCES))
}
