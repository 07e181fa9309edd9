//! Set-id bits and file capabilities, which a write takes away: the program's write, and our own of a stage-out alike.

use std::io;

use global_store::calls::StoreCall;
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use types::Shown;

use crate::agent::Agent;
use crate::limits::CAPABILITY_BYTES_MAX;
use crate::node::Node;

/// The attribute that holds a file's capabilities.
pub const CAPABILITY: &str = "security.capability";

/// What was taken away from a file that is about to change.
#[derive(Default)]
#[must_use = "a change that fails gives it back"]
pub(crate) struct Privileges {
    /// Bits that were left, and those that it had.
    mode: Option<(Mode, Mode)>,
    capability: Option<Vec<u8>>,
}

impl Agent {
    /// Whether a write to the file has privileges to take away: such a file's writes must pass through the agent.
    pub(crate) fn has_privileges(&self, node: &Node) -> io::Result<bool> {
        let mode = Mode::from_raw_mode(self.stat(node)?.st_mode);
        Ok(mode.intersects(Mode::SUID | Mode::SGID)
            || self.below(StoreCall::Attributes, || capability_of(node).is_some()))
    }

    /// What a write does to them: [`take_privileges_of`](Agent::take_privileges_of), for good.
    pub(crate) fn drop_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<()> {
        self.take_privileges_of(node, set_id).map(drop)
    }

    /// What a write or truncation does to them: capabilities go always, set-id bits if `set_id`, as the writer was no
    /// privileged one. Set-group-id without group execution means mandatory locking of old and stays. An error leaves all as it was.
    pub(crate) fn take_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<Privileges> {
        // As `steady`, which may ask for the node as well.
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
        // Asked for before it is taken: a store that refuses changes need not hear of a file that has none.
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

    /// Of a change that failed: the file has what it had, unless somebody has given it other bits since.
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
            tracing::warn!(%error, file = %node.identity(), "a change failed and its file has lost set-id bits or capabilities");
        }
    }

    fn change_mode(&self, node: &Node, mode: Mode) -> Result<(), Errno> {
        let name = self.descriptor_name(node);
        let change = || fs::chmodat(&self.descriptors, name, mode, AtFlags::empty());
        self.as_ours(node, || self.change_below(StoreCall::Change, change))
    }

    /// Before a file gets privileges: what is dirty is staged out, for the write below would take them away again. A
    /// stage-out that finds nothing changed later writes nothing.
    pub(crate) fn settle_before_privileges(&self, node: &Node) {
        // Who cannot be asked who he is may be dirty; the change that follows will hear of it.
        if !node.is_regular() || !self.may_hold(node).unwrap_or(false) || !self.cache.is_dirty(node.identity()) {
            return;
        }
        if let Err(stuck) = self.cache.drain_file(node.identity(), &|| false) {
            // They are given nevertheless; the retried stage-out may cost them, which the program cannot be told.
            tracing::warn!(path = %stuck.path_hint.shown(), reason = stuck.reason, "privileges of a dirty file");
        }
    }
}

fn capability_of(node: &Node) -> Option<Vec<u8>> {
    let mut value = [0; CAPABILITY_BYTES_MAX];
    let len = fs::getxattr(node.proc_path(), CAPABILITY, &mut value[..]).ok()?;
    (len > 0).then(|| value[..len].to_vec())
}
