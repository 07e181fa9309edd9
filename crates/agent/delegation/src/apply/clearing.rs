//! Removal of what an earlier apply has made and nobody has seen.

use std::ffi::{OsStr, OsString};
use std::io;

use namespace::{Inode, NameKind};
use rustix::fs::{FileType, RenameFlags};
use types::HasErrno;

use super::Hands;
use super::acting::{At, changing};
use crate::state::Credentials;

impl Hands {
    /// Removes what has a hidden name, and all that is in it if it is a directory: it was never revealed, so it is ours.
    pub(super) fn clear(&self, who: &Credentials, at: At<'_>, what: NameKind) -> io::Result<()> {
        match self.remove_at(who, at, what) {
            Err(error) if matches!(error.errno(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {
                let found = self.lookup_at(at)?;
                self.empty(who, &found.inode)?;
                self.remove_at(who, at, what)
            }
            removed => removed,
        }
    }

    /// Moves all names of a directory to another. `EEXIST` if one is in both.
    pub(super) fn move_names(&self, who: &Credentials, from: &Inode, to: &Inode) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE.bits();
        self.names_in(who, from)?.iter().try_for_each(|(name, _)| {
            changing(who, &|caller| self.store.namespace.rename(caller, (from, name), (to, name), flags))
        })
    }

    fn empty(&self, who: &Credentials, directory: &Inode) -> io::Result<()> {
        let below = &self.store.namespace;
        for (name, kind) in self.names_in(who, directory)? {
            let name: &OsStr = &name;
            let kind = match kind {
                FileType::Unknown => below.lookup(directory, name)?.inode.kind(),
                kind => kind,
            };
            let what = if kind == FileType::Directory { NameKind::Directory } else { NameKind::File };
            if what == NameKind::Directory {
                let found = below.lookup(directory, name)?;
                self.empty(who, &found.inode)?;
            }
            changing(who, &|caller| below.remove(caller, directory, name, what))?;
        }
        Ok(())
    }

    fn names_in(&self, who: &Credentials, directory: &Inode) -> io::Result<Vec<(OsString, FileType)>> {
        changing(who, &|caller| {
            let mut names = Vec::new();
            self.store.namespace.open_directory(caller, directory)?.read(0, &mut |entry| {
                if entry.name != "." && entry.name != ".." {
                    names.push((entry.name.clone(), entry.kind));
                }
                true
            })?;
            Ok(names)
        })
    }
}
