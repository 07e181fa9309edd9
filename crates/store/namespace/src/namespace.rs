//! Names and attributes together, and how their files become files of data.

use std::io;
use std::path::Path;
use std::sync::Arc;

use global_store::calls::Store;
use global_store::{Anchor, GlobalStore};

use crate::attributes::Attributes;
use crate::hidden::HiddenFiles;
use crate::inode::Inode;
use crate::names::Names;

/// Purpose of an anchor, or something known of its file.
#[derive(Debug, Clone, Copy)]
pub enum AnchorFor<'a> {
    /// Nothing.
    Any,
    /// The file was just found at this path below the accelerated directory.
    FoundAt(&'a Path),
    /// The file is about to be read. If it has at most so many bytes, they may be read ahead.
    Reading(u64),
}

/// A namespace that data stores can have files of.
pub trait Namespace: Names + Attributes {
    /// Returns an anchor of a regular file, which is identified from here on. Errors: `EISDIR` or `EINVAL` for others.
    fn anchor(&self, inode: &Inode, what: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>>;

    /// Learns the lasting identity of a file, unless `may_be_known` says of all the identities that it may have that
    /// nobody knows them. The argument of `may_be_known` is how an identity begins. Returns whether it is identified.
    fn identify(&self, inode: &Inode, may_be_known: &dyn Fn(&[u8]) -> bool) -> io::Result<bool>;

    /// Returns the registry of the calls to the global store.
    fn calls(&self) -> Store;

    /// Whether this can act as any caller. If not, everything is done as this process's user.
    fn acts_for_all(&self) -> bool;

    /// Returns the means to reach hidden names.
    fn hidden_files(&self) -> &dyn HiddenFiles;

    /// Returns the global store, in which names and data are in the end.
    fn store(&self) -> &dyn GlobalStore;
}
