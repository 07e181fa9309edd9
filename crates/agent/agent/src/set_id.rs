//! Set-id bits and file capabilities, which a write takes away: the program's write, and our own of a stage-out alike.

use std::io;

use global_store::calls::Call;
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use crate::agent::Agent;
use crate::node::Node;

/// The attribute that holds a file's capabilities.
pub(crate) const CAPABILITY: &str = "security.capability";

impl Agent {
    /// Whether a write to the file has privileges to take away: such a file's writes must pass through the agent.
    pub(crate) fn has_privileges(&self, node: &Node) -> io::Result<bool> {
        let mode = Mode::from_raw_mode(self.stat(node)?.st_mode);
        Ok(mode.intersects(Mode::SUID | Mode::SGID) || self.below(Call::Attributes, || has_capability(node)))
    }

    /// What a write or truncation does to them: capabilities go always, set-id bits if `set_id`, as the writer was no
    /// privileged one. Set-group-id without group execution means mandatory locking of old and stays.
    pub(crate) fn drop_privileges_of(&self, node: &Node, set_id: bool) -> io::Result<()> {
        // As `steady`, which may ask for the node as well.
        let _steady = self.steady_names();
        let mode = Mode::from_raw_mode(self.stat(node)?.st_mode);
        let mut kept = mode & Mode::from_raw_mode(0o7777);
        if set_id {
            kept -= Mode::SUID;
            if kept.contains(Mode::XGRP) {
                kept -= Mode::SGID;
            }
        }
        if kept != mode & Mode::from_raw_mode(0o7777) {
            let name = self.descriptor_name(node);
            let change = || fs::chmodat(&self.descriptors, name, kept, AtFlags::empty());
            self.as_ours(node, || self.change_below(Call::Change, change))?;
        }
        let change = || fs::removexattr(node.proc_path(), CAPABILITY);
        match self.as_ours(node, || self.change_below(Call::Change, change)) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Before a file gets privileges: what is dirty is staged out, for the write below would take them away again. A
    /// stage-out that finds nothing changed later writes nothing.
    pub(crate) fn settle_before_privileges(&self, node: &Node) {
        if !node.is_regular() || !self.cache.is_dirty(node.identity()) {
            return;
        }
        if let Err(stuck) = self.cache.drain_file(node.identity(), &|| false) {
            // They are given nevertheless; the retried stage-out may cost them, which the program cannot be told.
            tracing::warn!(path = %stuck.path_hint.display(), reason = stuck.reason, "privileges of a dirty file");
        }
    }
}

fn has_capability(node: &Node) -> bool {
    fs::getxattr(node.proc_path(), CAPABILITY, &mut [0u8; 0][..]).is_ok_and(|len| len > 0)
}
