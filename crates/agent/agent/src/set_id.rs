//! Set-id bits and file capabilities, which any write removes, also our own write of a stage-out.

use std::io;

use global_store::calls::StoreCall;
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use types::Shown;

use crate::agent::Agent;
use crate::limits::CAPABILITY_BYTES_MAX;
use crate::node::Node;

/// Extended attribute that holds a file's capabilities.
pub const CAPABILITY: &str = "security.capability";

/// Privileges removed from a file that is about to change.
#[derive(Default)]
#[must_use = "a change that fails gives it back"]
pub(crate) struct Privileges {
    /// Mode after the removal, and mode before.
    mode: Option<(Mode, Mode)>,
    capability: Option<Vec<u8>>,
}

impl Agent {
    /// Whether the file has privileges that a write removes. If so, its writes must go through the agent.
    pub(crate) fn has_privileges(&self, node: &Node) -> io::Result<bool> {
        let mode = Mode::from_raw_mode(self.stat(node)?.st_mode);
        Ok(mode.intersects(Mode::SUID | Mode::SGID)
            || self.below(StoreCall::Attributes, || capability_of(node).is_some()))
    }

    /// Removes privileges as a write does: [`take_privileges_of`](Agent::take_privileges_of), without a way back.
    pub(crate) fn drop_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<()> {
        self.take_privileges_of(node, set_id).map(drop)
    }

    /// Removes privileges as a write or truncation does, and returns them. Capabilities are always removed; set-id bits
    /// only if `set_id`, for a writer without privilege. Set-group-id without group execution once meant mandatory
    /// locking and stays. On an error, nothing is changed.
    pub(crate) fn take_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<Privileges> {
        // Like `steady`, which may query the node as well; `stat` below does that.
        let _steady = self.steady_names();
        let mode = Mode::from_raw_mode(self.stat(node)?.st_mode) & Mode::from_raw_mode(0o7777);
        let mut kept = mode;
        if set_id {
            kept -= Mode::SUID;
            if kept.contains(Mode::XGRP) {
                kept -= Mode::SGID;
            }
        }
        let mut taken = Privileges::default();
        if kept != mode {
            self.change_mode(node, kept)?;
            taken.mode = Some((kept, mode));
        }
        // Capabilities are queried first: a store that refuses changes is not asked to change a file without any.
        if let Some(capability) = self.below(StoreCall::Attributes, || capability_of(node)) {
            let change = || fs::removexattr(node.proc_path(), CAPABILITY);
            match self.as_ours(node, || self.change_below(StoreCall::Change, change)) {
                Ok(()) => taken.capability = Some(capability),
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
                Err(error) => {
                    self.give_back(node, taken);
                    return Err(error.into());
                }
            }
        }
        Ok(taken)
    }

    /// Restores privileges after a change that failed, unless the mode was changed by others since.
    pub(crate) fn give_back(&self, node: &Node, taken: Privileges) {
        let _steady = self.steady_names();
        let mut failed = Ok(());
        if let Some((left, had)) = taken.mode
            && self.stat(node).is_ok_and(|stat| stat.st_mode & 0o7777 == left.bits())
        {
            failed = self.change_mode(node, had);
        }
        if let Some(capability) = taken.capability {
            let set = || fs::setxattr(node.proc_path(), CAPABILITY, &capability, fs::XattrFlags::CREATE);
            failed = failed.and(self.as_ours(node, || self.change_below(StoreCall::Change, set)));
        }
        if let Err(error) = failed {
            tracing::warn!(
                %error,
                file = %node.identity(),
                "could not restore set-id bits or capabilities after a failed change; set them again"
            );
        }
    }

    fn change_mode(&self, node: &Node, mode: Mode) -> Result<(), Errno> {
        let name = self.descriptor_name(node);
        let change = || fs::chmodat(&self.descriptors, name, mode, AtFlags::empty());
        self.as_ours(node, || self.change_below(StoreCall::Change, change))
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

fn capability_of(node: &Node) -> Option<Vec<u8>> {
    let mut value = [0; CAPABILITY_BYTES_MAX];
    let len = fs::getxattr(node.proc_path(), CAPABILITY, &mut value[..]).ok()?;
    (len > 0).then(|| value[..len].to_vec())
}
