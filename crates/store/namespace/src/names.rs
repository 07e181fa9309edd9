//! The questions about names.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use global_store::Anchor;
use global_store::hidden::is_hidden;
use rustix::fs::FileType;
use rustix::io::Errno;
use types::Identity;

use crate::attributes::FileAttributes;
use crate::caller::Caller;
use crate::directory::OpenDirectory;
use crate::inode::Inode;

/// A file and its attributes at the moment of its lookup or creation.
pub struct Found {
    /// The file.
    pub inode: Inode,
    /// Attributes of the file.
    pub attributes: FileAttributes,
}

/// Permission bits of a creation, and the caller's umask. A default ACL of the directory replaces the umask.
#[derive(Debug, Clone, Copy)]
pub struct NewMode {
    /// Requested bits. Type bits are ignored, except by the agent's `make_node`.
    pub mode: u32,
    /// Bits that the caller masks.
    pub umask: u32,
}

/// Something that a creation without data makes.
#[derive(Debug, Clone, Copy)]
pub enum NewName<'a> {
    /// A directory.
    Directory(NewMode),
    /// A fifo, socket, device or empty file.
    Special {
        /// Type of the file.
        kind: FileType,
        /// Permission bits.
        mode: NewMode,
        /// Device number, as makedev(3) makes it.
        device: u64,
    },
    /// A symbolic link with this target.
    Symlink(&'a OsStr),
}

/// A regular file to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Name; `None`: the file has none until it is linked.
    pub name: Option<&'a OsStr>,
    /// Permission bits.
    pub mode: NewMode,
    /// With a name: the name must be new. Without: the file can never be linked.
    pub exclusive: bool,
}

/// The kind of name that a removal removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// Of anything but a directory.
    File,
    /// Of an empty directory.
    Directory,
}

/// How long ago the identity of a file that is to be found was valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownSince {
    /// The file has been in use since then.
    InUse,
    /// Before a restart: nothing kept the identity from being reused, if it can be.
    Restart,
}

/// Names of the accelerated directory. All methods may be called from any thread.
///
/// Calls with a caller do what that user may do, and fail with `EACCES` or `EPERM` otherwise. A name is one component,
/// neither `.` nor `..`; other names fail with `EINVAL`. Other errors are those that the system call of the same
/// purpose has. After an error nothing has changed, except where the global store leaves that open.
pub trait Names: Send + Sync {
    /// Returns the accelerated directory.
    fn root(&self) -> io::Result<Inode>;

    /// Finds a name in a directory. `ENOENT` if it does not exist.
    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found>;

    /// Creates a regular file. Returns also an anchor that may read and write the new file whatever its mode. `ESTALE`
    /// if the name exists and the creation is not exclusive: the caller looks the name up again.
    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)>;

    /// Creates a file that is not opened. `EEXIST` if the name exists.
    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()>;

    /// Adds a name for a file that is not a directory; a file created without a name gets its first.
    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()>;

    /// Renames; `flags` are those of renameat2(2).
    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()>;

    /// Returns the target of a symbolic link.
    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>>;

    /// Opens a directory for reading.
    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>>;

    /// Finds the file or directory with this identity, last seen at `hint`. `None` if it is gone.
    fn find(&self, identity: &Identity, hint: &Path, since: KnownSince) -> io::Result<Option<Inode>>;

    /// Returns a path of the file below the accelerated directory. Names may change meanwhile, so it is a hint. `None`
    /// if the file is elsewhere or its path is too long.
    fn path_of(&self, inode: &Inode) -> Option<PathBuf>;

    /// Returns when every change of names and attributes made before survives a crash of the machine that keeps them.
    fn sync(&self) -> io::Result<()>;
}

/// Checks a name as the kernel passes it. Errors: `EINVAL` for `.`, `..` and what is not one component; `EACCES` for a
/// name that is reserved for hidden files.
pub fn plain(name: &OsStr) -> Result<&OsStr, Errno> {
    if is_hidden(name) { Err(Errno::ACCESS) } else { component(name) }
}

/// Checks a name that may be hidden. Errors: `EINVAL` for `.`, `..` and what is not one component.
pub fn component(name: &OsStr) -> Result<&OsStr, Errno> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(Errno::INVAL),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(name),
    }
}
