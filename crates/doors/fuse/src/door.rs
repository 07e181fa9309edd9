//! The door itself: state and functions that its operations share.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent::Store;
use agent::descriptors::{Charge, DescriptorOwner};
use agent::locks::{LockRequest, owner as owner_of};
use agent::{Agent, Announced, FileAttributes, FoundNode, Mode, OpenDirectory, OpenFile};
use data_store::StoreObserver;
use fuse_protocol::{
    Attr, AttrReply, DirSink, Entry, Errno, Handle, KernelConfig, LockArgs, NodeId, Notifier, OpenReply, Pages,
    Request, init_flags,
};
use types::LockKind;

use crate::coherence::{Refresh, Refreshing, SharedFile};
use crate::convert;
use crate::failures::LastFailure;
use crate::handles::{DoorHandles, FileOf};
use crate::limits;
use crate::nodes::{Known, Nodes};
use crate::only_user::OnlyUser;
use crate::opens::{Abilities, Bypasses};
use crate::registrations::Registrations;
use crate::trust::TrustedNames;

/// File system that one kernel sees.
pub struct Door {
    pub(crate) agent: Arc<Agent>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) handles: DoorHandles,
    registrations: OnceLock<Arc<Registrations>>,
    can: OnceLock<Abilities>,
    passthrough: bool,
    /// Client whose kernel this door serves; 0 is this machine's kernel.
    pub(crate) client: u64,
    direct_mmap: bool,
    pub(crate) only_user: Option<OnlyUser>,
    /// Identity under which this door's threads call the global store.
    pub(crate) asker: u64,
    /// Whether the global store was found not to answer.
    pub(crate) hangs: AtomicBool,
    pub(crate) refreshing: Refreshing,
    pub(crate) last_failure: LastFailure,
    /// Names that the kernel trusts while their directory is held exclusively.
    pub(crate) trusted: Arc<TrustedNames>,
    /// Pages that this machine's kernel has of files shared with other nodes.
    pub(crate) pages: Arc<Pages>,
}

impl Door {
    /// Creates a door over an agent. `passthrough`: whether to use passthrough where the kernel offers it.
    pub fn new(agent: Arc<Agent>, passthrough: bool) -> Door {
        let nodes = Nodes::new(agent.root().clone());
        Door { passthrough, ..Door::over(agent, nodes, DoorHandles::default()) }
    }

    /// Creates a door for the kernel of another machine. `numbers`: the last number given. All such doors of this
    /// process take node and handle numbers from it. It starts above every number that an earlier process can have
    /// given, so no number ever gets a second meaning.
    pub fn of_client(agent: Arc<Agent>, client: u64, numbers: &Arc<AtomicU64>) -> Door {
        let nodes = Nodes::of(agent.root().clone(), Arc::clone(numbers));
        let handles = DoorHandles::of(Arc::clone(numbers), Errno::ESTALE);
        Door { client, ..Door::over(agent, nodes, handles) }
    }

    fn over(agent: Arc<Agent>, nodes: Nodes, handles: DoorHandles) -> Door {
        Door {
            agent,
            nodes: Arc::new(nodes),
            handles,
            registrations: OnceLock::new(),
            can: OnceLock::new(),
            passthrough: false,
            direct_mmap: true,
            only_user: None,
            client: 0,
            asker: Store::mint(),
            hangs: AtomicBool::new(false),
            refreshing: Refreshing::default(),
            last_failure: LastFailure::default(),
            trusted: Arc::default(),
            pages: Arc::default(),
        }
    }

    /// Sets whether direct files may be mapped where the kernel supports that.
    pub fn with_direct_mmap(self, direct_mmap: bool) -> Door {
        Door { direct_mmap, ..self }
    }

    /// Sets the one user that the kernel knows, if it knows only one.
    pub fn for_user(self, only_user: Option<OnlyUser>) -> Door {
        Door { only_user, ..self }
    }

    /// Converts attributes to those shown to this kernel.
    pub(crate) fn shown(&self, attributes: &FileAttributes) -> Attr {
        let mut attr = convert::attr(attributes);
        self.only_user.iter().for_each(|user| user.show(&mut attr));
        attr
    }

    /// Returns whether others change files without this kernel's knowledge.
    pub(crate) fn is_shared(&self) -> bool {
        self.client != 0 || self.agent.is_shared()
    }

    /// Returns whether this machine's kernel caches files that other nodes may change. The kernel of a client drops its
    /// pages by itself.
    fn caches_shared(&self) -> bool {
        self.client == 0 && self.agent.is_shared()
    }

    /// Marks a request whose handler may refresh files. These are the request's own file, or one whose lock passes to
    /// another program.
    pub(crate) fn refreshes(&self, req: &Request) -> Option<Refresh<'_>> {
        self.caches_shared().then(|| self.refreshing.begin(req.unique))
    }

    /// Returns the file if this node caches pages or read-ahead of it and other nodes may change it.
    pub(crate) fn shared(&self, known: &Arc<Known>) -> Option<SharedFile> {
        self.caches_shared().then(|| SharedFile {
            agent: Arc::clone(&self.agent),
            notifier: self.notifier().cloned(),
            known: Arc::clone(known),
            pages: Arc::clone(&self.pages),
        })
    }

    /// Returns the remembered pages, if this node has any of the file and shares it with other nodes.
    pub(crate) fn pages_of(&self, node: NodeId) -> Option<&Pages> {
        (self.caches_shared() && self.pages.follows(node)).then_some(&*self.pages)
    }

    /// Sets the connection to the kernel. Without it nothing is passed through.
    pub fn connect(&self, notifier: Notifier) {
        let registrations = Arc::new(Registrations::new(notifier));
        let (idle, prepared) = (Arc::downgrade(&registrations), Arc::downgrade(&registrations));
        // A second connection would be a caller's mistake; the first one stays.
        if self.registrations.set(registrations).is_ok()
            && self.passthrough
            && let Some(index) = self.agent.data().extensions().index
        {
            index.observe(StoreObserver::Removals(Box::new(move |version| {
                idle.upgrade().iter().for_each(|idle| idle.end(version));
            })));
            index.observe(StoreObserver::Ready(Box::new(move |version, atime, file| {
                prepared.upgrade().iter().for_each(|prepared| prepared.prepare(version, atime, file));
            })));
        }
    }

    pub(crate) fn registrations(&self) -> Option<&Arc<Registrations>> {
        self.registrations.get()
    }

    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.registrations.get().map(|registrations| registrations.notifier())
    }

    /// Chooses among the features that the kernel offers. Returns the INIT flags, and the stack depth for passthrough
    /// (0: no passthrough).
    pub(crate) fn agree(&self, kernel: &KernelConfig) -> (u64, u32) {
        use init_flags as flag;
        let passthrough = self.passthrough && kernel.can_passthrough;
        let direct_mmap = self.direct_mmap && kernel.flags & flag::DIRECT_IO_ALLOW_MMAP != 0;
        // `set` succeeds, since INIT comes once.
        let _ = self.can.set(Abilities { passthrough, direct_mmap });
        let mut flags = flag::ASYNC_READ
            | flag::POSIX_LOCKS
            | flag::FLOCK_LOCKS
            | flag::ATOMIC_O_TRUNC
            | flag::AUTO_INVAL_DATA
            | flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::ASYNC_DIO
            | flag::PARALLEL_DIROPS
            | flag::HANDLE_KILLPRIV_V2
            | flag::CACHE_SYMLINKS
            | flag::HAS_EXPIRE_ONLY
            | flag::NO_EXPORT_SUPPORT;
        if self.direct_mmap {
            flags |= flag::DIRECT_IO_ALLOW_MMAP;
        }
        if self.agent.keeps_acls() {
            // With ACLs the kernel leaves the umask to us, since a default ACL replaces it.
            flags |= flag::DONT_MASK;
            // A kernel that knows only one user cannot read ACLs that name others, and would then refuse every
            // access.
            flags |= if self.only_user.is_none() { flag::POSIX_ACL } else { 0 };
        }
        (flags, if passthrough { limits::REPLICA_STACK_DEPTH } else { 0 })
    }

    pub(crate) fn node(&self, id: NodeId) -> Result<Arc<Known>, Errno> {
        self.nodes.get(id).ok_or(Errno::ESTALE)
    }

    /// Makes the next lookup of this file find a new node. Other names may continue to lead to this one.
    fn retire(&self, known: &Known) {
        self.nodes.retire(known);
        if let Some(notifier) = self.notifier() {
            // Only the attributes are invalidated: that takes no lock that the current request could hold. It fails
            // if the node is gone, and then nothing is to be done.
            let _ = notifier.inval_inode(known.id, -1, 0);
        }
    }

    /// Counts a lookup. Returns the node and the kernel's entry for it.
    pub(crate) fn entry(&self, found: FoundNode, parent: NodeId, name: Option<&OsStr>) -> (Arc<Known>, Entry) {
        let known = self.nodes.looked_up(found.node, name.map(|name| (parent, name)));
        self.keep_told(&known, &found.attributes);
        let attr = self.shown(&found.attributes);
        let mut entry = Entry { node: known.id, attr, entry_valid: Duration::ZERO, attr_valid: Duration::ZERO };
        if !self.is_doubtful(&known) {
            let named = name.and_then(|name| self.trusted_name(parent, name, known.id));
            entry.entry_valid = self.valid(&known, named);
            entry.attr_valid = self.valid(&known, None);
        }
        (known, entry)
    }

    pub(crate) fn attributes(&self, known: &Known) -> Result<AttrReply, Errno> {
        if self.hangs()
            && let Some(told) = self.told_before(known)
        {
            return Ok(told);
        }
        let outdated = if known.is_retired() { self.handles.outdated(known) } else { None };
        let attributes = match &outdated {
            Some(file) => self.agent.attributes_of_version(&file.open),
            None => self.agent.attributes(&known.node),
        };
        Ok(self.told(known, &attributes?))
    }

    pub(crate) fn told(&self, known: &Known, attributes: &FileAttributes) -> AttrReply {
        self.keep_told(known, attributes);
        AttrReply { attr: self.shown(attributes), valid: self.attributes_valid(known) }
    }

    /// Returns the owner to which an open file's descriptors are charged.
    pub(crate) fn owner(&self, uid: u32) -> DescriptorOwner {
        if self.client == 0 { DescriptorOwner::User(uid) } else { DescriptorOwner::Node(self.client) }
    }

    pub(crate) fn open_file(&self, req: &Request, known: &Arc<Known>, mode: Mode) -> Result<OpenReply, Errno> {
        // The kernel itself refuses writers of a running program, but asks us to truncate before it checks.
        if mode.truncate && !mode.write && known.open.lock().is_executed() {
            return Err(Errno::ETXTBSY);
        }
        // A file that is also read should stay in a replica that the kernel reads directly; so a mild registration
        // gets no window here.
        let free = mode.truncate || self.agent.is_shared();
        let announced = self.agent.announced(req.pid).filter(|announced| free || !announced.is_mild());
        if announced.is_none() {
            // Acknowledged writes in windows are applied before this open truncates or reads.
            match self.agent.end_windows(&known.node, mode.write || mode.truncate) {
                // A window that cannot be applied is truncated away as well.
                Err(_) if mode.truncate => {}
                ended => ended?,
            }
        }
        let charge = known.open.lock().may_open(self.owner(req.uid))?;
        let opened = self.agent.open(&convert::caller(req), &known.node, mode, &|| req.interrupted());
        let open = opened.map_err(self.failed("open", &known.node))?;
        self.admit(req, known, (open, charge), announced)
    }

    pub(crate) fn abilities(&self) -> Abilities {
        self.can.get().copied().unwrap_or(Abilities { passthrough: false, direct_mmap: false })
    }

    /// Answers an open by the rules of [`crate::opens`], and adds the open file to the handles.
    pub(crate) fn admit(
        &self,
        req: &Request,
        known: &Arc<Known>,
        (open, charge): (OpenFile, Option<Charge>),
        announced: Option<Announced>,
    ) -> Result<OpenReply, Errno> {
        let can = self.abilities();
        let answer = {
            let mut state = known.open.lock();
            let wanted = announced.is_some() && state.is_all_windowed() && !self.nodes.is_split(known);
            if wanted && state.is_closed() {
                // A window that was closed without a wait may have unapplied records, and the file then still counts
                // as used.
                self.agent.end_windows(&known.node, open.changes())?;
            }
            let windowed = wanted && state.can_window(&open, can) && open.may_have_window(state.is_closed());
            if !windowed {
                // This open may read the file without our knowledge. The lock is held, so nobody gets a window
                // between this and the answer.
                self.agent.end_windows(&known.node, open.changes())?;
            }
            let answer = state.admit(&open, req.pid, can, self.registrations.get().map(Arc::as_ref), windowed);
            if answer.is_ok() {
                state.charge(&open, charge);
            }
            answer
        };
        let mut opened = answer.inspect_err(|_| {
            self.retire(known);
            // The kernel looks the name up again only once; a second refusal would reach the program.
            while let Some(newest) = self.nodes.newest(known.node.key())
                && !newest.open.lock().welcomes(&open, can)
            {
                self.retire(&newest);
            }
        })?;
        if open.has_window_right() {
            announced.iter().for_each(Announced::grant);
            if let Some(notifier) = self.notifier() {
                // The attributes that the kernel has would stay valid for a while, and it does not see writes to a
                // window.
                let _ = notifier.inval_inode(known.id, -1, 0);
            }
        }
        opened.handle = self.handles.add_file(FileOf { known: known.clone(), open, bypasses: opened.bypasses() });
        Ok(opened)
    }

    /// Invalidates the bytes of a write that bypassed the page cache, if other opens use that cache.
    pub(crate) fn wrote(&self, file: &FileOf, offset: u64, len: usize) {
        if !file.bypasses || !file.known.open.lock().is_cached() {
            return;
        }
        if let Some(notifier) = self.notifier() {
            // Fails if the node is gone; then nothing is to be invalidated.
            let _ = notifier.inval_inode(file.known.id, offset as i64, len as i64);
        }
    }

    pub(crate) fn release_file(&self, handle: Handle, flock_owner: Option<u64>) {
        let Some(file) = self.handles.remove_file(handle) else { return };
        let node = &file.known.node;
        if let Some(owner) = flock_owner {
            self.agent.unlock_flock(node, owner_of(self.client, owner));
        }
        self.agent.release_locks_of_handle(node, handle);
        // The kernel's registration is left before the replica's user goes: a remover of unused replicas then finds
        // it.
        file.known.open.lock().leave(&file.open, file.bypasses, self.registrations.get().map(Arc::as_ref));
    }

    pub(crate) fn list(
        &self,
        parent: NodeId,
        directory: &dyn OpenDirectory,
        offset: u64,
        plus: bool,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        let parent_known = self.node(parent)?;
        // The kernel would not trust attributes of shared files, and while the server is away each of them would wait
        // for it.
        let plus = plus && !self.is_shared();
        directory.read(offset, &mut |entry| {
            let (name, kind) = (entry.name.as_os_str(), convert::kind(entry.kind));
            if !plus || name == "." || name == ".." {
                return sink.add(entry.ino, entry.next, kind, name);
            }
            // Looked up only if the entry fits: an entry that is not returned counts as no lookup.
            if !sink.remaining_for(name) {
                return false;
            }
            match self.agent.lookup(&parent_known.node, name) {
                Ok(found) => {
                    let (known, found) = self.entry(found, parent, Some(name));
                    let added = sink.add_plus(&found, entry.next, name);
                    if !added {
                        self.forget_lookups(known.id, 1);
                    }
                    added
                }
                // The file is gone or unreadable: its name alone is returned.
                Err(_) => sink.add(entry.ino, entry.next, kind, name),
            }
        })?;
        Ok(())
    }
}

/// Converts a lock request of the kernel. Returns `None` for an unlock. Errors: `EINVAL` for an unknown lock type.
pub(crate) fn lock_request(client: u64, lock: &LockArgs, handle: Handle) -> Result<Option<LockRequest>, Errno> {
    let kind = match lock.kind {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => return Ok(None),
        _ => return Err(Errno::EINVAL),
    };
    let owner = owner_of(client, lock.owner);
    Ok(Some(if lock.flock {
        LockRequest::flock(kind, owner, lock.pid, handle)
    } else {
        LockRequest::range(lock.start, lock.end, kind, owner, lock.pid, handle)
    }))
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
