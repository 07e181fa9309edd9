//! The questions about hidden names, which programs never see: what is not whole yet, or on its way.

use std::ffi::OsStr;
use std::io;

use global_store::StoreFile;

use crate::caller::Caller;
use crate::inode::Inode;
use crate::names::{Found, NameKind, NewName};

/// Names of [`global_store::hidden`]. Errors: `EINVAL` for a name that must be hidden and is not; those of
/// [`Names`](crate::Names) otherwise.
pub trait HiddenFiles: Send + Sync {
    /// Creates an empty regular file with these permission bits under a hidden name. A leftover file of that name is
    /// replaced. In a directory that has a hidden name, or is below one, the file may have a name of its own: `EEXIST`
    /// if it exists. The result writes the file whatever its mode.
    fn create_hidden(
        &self,
        caller: &Caller,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<(Found, Box<dyn StoreFile>)>;

    /// Makes something without data under a hidden name. `EEXIST` if the name exists.
    fn make_hidden(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()>;

    /// Finds a hidden name. `ENOENT` if it does not exist.
    fn find_hidden(&self, parent: &Inode, name: &OsStr) -> io::Result<Found>;

    /// Renames; at least one of the names is hidden. `flags` are those of renameat2(2).
    fn rename_hidden(
        &self,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()>;

    /// Removes a hidden name.
    fn remove_hidden(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()>;
}
