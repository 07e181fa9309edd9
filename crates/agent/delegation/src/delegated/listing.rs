//! Reading a directory of a delegated tree. Offsets survive all changes: each name keeps its own as long as it exists.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use namespace::{DirectoryEntry, OpenDirectory};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::Held;
use crate::limits;

/// An open directory.
pub(super) struct Listing {
    directory: Arc<Held>,
}

impl Listing {
    pub fn new(directory: Arc<Held>) -> Listing {
        Listing { directory }
    }

    /// Returns the next entries after an offset. Empty at the end.
    fn next(&self, offset: u64) -> io::Result<Vec<DirectoryEntry>> {
        let Held { shared, slot, .. } = &*self.directory;
        let inner = shared.inner.read();
        let tree = &inner.tree;
        if tree.link_count(*slot) == 0 {
            return Err(Errno::NOENT.into());
        }
        let above = tree.first_name(*slot).map_or(*slot, |(above, _)| above);
        let dot = |next: u64, name: &str, slot| {
            let (ino, kind) = (shared.ino_of(tree.member(slot)), FileType::Directory);
            DirectoryEntry { ino, next, kind, name: OsString::from(name) }
        };
        let dots = [dot(1, ".", *slot), dot(2, "..", above)].into_iter().filter(|entry| entry.next > offset);
        let names = tree.children_after(*slot, offset).map(|listed| DirectoryEntry {
            ino: shared.ino_of(listed.member),
            next: listed.cookie,
            kind: listed.member.kind.file_type(),
            name: OsString::from_vec(listed.name.to_vec()),
        });
        Ok(dots.chain(names).take(limits::LISTED_AT_ONCE).collect())
    }
}

impl OpenDirectory for Listing {
    fn read(&self, mut offset: u64, take: &mut dyn FnMut(&DirectoryEntry) -> bool) -> io::Result<()> {
        // The tree is not locked while entries are taken: whoever takes them may ask about them.
        loop {
            let entries = self.next(offset)?;
            let Some(last) = entries.last() else { return Ok(()) };
            offset = last.next;
            if !entries.iter().all(&mut *take) {
                return Ok(());
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.shared.sync()
    }
}
