//! Files that replace others in the global store (policy `publish = atomic`), as seen by changes of names and
//! attributes.

use std::io;

use concurrency::RwLockReadGuard;
use data_store::Publication;
use global_store::calls::StoreCall;

use crate::agent::Agent;
use crate::node::Node;

impl Agent {
    /// Returns a guard that keeps files from replacing others. Held while names are changed. The wait for it counts as
    /// a call to the global store.
    pub(crate) fn steady_names(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let publication = self.data.extensions().publication?;
        Some(publication.steady_names(&mut |wait| self.below(StoreCall::Change, wait)))
    }

    /// Whether files have replaced others since the burst buffer was opened.
    pub(crate) fn has_published(&self) -> bool {
        self.data.extensions().publication.is_some_and(Publication::has_published)
    }

    /// Returns a guard as [`Agent::steady_names`] does, for changes of a node's attributes, or of its names by way of
    /// the node. `ESTALE` if another file has replaced the node: the kernel looks the name up again.
    pub(crate) fn steady(&self, node: &Node) -> io::Result<Option<RwLockReadGuard<'_, ()>>> {
        let names = self.steady_names();
        if self.has_published() && node.is_regular() {
            self.stat(node)?;
        }
        Ok(names)
    }

    /// Fails with `ESTALE` for a node without a name that another file may have replaced: the kernel looks the name up
    /// again.
    pub(crate) fn check_place(&self, node: &Node, is_gone: bool) -> io::Result<()> {
        let replaced = |publication: &dyn Publication| publication.may_have_lost_name(node.identity());
        if is_gone && node.is_regular() && self.data.extensions().publication.is_some_and(replaced) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok(())
    }
}
