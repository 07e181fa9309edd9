//! A file held by an `O_PATH` descriptor.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use concurrency::Mutex;
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use types::{Identity, Timestamp};

use super::file::PosixFile;
use super::opened::OpenedForReading;
use super::{Root, attributes_in_memory, attributes_now_of, attributes_of, locate, proc_link, proc_path, reopen};
use crate::calls::StoreCall;
use crate::limits::{MARK_BYTES_MAX, SYNC_NAME_TRIES};
use crate::{Access, Anchor, StoreAttributes, StoreFile};

const MARK: &str = "user.forebay.dirty";

/// Suffix that the kernel appends to the path of a file whose name was removed.
pub(super) const DELETED: &[u8] = b" (deleted)";

pub(super) struct PosixAnchor {
    root: Arc<Root>,
    fd: Arc<OwnedFd>,
    created: Option<OwnedFd>,
    identity: Identity,
    /// Path where the file was created or found, until the first use as a hint.
    place: Mutex<Option<PathBuf>>,
    /// Descriptor that is already open for reading, for the first reader.
    opened: Mutex<Option<OpenedForReading>>,
}

impl PosixAnchor {
    pub(super) fn new(root: Arc<Root>, fd: Arc<OwnedFd>, created: Option<OwnedFd>, identity: Identity) -> PosixAnchor {
        PosixAnchor { root, fd, created, identity, place: Mutex::new(None), opened: Mutex::new(None) }
    }

    /// Sets the file's present path below the root.
    pub(super) fn created_at(&mut self, path: PathBuf) {
        *self.place.get_mut() = Some(path);
    }

    /// Sets the descriptor that was just opened for reading.
    pub(super) fn opened_as(&mut self, opened: Option<OpenedForReading>) {
        *self.opened.get_mut() = opened;
    }

    fn open_file(&self, access: Access) -> io::Result<File> {
        let fd = self.fd.as_fd();
        let opened = self.opened.lock().take();
        if access == Access::Read
            && let Some(opened) = opened
        {
            return Ok(opened.file);
        }
        // If each open costs a request, stage-out of a new file uses the descriptor from its creation.
        if access == Access::Write
            && let Some(created) = self.created.as_ref().filter(|_| !self.root.handles)
        {
            return Ok(File::from(created.try_clone()?));
        }
        let opened = match access {
            Access::Write => open_keeping_atime(fd, OFlags::RDWR),
            Access::Read => open_reading(fd),
            Access::Append => open_keeping_atime(fd, OFlags::RDWR | OFlags::APPEND),
        };
        match (opened, &self.created) {
            (Err(error), Some(created)) if is_refusal(&error) => Ok(File::from(created.try_clone()?)),
            (Err(error), None) if is_refusal(&error) && access == Access::Write => {
                self.with_owners_access(|| reopen(fd, OFlags::RDWR))
            }
            (opened, _) => opened,
        }
    }

    /// Runs an operation that may need the owner's read and write permission bits.
    ///
    /// The kernel checks these bits even for the file's owner. They also matter for a file whose dirty data outlived
    /// the descriptor that created it. An agent without privilege that owns the file sets the bits for a moment.
    fn with_owners_access<T>(&self, mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let refused = match run() {
            Err(error) if is_refusal(&error) => error,
            other => return other,
        };
        let (stat, owners) = (fs::fstat(&self.fd)?, Mode::RUSR | Mode::WUSR);
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(owners) || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refused);
        }
        let path = proc_path(self.fd.as_fd());
        fs::chmod(&path, mode | owners)?;
        let outcome = run();
        // Restore the mode unless the user changed it meanwhile.
        if Mode::from_raw_mode(fs::fstat(&self.fd)?.st_mode) == mode | owners {
            fs::chmod(&path, mode)?;
        }
        outcome
    }

    /// Returns the file's present path below the root according to the kernel; empty if the file is elsewhere or has no
    /// name.
    fn hint(&self) -> io::Result<PathBuf> {
        // A hint does not justify a request to the store.
        if attributes_in_memory(self.fd.as_fd())?.links == 0 {
            return Ok(PathBuf::new());
        }
        let Some(below) = self.root.below(&proc_link(self.fd.as_fd())?)? else { return Ok(PathBuf::new()) };
        // Either this name was removed and another remains, or the file's real name ends so.
        if below.as_os_str().as_bytes().ends_with(DELETED)
            && locate::at_path(&self.root, &self.identity, &below)?.is_none()
        {
            return Ok(PathBuf::new());
        }
        Ok(below)
    }

    /// Syncs the directory of `path` if the file is still in it, and returns whether it is.
    fn sync_directory(&self, path: &Path) -> io::Result<bool> {
        let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or(OsStr::new(".")));
        let directory = match locate::open_beneath(&self.root, parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (here, ours) = match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => (stat, fs::fstat(&self.fd)?),
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if (here.st_dev, here.st_ino) != (ours.st_dev, ours.st_ino) {
            return Ok(false);
        }
        fs::fsync(&directory)?;
        Ok(true)
    }

    fn sync_name_below(&self) -> io::Result<()> {
        // A file that may only be written is synced through a descriptor opened for writing.
        let file = match self.open_file(Access::Read) {
            Err(error) if is_refusal(&error) => reopen(self.fd.as_fd(), OFlags::WRONLY)?,
            other => other?,
        };
        fs::fsync(&file)?;
        for _ in 0..SYNC_NAME_TRIES {
            if fs::fstat(&self.fd)?.st_nlink == 0 {
                return Ok(());
            }
            // If the path is too long for the kernel to report, there is no hint.
            let hint = self.hint().unwrap_or_default();
            if hint.as_os_str().is_empty() {
                break;
            }
            match self.sync_directory(&hint) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if is_loss(&error) => return Err(error),
                Err(_) => break,
            }
        }
        // The directory cannot be reached, keeps changing, or does not support sync (9p). A sync of the whole store
        // also makes the name durable.
        self.root.sync()
    }

    fn mark_below(&self) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; MARK_BYTES_MAX];
        let path = proc_path(self.fd.as_fd());
        let got = self.with_owners_access(|| Ok(fs::getxattr(&path, MARK, &mut value[..])?));
        match got {
            Ok(len) => {
                value.truncate(len);
                Ok(Some(value))
            }
            // A store without extended attributes has no marks.
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_mark_below(&self, mark: Option<&[u8]>) -> io::Result<()> {
        let path = proc_path(self.fd.as_fd());
        let done = self.with_owners_access(|| match mark {
            Some(value) => Ok(fs::setxattr(&path, MARK, value, XattrFlags::empty())?),
            None => Ok(fs::removexattr(&path, MARK)?),
        });
        match done {
            Err(error) if mark.is_none() && is_absence(&error) => Ok(()),
            other => other,
        }
    }
}

impl Anchor for PosixAnchor {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        let before = self.opened.lock().as_mut().and_then(|opened| opened.before.take());
        if let Some(before) = before {
            return Ok(before);
        }
        self.root.calls.call(StoreCall::Attributes, || attributes_of(self.fd.as_fd()))
    }

    fn attributes_now(&self) -> io::Result<StoreAttributes> {
        self.root.calls.call(StoreCall::Attributes, || attributes_now_of(self.fd.as_fd()))
    }

    fn attributes_in_memory(&self) -> io::Result<StoreAttributes> {
        self.root.calls.call(StoreCall::Attributes, || attributes_in_memory(self.fd.as_fd()))
    }

    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>> {
        let file = self.root.calls.call(StoreCall::Open, || self.open_file(access))?;
        Ok(Box::new(PosixFile::new(self.root.calls, file, access == Access::Append)))
    }

    fn path_hint(&self) -> PathBuf {
        let place = self.place.lock().take();
        place.unwrap_or_else(|| self.root.calls.call(StoreCall::Lookup, || self.hint()).unwrap_or_default())
    }

    fn set_atime(&self, atime: Timestamp) -> io::Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: atime.seconds, tv_nsec: atime.nanos.into() },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        };
        let path = proc_path(self.fd.as_fd());
        let set = || fs::utimensat(fs::CWD, &path, &times, AtFlags::empty());
        Ok(self.root.calls.call(StoreCall::Change, set)?)
    }

    fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        let path = proc_path(self.fd.as_fd());
        self.root.calls.change(StoreCall::Change, || Ok(fs::utimensat(fs::CWD, &path, times, AtFlags::empty())?))
    }

    fn sync_name(&self) -> io::Result<()> {
        self.root.calls.call(StoreCall::Sync, || self.sync_name_below())
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.root.calls.call(StoreCall::Attributes, || self.mark_below())
    }

    fn set_mark(&self, mark: Option<&[u8]>) -> io::Result<()> {
        self.root.calls.call(StoreCall::Change, || self.set_mark_below(mark))
    }
}

pub(super) fn open_reading(fd: BorrowedFd) -> io::Result<File> {
    open_keeping_atime(fd, OFlags::RDONLY)
}

/// Opens with `O_NOATIME` if permitted; only the owner may use that flag.
fn open_keeping_atime(fd: BorrowedFd, flags: OFlags) -> io::Result<File> {
    match reopen(fd, flags | OFlags::NOATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => reopen(fd, flags),
        other => other,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP))
}

/// Returns whether an error means that the store's medium did not accept data.
fn is_loss(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC | libc::EDQUOT))
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}
