//! A global store on a mounted file system, accessed below one directory by descriptor only.

mod anchor;
mod file;
mod identity;
pub mod lease;
mod locate;
mod locking;
mod opened;
mod sharing;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, RwLock};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use types::{Fingerprint, Identity, Timestamp};

use crate::calls::{Store, StoreCall};
use crate::descriptors;
use crate::{Anchor, GlobalStore, StoreAttributes, StoreFile, SyncPoint};
use anchor::PosixAnchor;
use file::PosixFile;
pub use locking::{FileLocks, LockedRange};
pub use opened::OpenedForReading;
pub use sharing::is_kernel_from;

/// Properties of the store that cannot be detected, or that the administrator overrides.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreOptions {
    /// Whether other machines may change the store; `None` derives it from the file system type.
    pub shared: Option<bool>,
    /// Whether file handles stay valid after a remount; `None` assumes so for every type but FUSE.
    pub durable_handles: Option<bool>,
}

/// A mounted file system from one directory downwards. Cheap to clone.
#[derive(Clone)]
pub struct PosixStore {
    root: Arc<Root>,
}

/// State shared by all anchors of a store.
struct Root {
    /// Descriptor of the accelerated directory, as given by the caller; it may be `O_PATH`.
    fd: OwnedFd,
    /// `statfs` type of the file system.
    kind: i64,
    /// Descriptor of the accelerated directory opened for reading, as `open_by_handle_at` needs; `None` without read
    /// permission.
    readable: Option<OwnedFd>,
    /// Whether file handles stay valid after a remount.
    handles: bool,
    /// Whether this process may open files by their handles.
    opens_handles: bool,
    shared: bool,
    /// Whether every change after a `stat` gives the file a new ctime ([`sharing::has_fine_times`]).
    fine_times: bool,
    /// Path of the root that the kernel last reported.
    link: RwLock<PathBuf>,
    /// Whether a file of another user, writable only by that user, could be opened for writing. The store then refuses
    /// us nothing.
    refuses_nothing: AtomicBool,
    /// Registry of calls to this store.
    calls: Store,
    /// Number of live [`Identified`] values for each inode number.
    identified: Mutex<HashMap<u64, u64>>,
}

/// The requested identity of a file, registered until this value is dropped.
pub struct Identified {
    root: Arc<Root>,
    ino: u64,
    /// Identity of the file.
    pub identity: Identity,
}

impl Drop for Identified {
    fn drop(&mut self) {
        let mut identified = self.root.identified.lock();
        if let Some(count) = identified.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                identified.remove(&self.ino);
            }
        }
    }
}

impl PosixStore {
    /// Creates a store on the directory `root` (an `O_PATH` or ordinary descriptor, for example of an `open_tree`
    /// clone).
    ///
    /// Errors: `ENOTDIR` if `root` is not a directory; those of `fstat` and `fstatfs`.
    pub fn new(root: OwnedFd, options: StoreOptions) -> io::Result<PosixStore> {
        let stat = fs::fstat(&root)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        // Cached, because `fstatfs` is a request to the store.
        let kind = fs::fstatfs(&root)?.f_type as i64;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = fs::openat(&root, ".", flags, Mode::empty()).ok();
        let handles = match options.durable_handles {
            Some(known) => known,
            None => kind != identity::FUSE_MAGIC,
        };
        let shared = match options.shared {
            Some(known) => known,
            None => sharing::is_shared(kind, stat.st_dev)?,
        };
        let opens_handles = handles && readable.as_ref().is_some_and(|fd| opens_handles(fd.as_fd()));
        let fine_times = sharing::has_fine_times(kind);
        let link = RwLock::default();
        let calls = Store::register();
        let identified = Mutex::default();
        let (fd, refuses_nothing) = (root, AtomicBool::new(false));
        let root = Root {
            fd,
            kind,
            readable,
            handles,
            opens_handles,
            shared,
            fine_times,
            link,
            refuses_nothing,
            calls,
            identified,
        };
        Ok(PosixStore { root: Arc::new(root) })
    }

    /// Returns the registry of calls to this store.
    pub fn calls(&self) -> Store {
        self.root.calls
    }

    /// Returns the descriptor of the accelerated directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.fd.as_fd()
    }

    /// Anchors a regular file by its `O_PATH` descriptor.
    ///
    /// `created` is the read-write descriptor from the file's creation. The anchor keeps it for the case that a later
    /// open is refused. `O_APPEND` and `O_DIRECT` are cleared on it, because positioned writes would go elsewhere or
    /// fail with them.
    ///
    /// Errors: `EISDIR` for a directory, `EINVAL` for other files that are not regular; those of `fstat`.
    pub fn anchor(&self, fd: OwnedFd, created: Option<OwnedFd>) -> io::Result<Arc<dyn Anchor>> {
        match FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
        if let Some(created) = &created {
            let flags = fs::fcntl_getfl(created)?;
            let surprising = OFlags::APPEND | OFlags::DIRECT;
            if flags.intersects(surprising) {
                fs::fcntl_setfl(created, flags - surprising)?;
            }
        }
        let identity = self.identify(fd.as_fd())?;
        Ok(Arc::new(PosixAnchor::new(self.root.clone(), Arc::new(fd), created, identity)))
    }

    /// Anchors a regular file like [`anchor`](PosixStore::anchor), with an identity that the caller already knows.
    /// Sends no request and shares the descriptor.
    pub fn anchor_identified(&self, fd: Arc<OwnedFd>, identity: Identity) -> Arc<dyn Anchor> {
        Arc::new(PosixAnchor::new(self.root.clone(), fd, None, identity))
    }

    /// Opens a regular file for reading by its `O_PATH` descriptor, for [`anchor_opened`](PosixStore::anchor_opened).
    /// Reading ahead starts at once if the file has at most `read_max` bytes.
    pub fn open_reading(&self, fd: BorrowedFd, read_max: u64) -> io::Result<OpenedForReading> {
        OpenedForReading::new(self.root.calls, fd, read_max)
    }

    /// Returns the path of an open file below the root according to the kernel. `None`: the file is elsewhere, or its
    /// name may have been removed.
    pub fn place_of(&self, fd: BorrowedFd) -> Option<PathBuf> {
        let below = proc_link(fd).and_then(|path| self.root.below(&path)).ok()??;
        (!below.as_os_str().as_bytes().ends_with(anchor::DELETED)).then_some(below)
    }

    /// Anchors a file like [`anchor_identified`](PosixStore::anchor_identified). `place` is the path where it was
    /// found. The first reader uses the descriptor `opened`.
    pub fn anchor_opened(
        &self,
        fd: Arc<OwnedFd>,
        identity: Identity,
        place: Option<PathBuf>,
        opened: Option<OpenedForReading>,
    ) -> Arc<dyn Anchor> {
        let mut anchor = PosixAnchor::new(self.root.clone(), fd, None, identity);
        anchor.opened_as(opened);
        if let Some(place) = place {
            anchor.created_at(place);
        }
        Arc::new(anchor)
    }

    /// Anchors a file that the caller has just created, like [`anchor_identified`](PosixStore::anchor_identified).
    ///
    /// Keeps the read-write descriptor `created`, without `O_APPEND` and `O_DIRECT`, for the case that a later open is
    /// refused. If many files are open, this descriptor is closed where the store opens the file again.
    ///
    /// `place` is the directory and the name, if there is one. The first path hint is derived from it without asking
    /// the kernel.
    pub fn anchor_created(
        &self,
        fd: Arc<OwnedFd>,
        identity: Identity,
        created: OwnedFd,
        place: Option<(BorrowedFd, &OsStr)>,
    ) -> Arc<dyn Anchor> {
        let kept = descriptors::may_keep_created(&created) || !self.opens_again(fd.as_fd(), created.as_fd());
        let mut anchor = PosixAnchor::new(self.root.clone(), fd, kept.then_some(created), identity);
        // If the store finds files only by hint, the present path is requested when needed.
        if let Some((directory, name)) = place.filter(|_| self.root.opens_handles)
            && let Ok(Some(below)) = proc_link(directory).and_then(|path| self.root.below(&path))
        {
            anchor.created_at(below.join(name));
        }
        Arc::new(anchor)
    }

    /// Returns the file that a caller has just created, for reading and writing, by the descriptor of its creation. No request is
    /// made for it.
    pub fn file_created(&self, created: OwnedFd) -> Box<dyn StoreFile> {
        Box::new(PosixFile::new(self.root.calls, created.into(), false))
    }

    /// Returns whether a newly created file can be opened for writing later, whatever happens to its mode bits.
    fn opens_again(&self, fd: BorrowedFd, created: BorrowedFd) -> bool {
        if self.root.refuses_nothing.load(Ordering::Relaxed) {
            return true;
        }
        self.root.calls.call(StoreCall::Open, || {
            let Ok(stat) = fs::fstat(created) else { return false };
            let (ours, mode) = (stat.st_uid == rustix::process::geteuid().as_raw(), Mode::from_raw_mode(stat.st_mode));
            if ours {
                return mode.contains(Mode::RUSR | Mode::WUSR);
            }
            let opens = reopen(fd, OFlags::RDWR).is_ok();
            if opens && !mode.intersects(Mode::WGRP | Mode::WOTH) {
                self.root.refuses_nothing.store(true, Ordering::Relaxed);
            }
            opens
        })
    }

    /// Anchors a file that was just found at the path `place` below the root, like
    /// [`anchor_identified`](PosixStore::anchor_identified). The first path hint is `place`, without asking the kernel.
    pub fn anchor_found(&self, fd: Arc<OwnedFd>, identity: Identity, place: &Path) -> Arc<dyn Anchor> {
        let mut anchor = PosixAnchor::new(self.root.clone(), fd, None, identity);
        // If the store finds files only by hint, the present path is requested when needed.
        if self.root.opens_handles {
            anchor.created_at(place.to_owned());
        }
        Arc::new(anchor)
    }

    /// Finds a file or directory by identity and returns an `O_PATH` descriptor. `None`: it does not exist, or not
    /// below the root.
    pub fn find(&self, identity: &Identity, hint: &Path) -> io::Result<Option<OwnedFd>> {
        self.root.calls.call(StoreCall::Lookup, || locate::find(&self.root, identity, hint))
    }

    /// Returns the identity of any file below the root, like [`identity_of`](PosixStore::identity_of) but without its
    /// `fstatfs`.
    pub fn identify(&self, fd: BorrowedFd) -> io::Result<Identity> {
        identity::identify(fd, self.root.handles)
    }

    /// Returns an identity that is valid while the file is open and costs no request.
    ///
    /// For FUSE file systems only, where the lasting identity costs a request for the birth time. `None`: the lasting
    /// identity is equally cheap, or has to be requested.
    pub fn passing_identity(&self, fd: BorrowedFd) -> Option<Identity> {
        if self.root.handles { None } else { identity::passing(fd) }
    }

    /// Requests the lasting identity of a file with a passing identity, and registers it until the result is dropped.
    pub fn identify_passing(&self, fd: BorrowedFd, ino: u64) -> io::Result<Identified> {
        let identity = self.root.calls.call(StoreCall::Attributes, || self.identify(fd))?;
        *self.root.identified.lock().entry(ino).or_default() += 1;
        Ok(Identified { root: self.root.clone(), ino, identity })
    }

    /// Returns whether a file with this inode number is registered as identified.
    pub fn is_identified(&self, ino: u64) -> bool {
        self.root.identified.lock().contains_key(&ino)
    }

    /// Returns the first bytes of identities of files with this inode number, for stores with passing identities.
    pub fn starts_of(ino: u64) -> [[u8; 9]; 2] {
        identity::starts_of(ino)
    }

    /// Returns whether this identity will never belong to another file. False if it contains only an inode number,
    /// which a store may reuse.
    pub fn is_lasting(identity: &Identity) -> bool {
        !identity::is_number_alone(identity)
    }

    /// Returns a string that identifies this accelerated directory, even after a reboot.
    ///
    /// That is the identity of the directory. If the identity is only an inode number (a FUSE store without birth
    /// times), file system type and source of the mount are appended.
    pub fn id_of(fd: BorrowedFd) -> io::Result<String> {
        PosixStore::id_with(fd, identity::handles_are_durable(fd)?)
    }

    /// Returns the string of [`id_of`](PosixStore::id_of) for the root.
    pub fn id(&self) -> io::Result<String> {
        PosixStore::id_with(self.root(), self.root.kind != identity::FUSE_MAGIC)
    }

    fn id_with(fd: BorrowedFd, handles: bool) -> io::Result<String> {
        let identity = identity::identify(fd, handles)?;
        if !identity::is_number_alone(&identity) {
            return Ok(identity.to_string());
        }
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mounted = sharing::mounted_as(&table, fs::fstat(fd)?.st_dev);
        Ok(mounted.map_or_else(|| identity.to_string(), |(kind, source)| format!("{identity} {kind} {source}")))
    }

    /// Returns the identity of the file behind any descriptor. That is its durable handle or - on FUSE, and without
    /// handles - its inode number and birth time.
    pub fn identity_of(fd: BorrowedFd) -> io::Result<Identity> {
        identity::identify(fd, identity::handles_are_durable(fd)?)
    }
}

impl GlobalStore for PosixStore {
    fn locate(&self, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<Arc<dyn Anchor>>> {
        let found = self.root.calls.call(StoreCall::Lookup, || locate::locate(&self.root, identity, hint, scan))?;
        Ok(found.map(|fd| {
            Arc::new(PosixAnchor::new(self.root.clone(), Arc::new(fd), None, identity.clone())) as Arc<dyn Anchor>
        }))
    }

    fn sync_point(&self) -> io::Result<Box<dyn SyncPoint>> {
        Ok(Box::new(Point { fd: self.root.sync_descriptor()?, root: Arc::clone(&self.root) }))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.root.sync()
    }

    fn free_bytes(&self) -> Option<u64> {
        let now = self.root.calls.call(StoreCall::Attributes, || rustix::fs::fstatvfs(&self.root.fd)).ok()?;
        Some(now.f_bavail.saturating_mul(now.f_frsize))
    }

    fn is_shared(&self) -> bool {
        self.root.shared
    }

    fn tells_changes_apart(&self) -> bool {
        self.root.fine_times
    }

    fn finds_by_identity(&self) -> bool {
        self.root.opens_handles
    }
}

struct Point {
    root: Arc<Root>,
    fd: Option<OwnedFd>,
}

impl SyncPoint for Point {
    fn sync(&self) -> io::Result<()> {
        self.root.sync_by(self.fd.as_ref())
    }
}

impl Root {
    /// Opens a descriptor that receives write-back errors from now on; `None` if the root cannot be opened.
    fn sync_descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let Some(readable) = &self.readable else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.calls.call(StoreCall::Sync, || match fs::openat(readable, ".", flags, Mode::empty()) {
            Ok(own) => Ok(Some(own)),
            // The root is no longer readable. A duplicate of the old descriptor shares its error state but still syncs.
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Ok(Some(readable.try_clone()?)),
            Err(error) => Err(error.into()),
        })
    }

    /// Calls `syncfs`, or `sync` for the whole machine if the root cannot be opened.
    fn sync_by(&self, fd: Option<&OwnedFd>) -> io::Result<()> {
        self.calls.call(StoreCall::Sync, || {
            match fd {
                Some(fd) => fs::syncfs(fd)?,
                None => fs::sync(),
            }
            Ok(())
        })
    }

    /// Syncs the store through a new descriptor, which leaves earlier write-back errors to other descriptors.
    fn sync(&self) -> io::Result<()> {
        self.sync_by(self.sync_descriptor()?.as_ref())
    }
}

impl Root {
    /// Returns the part of an absolute path below the root; `None`: the path is elsewhere.
    ///
    /// The cached path of the root is refreshed if `path` does not lie below it. It is not used at all if files can be
    /// found only by hint. After renames above the root, a stale path could match wrongly.
    fn below(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        if self.opens_handles {
            let link = self.link.read();
            if !link.as_os_str().is_empty()
                && let Ok(below) = path.strip_prefix(&*link)
            {
                return Ok(Some(below.to_path_buf()));
            }
        }
        let root = proc_link(self.fd.as_fd())?;
        let below = path.strip_prefix(&root).ok().map(Path::to_path_buf);
        *self.link.write() = root;
        Ok(below)
    }
}

/// Opens another descriptor of a file, with `O_PATH` only. Avoids `/proc`, where each descriptor looked at costs the
/// kernel an inode.
pub fn reopen_as_path(fd: BorrowedFd) -> io::Result<OwnedFd> {
    use rustix::mount::{OpenTreeFlags, open_tree};
    match open_tree(fd, "", OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH) {
        Ok(path) => Ok(path),
        // A sandbox may refuse `open_tree`.
        Err(_) => Ok(fs::open(proc_path(fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
    }
}

/// Returns whether this process may open files by handle, tested on the root itself.
fn opens_handles(root: BorrowedFd) -> bool {
    identity::identify(root, true)
        .and_then(|identity| identity::open_by_handle(root, &identity))
        .is_ok_and(|found| matches!(found, identity::ByHandle::Found(_)))
}

/// Returns the path through which a descriptor is reopened.
fn proc_path(fd: BorrowedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns the present path of a descriptor's file according to the kernel.
fn proc_link(fd: BorrowedFd) -> io::Result<PathBuf> {
    std::fs::read_link(proc_path(fd))
}

fn attributes_of(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    Ok(told(&fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?))
}

/// Returns attributes like [`attributes_of`], bypassing the caches of the file system's client.
fn attributes_now_of(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match fs::statx(fd, "", flags, StatxFlags::BASIC_STATS) {
        // A sandbox may refuse the flag.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => attributes_of(fd),
        stat => Ok(told(&stat?)),
    }
}

fn told(stat: &fs::Statx) -> StoreAttributes {
    let time = |time: fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanos: time.tv_nsec };
    let (mode, links) = (u32::from(stat.stx_mode), u64::from(stat.stx_nlink));
    StoreAttributes {
        fingerprint: Fingerprint {
            size: stat.stx_size,
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            attributes: Fingerprint::attributes_of(mode, stat.stx_uid, stat.stx_gid, links),
        },
        atime: time(stat.stx_atime),
        links,
        mode,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        append_only: stat.stx_attributes.contains(fs::StatxAttributes::APPEND),
    }
}

/// Returns attributes like [`attributes_of`], but from this machine's memory, without a request.
fn attributes_in_memory(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(told(&fs::statx(fd, "", flags, StatxFlags::BASIC_STATS)?))
}

fn reopen(fd: BorrowedFd, flags: OFlags) -> io::Result<File> {
    Ok(File::from(fs::open(proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())?))
}
