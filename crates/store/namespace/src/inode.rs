//! A file of the namespace, whatever its names.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::FileType;
use types::Identity;

use crate::exclusivity::Exclusivity;

/// A file, directory, symbolic link or special file, held so that it stays itself when names change.
///
/// Made by a [`Names`](crate::Names), and meant for that one alone.
pub struct Inode {
    who: Who,
    kind: FileType,
    ino: u64,
    hold: Hold,
    exclusivity: Option<Arc<Exclusivity>>,
}

/// The means to find a file, for the implementation that made its [`Inode`].
pub enum Hold {
    /// An `O_PATH` descriptor of the file in the global store.
    Descriptor(Arc<OwnedFd>),
    /// Something of an implementation whose files need not be in the global store.
    Other(Arc<dyn Any + Send + Sync>),
    /// Something of an implementation that knows enough of the file to make an inode again.
    Kept(Arc<dyn KeptFile>),
}

/// A file that is held in a few bytes, from which its inode can be made again.
pub trait KeptFile: Any + Send + Sync {
    /// Returns the provisional identity of the file.
    fn key(&self) -> Identity;

    /// Returns the type of the file.
    fn kind(&self) -> FileType;

    /// Returns the hold of the agent on the tree that has the file.
    fn exclusivity(&self) -> &Arc<Exclusivity>;
}

/// An inode that nobody uses, in few bytes. It holds the file as the inode did.
pub struct RestingInode {
    file: Arc<dyn KeptFile>,
    ino: u64,
}

impl RestingInode {
    /// The file.
    pub fn file(&self) -> &dyn KeptFile {
        &*self.file
    }

    /// Makes the inode again.
    pub fn inode(&self) -> Inode {
        Inode::kept(Arc::clone(&self.file), self.ino)
    }
}

/// Identification of a file.
enum Who {
    Lasting(Identity),
    Provisional { key: Identity, known: OnceLock<Known> },
}

/// The lasting identity of a file that began with a provisional one, and what is dropped with it.
struct Known {
    identity: Identity,
    _guard: Box<dyn Any + Send + Sync>,
}

impl Inode {
    /// Creates an inode with its lasting identity.
    pub fn new(identity: Identity, kind: FileType, ino: u64, hold: Hold) -> Inode {
        Inode { who: Who::Lasting(identity), kind, ino, hold, exclusivity: None }
    }

    /// Creates an inode whose lasting identity is not known yet. `key` tells the file from every other in use.
    pub fn provisional(key: Identity, kind: FileType, ino: u64, hold: Hold) -> Inode {
        let who = Who::Provisional { key, known: OnceLock::new() };
        Inode { who, kind, ino, hold, exclusivity: None }
    }

    /// Creates an inode of a file that is held so. It has no lasting identity yet.
    pub fn kept(file: Arc<dyn KeptFile>, ino: u64) -> Inode {
        let (key, kind, exclusivity) = (file.key(), file.kind(), Arc::clone(file.exclusivity()));
        Inode::provisional(key, kind, ino, Hold::Kept(file)).with_exclusivity(exclusivity)
    }

    /// Returns what is to be kept while nobody uses the inode; `None` if that would not suffice to make it again.
    pub fn resting(&self) -> Option<RestingInode> {
        match &self.hold {
            Hold::Kept(file) if !self.is_identified() => Some(RestingInode { file: Arc::clone(file), ino: self.ino }),
            _ => None,
        }
    }

    /// Makes this an inode of a tree that the agent alone changes, until `exclusivity` ends.
    pub fn with_exclusivity(self, exclusivity: Arc<Exclusivity>) -> Inode {
        Inode { exclusivity: Some(exclusivity), ..self }
    }

    /// Whether nobody but this agent changes the file, its attributes, and for a directory the names in it.
    pub fn is_exclusive(&self) -> bool {
        self.exclusivity.as_ref().is_some_and(|exclusivity| !exclusivity.has_ended())
    }

    /// Whether others may change the file now, but not when the inode was made.
    pub fn lost_exclusivity(&self) -> bool {
        self.exclusivity.as_ref().is_some_and(|exclusivity| exclusivity.has_ended())
    }

    /// Sets the lasting identity, unless one is known. `guard` is dropped with the inode.
    pub fn identify_as(&self, identity: Identity, guard: Box<dyn Any + Send + Sync>) {
        if let Who::Provisional { known, .. } = &self.who {
            // Another thread may have been faster, with the same answer.
            let _ = known.set(Known { identity, _guard: guard });
        }
    }

    /// Returns the key that tells this file from every other file in use, by whatever name it was found.
    pub fn key(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Provisional { key, .. } => key,
        }
    }

    /// Returns the identity; for a file whose lasting identity is not known, its key.
    pub fn identity(&self) -> &Identity {
        match &self.who {
            Who::Lasting(identity) => identity,
            Who::Provisional { key, known } => known.get().map_or(key, |known| &known.identity),
        }
    }

    /// Whether [`identity`](Inode::identity) returns the lasting identity.
    pub fn is_identified(&self) -> bool {
        match &self.who {
            Who::Lasting(_) => true,
            Who::Provisional { known, .. } => known.get().is_some(),
        }
    }

    /// Inode number, as programs see it.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Type of the file.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Returns the means to find the file.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Returns the descriptor that holds the file in the global store, if there is one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.hold {
            Hold::Descriptor(fd) => Some(fd.as_fd()),
            Hold::Other(_) | Hold::Kept(_) => None,
        }
    }
}
