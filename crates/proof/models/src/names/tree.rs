//! Files of a namespace in memory, and who may do what with them.
//!
//! The rules are those of Linux (path_resolution(7), `fs/namei.c`), in the order in which it checks them: the order
//! decides which error a caller gets.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::sync::Arc;

use global_store::Anchor;
use namespace::{Caller, Exclusivity, FileAttributes, rights_of};
use rustix::fs::FileType;
use rustix::io::Errno;
use types::Timestamp;

/// Read, write and search permission.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;
const STICKY: u32 = 0o1000;
const NAME_BYTES_MAX: usize = 255;

/// One file.
pub(super) struct Entry {
    pub kind: FileType,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub links: u32,
    /// Whether a file without a name may get one.
    pub linkable: bool,
    pub xattrs: BTreeMap<CString, Vec<u8>>,
    pub content: Content,
}

/// Content by the type of the file.
pub(super) enum Content {
    Directory {
        names: BTreeMap<OsString, u64>,
        parent: u64,
    },
    Symlink(Vec<u8>),
    /// The bytes are in a global store, which also has the times that follow from writes.
    File(Arc<dyn Anchor>),
    Special,
}

/// All files.
pub(super) struct Tree {
    pub entries: HashMap<u64, Entry>,
    next: u64,
    /// Whether nobody else changes the tree; `None` if others may.
    pub exclusivity: Option<Arc<Exclusivity>>,
}

/// Number of the root.
pub(super) const ROOT: u64 = 1;

impl Tree {
    pub fn new(uid: u32, gid: u32) -> Tree {
        let mut tree = Tree { entries: HashMap::new(), next: ROOT, exclusivity: None };
        let content = Content::Directory { names: BTreeMap::new(), parent: ROOT };
        tree.add(FileType::Directory, (0o755, uid, gid), content);
        tree.entries.get_mut(&ROOT).expect("just added").links = 2;
        tree
    }

    /// Adds a file without a name, and returns its number.
    pub fn add(&mut self, kind: FileType, (mode, uid, gid): (u32, u32, u32), content: Content) -> u64 {
        let (number, now) = (self.next, global_store::now_of_files());
        self.next += 1;
        let (atime, mtime, ctime) = (now, now, now);
        let (device, links, linkable, xattrs) = (0, 0, false, BTreeMap::new());
        let entry = Entry { kind, mode, uid, gid, device, atime, mtime, ctime, links, linkable, xattrs, content };
        self.entries.insert(number, entry);
        number
    }

    pub fn get(&self, number: u64) -> Result<&Entry, Errno> {
        self.entries.get(&number).ok_or(Errno::STALE)
    }

    pub fn get_mut(&mut self, number: u64) -> Result<&mut Entry, Errno> {
        let entry = self.entries.get_mut(&number).ok_or(Errno::STALE)?;
        entry.ctime = global_store::now_of_files();
        Ok(entry)
    }

    pub fn names(&self, directory: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.get(directory)?.content {
            Content::Directory { names, .. } => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn names_mut(&mut self, directory: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        let entry = self.get_mut(directory)?;
        entry.mtime = entry.ctime;
        match &mut entry.content {
            Content::Directory { names, .. } => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Finds a name. `None` if it does not exist; `ENOENT` if the directory itself was removed.
    pub fn find(&self, directory: u64, name: &OsStr) -> Result<Option<u64>, Errno> {
        let names = self.names(directory)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if self.get(directory)?.links == 0 {
            return Err(Errno::NOENT);
        }
        Ok(names.get(name).copied())
    }

    /// Gives a file a name.
    pub fn put(&mut self, directory: u64, name: &OsStr, number: u64) -> Result<(), Errno> {
        self.names_mut(directory)?.insert(name.to_owned(), number);
        let entry = self.get_mut(number)?;
        if let Content::Directory { parent, .. } = &mut entry.content {
            *parent = directory;
            // Its name, and its own name for itself.
            entry.links = entry.links.max(2);
            self.get_mut(directory)?.links += 1;
        } else {
            entry.links += 1;
        }
        Ok(())
    }

    /// Takes a name away, for the moment in which the file is moved.
    pub fn take(&mut self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        let number = self.names_mut(directory)?.remove(name).ok_or(Errno::NOENT)?;
        let entry = self.get_mut(number)?;
        if entry.kind == FileType::Directory {
            self.get_mut(directory)?.links -= 1;
        } else {
            entry.links -= 1;
        }
        Ok(number)
    }

    /// Removes a name. What was removed stays for those who have it.
    pub fn remove(&mut self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        let number = self.take(directory, name)?;
        let entry = self.get_mut(number)?;
        if entry.kind == FileType::Directory {
            entry.links = 0;
        }
        Ok(number)
    }

    /// Whether `above` is `directory` or one of the directories above it.
    pub fn is_within(&self, mut directory: u64, above: u64) -> bool {
        loop {
            if directory == above {
                return true;
            }
            match self.entries.get(&directory).map(|entry| &entry.content) {
                Some(Content::Directory { parent, .. }) if *parent != directory => directory = *parent,
                _ => return false,
            }
        }
    }

    pub fn attributes(&self, number: u64) -> io::Result<FileAttributes> {
        let entry = self.get(number)?;
        let mut attributes = FileAttributes {
            ino: number,
            atime: entry.atime,
            mtime: entry.mtime,
            ctime: entry.ctime,
            mode: entry.kind.as_raw_mode() | entry.mode,
            nlink: entry.links,
            uid: entry.uid,
            gid: entry.gid,
            rdev: entry.device as u32,
            blksize: namespace::limits::PREFERRED_IO_BYTES,
            ..FileAttributes::default()
        };
        match &entry.content {
            Content::Symlink(target) => attributes.size = target.len() as u64,
            Content::File(anchor) => {
                let below = anchor.attributes()?;
                (attributes.size, attributes.atime) = (below.fingerprint.size, below.atime);
                (attributes.blocks, attributes.mtime) = (attributes.size.div_ceil(512), below.fingerprint.mtime);
                attributes.ctime = entry.ctime.max(below.fingerprint.ctime);
            }
            Content::Directory { .. } | Content::Special => {}
        }
        Ok(attributes)
    }
}

/// Whether the caller owns the file, or is the superuser.
pub(super) fn owns(caller: &Caller, entry: &Entry) -> bool {
    caller.uid == 0 || caller.uid == entry.uid
}

/// Whether a group is one of the caller's.
pub(super) fn is_in(caller: &Caller, gid: u32) -> bool {
    let groups = || namespace::groups_set().unwrap_or_else(|| rights_of(caller).groups);
    caller.gid == gid || groups().contains(&gid)
}

/// Checks permissions of a file. `EACCES` if one of `wanted` is missing.
pub(super) fn may(caller: &Caller, entry: &Entry, wanted: u32) -> Result<(), Errno> {
    let executes = entry.mode & 0o111 != 0 || entry.kind == FileType::Directory;
    let shift = if caller.uid == entry.uid {
        6
    } else if is_in(caller, entry.gid) {
        3
    } else {
        0
    };
    let granted = if caller.uid == 0 { READ | WRITE | u32::from(executes) } else { entry.mode >> shift & 7 };
    if granted & wanted == wanted { Ok(()) } else { Err(Errno::ACCESS) }
}

impl Tree {
    /// Checks that names of a directory may be looked up. `ENOTDIR` for another file.
    pub fn may_search(&self, caller: &Caller, directory: u64) -> Result<(), Errno> {
        self.names(directory)?;
        may(caller, self.get(directory)?, SEARCH)
    }

    /// Checks that a new name may be made in a directory, for a name that does not exist.
    pub fn may_make(&self, caller: &Caller, directory: u64, name: &OsStr) -> Result<(), Errno> {
        self.may_search(caller, directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.may_write_names(caller, directory)
    }

    pub fn may_write_names(&self, caller: &Caller, directory: u64) -> Result<(), Errno> {
        may(caller, self.get(directory)?, WRITE | SEARCH)
    }

    /// Checks that a name may be removed. `is_directory`: as a removal of directories does it.
    pub fn may_remove(&self, caller: &Caller, directory: u64, victim: u64, is_directory: bool) -> Result<(), Errno> {
        self.may_write_names(caller, directory)?;
        let (above, victim) = (self.get(directory)?, self.get(victim)?);
        if above.mode & STICKY != 0 && !owns(caller, above) && !owns(caller, victim) {
            return Err(Errno::PERM);
        }
        match (is_directory, victim.kind == FileType::Directory) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            _ => Ok(()),
        }
    }

    /// Returns mode, user and group of a new file.
    pub fn dressed(
        &self,
        caller: &Caller,
        directory: u64,
        kind: FileType,
        mode: u32,
    ) -> Result<(u32, u32, u32), Errno> {
        let above = self.get(directory)?;
        let inherits = above.mode & SET_GROUP_ID != 0;
        let gid = if inherits { above.gid } else { caller.gid };
        if kind == FileType::Directory {
            let inherited = if inherits { SET_GROUP_ID } else { 0 };
            return Ok((mode & 0o1777 | inherited, caller.uid, gid));
        }
        let both = SET_GROUP_ID | GROUP_EXECUTES;
        let strips = inherits && mode & both == both && caller.uid != 0 && !is_in(caller, gid);
        Ok((if strips { mode & !SET_GROUP_ID } else { mode }, caller.uid, gid))
    }
}
