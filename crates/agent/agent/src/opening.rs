//! Opening files: permissions and the policy of the directory.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use config::{Cache, Policy};
use data_store::{FileChange, OpenHow};
use global_store::calls::StoreCall;
use global_store::limits::ONE_READ_BYTES;
use rustix::fs::{self, OFlags};

use crate::agent::Agent;
use crate::caller::{Caller, Judge};
use crate::mode::Mode;
use crate::names::{FoundNode, NewMode};
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
        self.check_access(caller, node, mode)?;
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
            truncate: mode.truncate,
            sync: mode.sync,
            noatime: mode.noatime,
            policy,
            ..OpenHow::default()
        };
        // Privileges are removed first: an open that is refused must truncate nothing.
        let taken =
            (mode.truncate && privileged).then(|| self.take_privileges_of(node, mode.clear_set_id)).transpose()?;
        let anchor = if writes || self.may_hold(node)? || self.stat(node)?.st_size == 0 {
            node.anchor(&self.store)?
        } else {
            let copied = matches!(how.policy.cache, Cache::Both | Cache::Preload) && !self.is_shared();
            node.anchor_reading(&self.store, if copied { ONE_READ_BYTES } else { 0 })?
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
        if self.impersonator.is_privileged() {
            return Ok(policy);
        }
        let owner = self.below(StoreCall::Attributes, || fs::fstat(node.fd()))?.st_uid;
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

    /// Checks that the caller may open a file in this mode, by the store's current permissions. For a write, the
    /// store's own file is opened in the requested mode. So all that the store would refuse later is refused here:
    /// immutable, append-only and read-only files, and owners it does not trust.
    pub(crate) fn check_access(&self, caller: &Caller, node: &Node, mode: Mode) -> io::Result<()> {
        if mode.write || mode.truncate {
            return self.check_open(caller, node, mode);
        }
        if caller.uid == 0 {
            return Ok(());
        }
        let access = if mode.execute { libc::X_OK } else { libc::R_OK };
        let name = CString::new(self.descriptor_name(node))?;
        let descriptors = self.descriptors.as_raw_fd();
        // The raw call is used because wrappers check the real user where they take it to be the effective one.
        // SAFETY: an open descriptor and a C string that lives through the call.
        let ask =
            || unsafe { libc::syscall(libc::SYS_faccessat2, descriptors, name.as_ptr(), access, libc::AT_EACCESS) };
        self.impersonator.act(caller, Judge::Node(node, access as u32), || {
            self.below(StoreCall::Attributes, || if ask() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
        })
    }

    /// Opens the store's file as the caller, and closes it. Does not truncate. An append-only file must not be
    /// truncated either, so a check for truncation opens without `O_APPEND`.
    fn check_open(&self, caller: &Caller, node: &Node, mode: Mode) -> io::Result<()> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if mode.read { OFlags::RDWR } else { OFlags::WRONLY };
        if mode.append && !mode.truncate {
            flags |= OFlags::APPEND;
        }
        let name = self.descriptor_name(node);
        let wanted = if mode.read { 6 } else { 2 };
        self.impersonator.act(caller, Judge::Node(node, wanted), || {
            self.below(
                StoreCall::Open,
                || Ok(fs::openat(&self.descriptors, &name, flags, fs::Mode::empty()).map(drop)?),
            )
        })
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
        let (found, created) = self.create_below(caller, parent, name, new, exclusive)?;
        let anchor = found.node.anchor_created(&self.store, created, name.map(|name| (parent, name)))?;
        let policy = if name.is_some() { self.policy_for(&found.node) } else { self.policy_for(parent) };
        let (appends, sync, noatime) = (mode.appends_alone(), mode.sync, mode.noatime);
        let how = OpenHow {
            read: true,
            write: true,
            appends,
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
