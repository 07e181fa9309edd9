//! Attributes of the files of a namespace in memory.

use std::ffi::CStr;
use std::io;

use global_store::Access;
use namespace::{Attributes, Caller, FileAttributes, FileSystemSpace, Inode, Mode};
use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;
use types::NewTime;

use super::tree::{Content, READ, SEARCH, WRITE, is_in, may, owns};
use super::{MemoryNamespace, number_of};

impl Attributes for MemoryNamespace {
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes> {
        self.tree().attributes(number_of(inode)?)
    }

    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (mut tree, number) = (self.tree(), number_of(inode)?);
        let entry = tree.get(number)?;
        let stays = |uid: u32| caller.uid == entry.uid && uid == entry.uid;
        let joins = |gid: u32| caller.uid == entry.uid && (gid == entry.gid || is_in(caller, gid));
        if caller.uid != 0 && !(uid.is_none_or(stays) && gid.is_none_or(joins)) {
            return Err(Errno::PERM.into());
        }
        let entry = tree.get_mut(number)?;
        (entry.uid, entry.gid) = (uid.unwrap_or(entry.uid), gid.unwrap_or(entry.gid));
        if entry.kind != FileType::Directory {
            entry.mode &= !0o4000;
            if entry.mode & 0o010 != 0 {
                entry.mode &= !0o2000;
            }
        }
        self.tell_mode(number, entry.kind, entry.mode);
        Ok(())
    }

    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()> {
        let (mut tree, number) = (self.tree(), number_of(inode)?);
        let entry = tree.get(number)?;
        if entry.kind == FileType::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        if !owns(caller, entry) {
            return Err(Errno::PERM.into());
        }
        let strips = caller.uid != 0 && !is_in(caller, entry.gid);
        let entry = tree.get_mut(number)?;
        entry.mode = mode & 0o7777 & if strips { !0o2000 } else { !0 };
        self.tell_mode(number, entry.kind, entry.mode);
        Ok(())
    }

    fn set_times(&self, caller: &Caller, inode: &Inode, [atime, mtime]: [Option<NewTime>; 2]) -> io::Result<()> {
        let (mut tree, number) = (self.tree(), number_of(inode)?);
        let entry = tree.get(number)?;
        match (atime, mtime) {
            (None, None) => return Ok(()),
            (Some(NewTime::Now), Some(NewTime::Now)) if !owns(caller, entry) => may(caller, entry, WRITE)?,
            _ if !owns(caller, entry) => return Err(Errno::PERM.into()),
            _ => {}
        }
        let now = global_store::now_of_files();
        let set = |time: NewTime| if let NewTime::At(at) = time { at } else { now };
        let entry = tree.get_mut(number)?;
        (entry.atime, entry.mtime) = (atime.map_or(entry.atime, set), mtime.map_or(entry.mtime, set));
        if let Content::File(anchor) = &entry.content {
            atime.map_or(Ok(()), |time| anchor.set_atime(set(time)))?;
            mtime.map_or(Ok(()), |time| anchor.open(Access::Write)?.set_mtime(set(time)))?;
        }
        Ok(())
    }

    fn check_open(&self, caller: &Caller, inode: &Inode, mode: Mode) -> io::Result<()> {
        let (read, write) = (mode.read, mode.write || mode.truncate);
        let wanted = match (mode.execute && !write, read, write) {
            (true, ..) => SEARCH,
            (_, true, true) => READ | WRITE,
            (_, _, true) => WRITE,
            _ => READ,
        };
        if caller.uid == 0 && !write {
            return Ok(());
        }
        Ok(may(caller, self.tree().get(number_of(inode)?)?, wanted)?)
    }

    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
        let tree = self.tree();
        tree.get(number_of(inode)?)?.xattrs.get(name).cloned().ok_or_else(|| Errno::NODATA.into())
    }

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let tree = self.tree();
        let names = tree.get(number_of(inode)?)?.xattrs.keys();
        Ok(names.flat_map(|name| name.as_bytes_with_nul()).copied().collect())
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        let (mut tree, number) = (self.tree(), number_of(inode)?);
        let entry = tree.get(number)?;
        may_change_xattr(caller, entry, name)?;
        let (flags, exists) = (XattrFlags::from_bits_retain(flags), entry.xattrs.contains_key(name));
        if flags.contains(XattrFlags::CREATE) && exists {
            return Err(Errno::EXIST.into());
        }
        if flags.contains(XattrFlags::REPLACE) && !exists {
            return Err(Errno::NODATA.into());
        }
        tree.get_mut(number)?.xattrs.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        let (mut tree, number) = (self.tree(), number_of(inode)?);
        may_change_xattr(caller, tree.get(number)?, name)?;
        tree.get_mut(number)?.xattrs.remove(name).map(drop).ok_or_else(|| Errno::NODATA.into())
    }

    fn flags(&self, _: &Caller, _: &Inode, _: u32, _: &mut [u8]) -> io::Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn keeps_acls(&self) -> bool {
        false
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        let (frsize, namelen) = (4096, 255);
        Ok(FileSystemSpace { frsize, bsize: frsize, namelen, ..FileSystemSpace::default() })
    }
}

impl MemoryNamespace {
    /// Tells the global store the mode of a regular file that has a name.
    fn tell_mode(&self, number: u64, kind: FileType, mode: u32) {
        if kind == FileType::RegularFile {
            // A file without names is not found there, and nobody looks at its mode.
            let _ = self.store.set_mode(number.to_string(), mode);
        }
    }
}

/// Checks that an attribute may be changed. Only files and directories have attributes of users.
fn may_change_xattr(caller: &Caller, entry: &super::tree::Entry, name: &CStr) -> Result<(), Errno> {
    let name = name.to_bytes();
    if name.starts_with(b"system.") {
        return Err(Errno::OPNOTSUPP);
    }
    if !name.starts_with(b"user.") {
        return if caller.uid == 0 { Ok(()) } else { Err(Errno::PERM) };
    }
    let is_directory = entry.kind == FileType::Directory;
    if !is_directory && entry.kind != FileType::RegularFile {
        return Err(Errno::PERM);
    }
    if is_directory && entry.mode & 0o1000 != 0 && !owns(caller, entry) {
        return Err(Errno::PERM);
    }
    may(caller, entry, WRITE)
}
