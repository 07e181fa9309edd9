//! Reading a directory in memory. An open directory shows the names that it had when it was opened.

use std::io;

use namespace::{Caller, DirectoryEntry, OpenDirectory};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::tree::{Content, READ, Tree, may};

struct Listing {
    entries: Vec<DirectoryEntry>,
    /// Whether the directory had been removed.
    removed: bool,
}

pub(super) fn open(tree: &Tree, caller: &Caller, number: u64) -> io::Result<Box<dyn OpenDirectory>> {
    let entry = tree.get(number)?;
    let Content::Directory { names, parent } = &entry.content else { return Err(Errno::NOTDIR.into()) };
    may(caller, entry, READ)?;
    let dots = [(".".into(), number), ("..".into(), *parent)];
    let all = dots.into_iter().chain(names.iter().map(|(name, number)| (name.clone(), *number)));
    let entry = |(at, (name, ino)): (usize, (_, u64))| {
        let kind = tree.get(ino).map_or(FileType::Directory, |entry| entry.kind);
        DirectoryEntry { ino, next: at as u64 + 1, kind, name }
    };
    Ok(Box::new(Listing { entries: all.enumerate().map(entry).collect(), removed: entry_is_removed(tree, number) }))
}

fn entry_is_removed(tree: &Tree, number: u64) -> bool {
    tree.get(number).is_ok_and(|entry| entry.links == 0)
}

impl OpenDirectory for Listing {
    fn read(&self, offset: u64, take: &mut dyn FnMut(&DirectoryEntry) -> bool) -> io::Result<()> {
        if self.removed {
            return Err(Errno::NOENT.into());
        }
        self.entries.iter().skip(offset as usize).all(take);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
