//! A global store that is a mounted file system, worked on below one directory by descriptor only.

mod anchor;
mod file;
mod identity;
mod locate;
mod locking;
mod opened;
mod sharing;
mod successor;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use types::{Fingerprint, Identity, Timestamp};

use crate::calls::{Store, StoreCall};
use crate::descriptors;
use crate::{Anchor, GlobalStore, StoreAttributes, SyncPoint};
use anchor::PosixAnchor;
pub use locking::{FileLocks, LockedRange};
pub use opened::OpenedForReading;
pub use sharing::is_kernel_from;

/// What cannot be found out, or what the owner knows better.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreOptions {
    /// Whether other machines may change the store; `None` finds it out from the type of the file system.
    pub shared: Option<bool>,
    /// Whether file handles outlive a remount; `None` says yes for everything but FUSE.
    pub durable_handles: Option<bool>,
}

/// A mounted file system from one directory downwards. Cheap to clone.
#[derive(Clone)]
pub struct PosixStore {
    root: Arc<Root>,
}

/// What every anchor shares.
struct Root {
    /// The accelerated directory, as it was given: perhaps only `O_PATH`.
    fd: OwnedFd,
    /// Its file system's `statfs` type.
    kind: i64,
    /// The same opened for reading, which `open_by_handle_at` wants; `None` without permission to read it.
    readable: Option<OwnedFd>,
    /// Whether file handles outlive a remount here.
    handles: bool,
    /// Whether we may open files by their handles.
    opens_handles: bool,
    shared: bool,
    /// Whether a file that takes another's place leaves that one without a name, for who has it to see.
    replaces: bool,
    /// Whether a file's time of change is another after each change that follows a look.
    fine_times: bool,
    /// Where the kernel said last that the root is.
    link: RwLock<PathBuf>,
    /// A file of another user, which he alone may write, could be opened for writing: the store refuses us nothing.
    refuses_nothing: AtomicBool,
    /// Who calls it.
    calls: Store,
    /// How many [`Identified`] there are with each inode number.
    identified: Mutex<HashMap<u64, u64>>,
}

/// A file whose identity was asked for, until this is dropped.
pub struct Identified {
    root: Arc<Root>,
    ino: u64,
    /// The identity.
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
    /// Takes over the directory `root` (an `O_PATH` or ordinary descriptor, for example of an `open_tree` clone).
    ///
    /// Errors: `ENOTDIR` when it is none; what `fstat` and `fstatfs` say.
    pub fn new(root: OwnedFd, options: StoreOptions) -> io::Result<PosixStore> {
        let stat = fs::fstat(&root)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        // Asked once: it is a request to the store.
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
        let (replaces, fine_times) = (sharing::replaces(kind), sharing::has_fine_times(kind));
        let link = RwLock::default();
        let calls = Store::new();
        let identified = Mutex::default();
        let (fd, refuses_nothing) = (root, AtomicBool::new(false));
        let root = Root {
            fd,
            kind,
            readable,
            handles,
            opens_handles,
            shared,
            replaces,
            fine_times,
            link,
            refuses_nothing,
            calls,
            identified,
        };
        Ok(PosixStore { root: Arc::new(root) })
    }

    /// Who is in a call to it.
    pub fn calls(&self) -> Store {
        self.root.calls
    }

    /// The accelerated directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.fd.as_fd()
    }

    /// Anchors a regular file by its `O_PATH` descriptor. `created` is the read-write descriptor that creation gave;
    /// the anchor keeps it for when a later open is refused, and clears its `O_APPEND` and `O_DIRECT`, under which
    /// positioned writes would go elsewhere or fail.
    ///
    /// Errors: `EISDIR` or `EINVAL` for what is no regular file; what `fstat` says.
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

    /// As [`anchor`](PosixStore::anchor), of a regular file whose identity the caller has seen: asks nothing, and shares
    /// the descriptor.
    pub fn anchor_identified(&self, fd: Arc<OwnedFd>, identity: Identity) -> Arc<dyn Anchor> {
        Arc::new(PosixAnchor::new(self.root.clone(), fd, None, identity))
    }

    /// Opens a regular file for reading by its `O_PATH` descriptor, for [`anchor_opened`](PosixStore::anchor_opened). If it is no
    /// longer than `read_max` bytes, these are asked for at once.
    pub fn open_reading(&self, fd: BorrowedFd, read_max: u64) -> io::Result<OpenedForReading> {
        OpenedForReading::new(self.root.calls, fd, read_max)
    }

    /// Where the kernel says that an open file is, below the root; `None`: elsewhere, or its name may be gone.
    pub fn place_of(&self, fd: BorrowedFd) -> Option<PathBuf> {
        let below = proc_link(fd).and_then(|path| self.root.below(&path)).ok()??;
        (!below.as_os_str().as_bytes().ends_with(anchor::DELETED)).then_some(below)
    }

    /// As [`anchor_identified`](PosixStore::anchor_identified), with a descriptor for who reads it first,
    /// and where it was found.
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

    /// As [`anchor_identified`](PosixStore::anchor_identified), of a file that the caller created just now: keeps the
    /// read-write descriptor that this gave, without `O_APPEND` and `O_DIRECT`, for when a later open is refused. `place`: the
    /// directory and the name, if it has one; told as the path hint, once, without looking where it is. With many files open, the
    /// descriptor is closed where the store gives another one.
    pub fn anchor_created(
        &self,
        fd: Arc<OwnedFd>,
        identity: Identity,
        created: OwnedFd,
        place: Option<(BorrowedFd, &OsStr)>,
    ) -> Arc<dyn Anchor> {
        let kept = descriptors::may_keep_created(&created) || !self.opens_again(fd.as_fd(), created.as_fd());
        let mut anchor = PosixAnchor::new(self.root.clone(), fd, kept.then_some(created), identity);
        // Where a file is found by its hint alone, that is asked for.
        if let Some((directory, name)) = place.filter(|_| self.root.opens_handles)
            && let Ok(Some(below)) = proc_link(directory).and_then(|path| self.root.below(&path))
        {
            anchor.created_at(below.join(name));
        }
        Arc::new(anchor)
    }

    /// Whether a file that was created just now can be opened for writing at any time, whatever becomes of its mode bits.
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

    /// As [`anchor_identified`](PosixStore::anchor_identified), of a file that was found at a path below the root just now: that is
    /// told as the path hint, once, without looking where it is.
    pub fn anchor_found(&self, fd: Arc<OwnedFd>, identity: Identity, place: &Path) -> Arc<dyn Anchor> {
        let mut anchor = PosixAnchor::new(self.root.clone(), fd, None, identity);
        // Where a file is found by its hint alone, that is asked for.
        if self.root.opens_handles {
            anchor.created_at(place.to_owned());
        }
        Arc::new(anchor)
    }

    /// The file or directory with this identity as an `O_PATH` descriptor; `None`: it is not there, or not below the root.
    pub fn find(&self, identity: &Identity, hint: &Path) -> io::Result<Option<OwnedFd>> {
        self.root.calls.call(StoreCall::Lookup, || locate::find(&self.root, identity, hint))
    }

    /// The identity of any file below the root: [`identity_of`](PosixStore::identity_of) without its `fstatfs`.
    pub fn identify(&self, fd: BorrowedFd) -> io::Result<Identity> {
        identity::identify(fd, self.root.handles)
    }

    /// What tells a file from all others that somebody has, where that costs no request and its identity does: a FUSE file system is
    /// asked for the time of birth. `None`: the identity is had as cheaply, or has to be asked for.
    pub fn passing_identity(&self, fd: BorrowedFd) -> Option<Identity> {
        if self.root.handles { None } else { identity::passing(fd) }
    }

    /// Asks for the identity of a file with a passing one, and remembers that as long as what it gives is kept.
    pub fn identify_passing(&self, fd: BorrowedFd, ino: u64) -> io::Result<Identified> {
        let identity = self.root.calls.call(StoreCall::Attributes, || self.identify(fd))?;
        *self.root.identified.lock().entry(ino).or_default() += 1;
        Ok(Identified { root: self.root.clone(), ino, identity })
    }

    /// Whether a file with this inode number is identified now.
    pub fn is_identified(&self, ino: u64) -> bool {
        self.root.identified.lock().contains_key(&ino)
    }

    /// How identities of files with this inode number begin, where files have passing ones.
    pub fn starts_of(ino: u64) -> [[u8; 9]; 2] {
        identity::starts_of(ino)
    }

    /// Whether this identity will never be another file's. It will where a store that tells no birth time uses a number again.
    pub fn is_lasting(identity: &Identity) -> bool {
        !identity::is_number_alone(identity)
    }

    /// What tells this accelerated directory from every other one, also after a restart of the machine: the identity of the
    /// directory, and where that is no more than an inode number (a FUSE store that tells no birth time) also what is
    /// mounted there.
    pub fn id_of(fd: BorrowedFd) -> io::Result<String> {
        PosixStore::id_with(fd, identity::handles_are_durable(fd)?)
    }

    /// As [`id_of`](PosixStore::id_of), of the root.
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

    /// The identity of the file behind a descriptor of any kind: its durable handle, else (on FUSE, and where there
    /// are no handles) inode number and birth time.
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

    fn remove_hidden(&self, path: &Path) -> io::Result<bool> {
        let Some(name) = path.file_name().filter(|name| crate::hidden::is_hidden(name)) else { return Ok(false) };
        let parent = path.parent().unwrap_or(Path::new(""));
        self.root.calls.call(StoreCall::Remove, || {
            let directory = match locate::open_beneath(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY) {
                Err(error) if locate::is_elsewhere(&error) => return Ok(false),
                other => other?,
            };
            // A refusal tells nothing of what is there: a file system that is read-only refuses before it looks.
            match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT | Errno::ACCESS) => return Ok(false),
                found if FileType::from_raw_mode(found?.st_mode) != FileType::RegularFile => return Ok(false),
                _ => {}
            }
            match fs::unlinkat(&directory, name, AtFlags::empty()) {
                Err(Errno::NOENT) => Ok(false),
                Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Ok(true),
                other => Ok(other.map(|()| true)?),
            }
        })
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
    /// A descriptor that hears of errors from now on; `None` where the root cannot be opened.
    fn sync_descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let Some(readable) = &self.readable else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.calls.call(StoreCall::Sync, || match fs::openat(readable, ".", flags, Mode::empty()) {
            Ok(own) => Ok(Some(own)),
            // It may not be read any more: one that shares what it hears still syncs.
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Ok(Some(readable.try_clone()?)),
            Err(error) => Err(error.into()),
        })
    }

    /// `syncfs`, or `sync` of the whole machine where the root cannot be opened.
    fn sync_by(&self, fd: Option<&OwnedFd>) -> io::Result<()> {
        self.calls.call(StoreCall::Sync, || {
            match fd {
                Some(fd) => fs::syncfs(fd)?,
                None => fs::sync(),
            }
            Ok(())
        })
    }

    /// Errors of what others wrote are theirs to hear.
    fn sync(&self) -> io::Result<()> {
        self.sync_by(self.sync_descriptor()?.as_ref())
    }
}

impl Root {
    /// What follows the root in an absolute path; `None`: it is elsewhere. The root's own path is asked for when it does not
    /// fit any more, or where hints are all there is to find a file by: after some renames above it an old one may fit wrongly.
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

/// Another descriptor of a file, which is only `O_PATH`. Not by way of `/proc`, where each descriptor that is looked at costs the
/// kernel an inode.
pub fn reopen_as_path(fd: BorrowedFd) -> io::Result<OwnedFd> {
    use rustix::mount::{OpenTreeFlags, open_tree};
    match open_tree(fd, "", OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH) {
        Ok(path) => Ok(path),
        // A sandbox may refuse it.
        Err(_) => Ok(fs::open(proc_path(fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
    }
}

/// Tried on the root itself.
fn opens_handles(root: BorrowedFd) -> bool {
    identity::identify(root, true)
        .and_then(|identity| identity::open_by_handle(root, &identity))
        .is_ok_and(|found| matches!(found, identity::ByHandle::Found(_)))
}

/// The path through which a descriptor is reopened. It is short enough that no allocation matters.
fn proc_path(fd: BorrowedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Where the kernel says that a descriptor's file is now.
fn proc_link(fd: BorrowedFd) -> io::Result<PathBuf> {
    std::fs::read_link(proc_path(fd))
}

fn attributes_of(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    Ok(told(&fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?))
}

/// [`attributes_of`], past the caches of the file system's client.
fn attributes_now_of(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    match fs::statx(fd, "", flags, StatxFlags::BASIC_STATS) {
        // A sandbox may refuse it.
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

/// As [`attributes_of`], as this machine has them in memory: they cost no request.
fn attributes_in_memory(fd: BorrowedFd) -> io::Result<StoreAttributes> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(told(&fs::statx(fd, "", flags, StatxFlags::BASIC_STATS)?))
}

fn reopen(fd: BorrowedFd, flags: OFlags) -> io::Result<File> {
    Ok(File::from(fs::open(proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())?))
}
