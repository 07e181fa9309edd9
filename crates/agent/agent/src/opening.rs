//! Opening files: permissions and the policy of the directory.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use config::{Cache, Policy};
use data_store::{FileChange, OpenHow};
use global_store::limits::ONE_READ_BYTES;
use namespace::{AnchorFor, Caller, Mode, NewFile, NewMode};

use crate::agent::Agent;
use crate::names::FoundNode;
use crate::node::Node;
use crate::open_file::OpenFile;

impl Agent {
    /// Opens an existing regular file as the caller. Errors: `EACCES` if the caller lacks permission, whatever the
    /// kernel's cached attributes said; `EINTR` if `interrupted` returns true while the open waits.
    pub fn open(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        mode: Mode,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<OpenFile> {
        if !node.is_regular() {
            let errno = if node.is_directory() { libc::EISDIR } else { libc::ENXIO };
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.names.check_open(caller, node.inode(), mode)?;
        self.open_allowed(node, mode, interrupted)
    }

    /// Opens a regular file again that was open in an earlier process. Permission was checked then, and the file is not
    /// truncated.
    pub fn reopen(&self, node: &Arc<Node>, mode: Mode) -> io::Result<OpenFile> {
        if !node.is_regular() {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        self.open_allowed(node, Mode { truncate: false, ..mode }, &|| false)
    }

    fn open_allowed(&self, node: &Arc<Node>, mode: Mode, interrupted: &dyn Fn() -> bool) -> io::Result<OpenFile> {
        let writes = mode.write || mode.truncate;
        let privileged = writes && self.has_privileges(node)?;
        if writes && !privileged {
            node.note_plain();
        }
        let policy = if writes { self.policy_for_change(node)? } else { self.policy_for(node) };
        let how = OpenHow {
            read: mode.read,
            write: writes,
            appends: mode.appends_alone(),
            may_map: mode.read && mode.write,
            truncate: mode.truncate,
            sync: mode.sync,
            noatime: mode.noatime,
            policy,
            ..OpenHow::default()
        };
        // Privileges are removed first: an open that is refused must truncate nothing.
        let taken =
            (mode.truncate && privileged).then(|| self.take_privileges_of(node, mode.clear_set_id)).transpose()?;
        let anchor = if writes || self.may_hold(node)? || self.stat(node)?.size == 0 {
            self.anchor(node)?
        } else {
            let copied = matches!(how.policy.cache, Cache::Both | Cache::Preload) && !self.is_shared();
            node.anchor(&*self.names, AnchorFor::Reading(if copied { ONE_READ_BYTES } else { 0 }))?
        };
        let open = |how: &OpenHow| self.data.open(Arc::clone(&anchor), how.clone(), interrupted);
        let opened = if mode.truncate { self.cut(node, 0, &mut || open(&how)) } else { open(&how) };
        let handle = match (opened, taken) {
            (Err(error), Some(taken)) => {
                self.give_back(node, taken);
                return Err(error);
            }
            (opened, _) => opened?,
        };
        Ok(self.opened(node.clone(), handle, mode, privileged, false, &how.policy))
    }

    /// Returns the policy for a change of a file's data. An agent without privilege cannot set the times of other
    /// users' files, so it could not stage them out. Writes to those go to the global store.
    pub(crate) fn policy_for_change(&self, node: &Node) -> io::Result<Arc<Policy>> {
        let policy = self.policy_for(node);
        if self.names.acts_for_all() {
            return Ok(policy);
        }
        let owner = self.names.attributes(node.inode())?.uid;
        if owner == rustix::process::geteuid().as_raw() {
            return Ok(policy);
        }
        let cache = match policy.cache {
            Cache::Both => Cache::Preload,
            Cache::WriteCache | Cache::Scratch => Cache::Through,
            other => other,
        };
        Ok(Arc::new(Policy { cache, ..Policy::clone(&policy) }))
    }

    /// Creates a regular file and opens it. If `name` is `None`, the file has no name until it is linked; with
    /// `exclusive`, it can never be linked. `ESTALE` if the name exists and not `exclusive`.
    pub fn create(
        &self,
        caller: &Caller,
        parent: &Node,
        name: Option<&OsStr>,
        new: NewMode,
        exclusive: bool,
        mode: Mode,
    ) -> io::Result<(FoundNode, OpenFile)> {
        if name.is_none() && self.is_shared() {
            // A server cannot find a file without a name. Programs then create a name and remove it.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let (found, anchor) = self.names.create(caller, parent.inode(), NewFile { name, mode: new, exclusive })?;
        let found = FoundNode { node: Arc::new(Node::new(found.inode)), attributes: found.attributes };
        found.node.is_created(&anchor);
        let policy = if name.is_some() { self.policy_for(&found.node) } else { self.policy_for(parent) };
        let (appends, sync, noatime) = (mode.appends_alone(), mode.sync, mode.noatime);
        let how = OpenHow {
            read: true,
            write: true,
            appends,
            may_map: mode.read && mode.write,
            created: true,
            sync,
            noatime,
            policy: Arc::clone(&policy),
            ..OpenHow::default()
        };
        let opened = self.data.open(anchor, how, &|| false);
        if opened.is_err()
            && let Some(name) = name
        {
            // The caller must see no file if the open failed.
            let _ = self.unlink(caller, parent, name);
        }
        let opened = opened?;
        if name.is_none() {
            self.data.note(found.node.identity(), FileChange::Removing);
        }
        let open = self.opened(found.node.clone(), opened, mode, false, name.is_none(), &policy);
        Ok((found, open))
    }
}
