//! Reclaim of numbers that an earlier process gave to the kernel of another machine: each gets its old meaning or
//! none.
//!
//! R1. A number is claimed for one file and never for another. It must be one that may have been given
//! (`Nodes::may_have_given`).
//! R2. Repeating a claim changes nothing.
//! R3. An open file that is reclaimed was allowed when first opened. Nothing is created, truncated or given to
//! anybody new.

use std::sync::Arc;

use agent::descriptors::Charge;
use agent::{Caller, Mode};
use fuse_protocol::{Errno, FileReclaim, Handle};

use crate::door::Door;
use crate::handles::FileOf;
use crate::nodes::Known;
use crate::opens::Bypasses;

impl Door {
    /// Restores the node number of a claim for its file, with its lookup count. Errors: `ESTALE` if the file is gone or
    /// the number cannot be its.
    pub(crate) fn reclaim_node(&self, claim: &FileReclaim) -> Result<Arc<Known>, Errno> {
        let FileReclaim { node: number, lookups, identity, hint, .. } = claim;
        if let Some(known) = self.nodes.get(*number) {
            return if self.agent.identity_of(&known.node)? == *identity { Ok(known) } else { Err(Errno::ESTALE) };
        }
        if !self.nodes.may_have_given(*number) {
            return Err(Errno::ESTALE);
        }
        let node = self.agent.find_again(identity, hint)?.ok_or(Errno::ESTALE)?;
        if self.agent.identity_of(&node)? != *identity {
            return Err(Errno::ESTALE);
        }
        Ok(self.nodes.reclaim(*number, node, *lookups))
    }

    /// Restores `handle` as an open file or directory of `known`. `flags`: those of open(2). Errors: `ESTALE` if the
    /// handle cannot have been given.
    pub(crate) fn reclaim_open(&self, known: &Arc<Known>, handle: Handle, flags: i32) -> Result<(), Errno> {
        if self.handles.has(handle) {
            return Ok(());
        }
        if !self.nodes.may_have_given(handle) {
            return Err(Errno::ESTALE);
        }
        if known.node.is_directory() {
            let directory = self.agent.open_directory(&Caller::own(), &known.node)?;
            // The directory was open before, so one too many is not refused now.
            let charge = Charge::take(self.owner(0)).ok();
            self.handles.reclaim_directory(handle, known.clone(), directory, charge);
            return Ok(());
        }
        let open = self.agent.reopen(&known.node, Mode::from_flags(flags))?;
        // Nothing is passed through to another machine, so the kernel's open stays valid as it was answered.
        let answer = {
            let mut state = known.open.lock();
            let answer = state.admit(&open, 0, self.abilities(), None, false)?;
            // The file was open before, so one too many is not refused now.
            let charge = state.may_open(self.owner(0)).ok().flatten();
            state.charge(&open, charge);
            answer
        };
        self.handles.reclaim_file(handle, FileOf { known: known.clone(), open, bypasses: answer.bypasses() });
        Ok(())
    }
}
