//! Buffer that a directory listing fills.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::abi::{Dirent, EntryOut, bytes_of, take};
use crate::reply::entry_out;
use crate::{Entry, NodeId};

/// Collector of the entries of one READDIR or READDIRPLUS, until it is full. Records are aligned to 8 bytes, as the
/// kernel expects.
pub struct DirSink<'a> {
    buffer: &'a mut Vec<u8>,
    limit: usize,
    plus: bool,
}

impl<'a> DirSink<'a> {
    /// Makes a sink of at most `limit` bytes; `plus` if entries carry attributes. Entries are appended to `buffer`,
    /// which is emptied first.
    pub fn new(buffer: &'a mut Vec<u8>, limit: usize, plus: bool) -> DirSink<'a> {
        buffer.clear();
        DirSink { buffer, limit, plus }
    }

    fn record(&self, name: &OsStr) -> usize {
        let head = if self.plus { size_of::<EntryOut>() } else { 0 };
        (head + size_of::<Dirent>() + name.len()).next_multiple_of(8)
    }

    /// Returns whether an entry of this name still fits. Call it before counting a lookup for the entry.
    pub fn remaining_for(&self, name: &OsStr) -> bool {
        self.buffer.len() + self.record(name) <= self.limit
    }

    /// Adds an entry: its inode number, the offset at which reading continues *after* it, and its `DT_*` kind. Returns
    /// false if the sink is full and the entry was not added. In a listing with attributes the entry has none and
    /// counts as no lookup.
    pub fn add(&mut self, ino: u64, offset: u64, kind: u32, name: &OsStr) -> bool {
        if !self.remaining_for(name) {
            return false;
        }
        if self.plus {
            // Node 0 means that there are no attributes.
            self.buffer.extend_from_slice(bytes_of(&EntryOut::default()));
        }
        self.dirent(ino, offset, kind, name);
        true
    }

    /// Adds an entry with attributes, which counts as a lookup of `entry.node`. Returns false if the sink is full and
    /// the entry was not added. In a listing without attributes they are left out and no lookup counts.
    pub fn add_plus(&mut self, entry: &Entry, offset: u64, name: &OsStr) -> bool {
        if !self.remaining_for(name) {
            return false;
        }
        if self.plus {
            self.buffer.extend_from_slice(bytes_of(&entry_out(entry)));
        }
        self.dirent(entry.attr.ino, offset, (entry.attr.mode & libc::S_IFMT) >> 12, name);
        true
    }

    fn dirent(&mut self, ino: u64, off: u64, kind: u32, name: &OsStr) {
        let head = Dirent { ino, off, namelen: name.len() as u32, kind };
        self.buffer.extend_from_slice(bytes_of(&head));
        self.buffer.extend_from_slice(name.as_bytes());
        self.buffer.resize(self.buffer.len().next_multiple_of(8), 0);
    }
}

/// Returns the nodes of a listing with attributes, each once per lookup that it counts.
pub(crate) fn looked_up(mut listing: &[u8]) -> impl Iterator<Item = NodeId> {
    std::iter::from_fn(move || {
        let (entry, rest) = take::<EntryOut>(listing)?;
        let (head, _) = take::<Dirent>(rest)?;
        let record = (size_of::<EntryOut>() + size_of::<Dirent>() + head.namelen as usize).next_multiple_of(8);
        listing = listing.get(record..).unwrap_or_default();
        Some(entry.nodeid)
    })
    .filter(|node| *node != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned_and_an_entry_that_does_not_fit_is_not_taken() {
        let mut buffer = Vec::new();
        let mut sink = DirSink::new(&mut buffer, 64, false);
        assert!(sink.add(7, 1, 8, OsStr::new("a")));
        assert!(sink.add(8, 2, 4, OsStr::new("12345678")));
        assert!(!sink.add(9, 3, 8, OsStr::new("b")));
        assert_eq!(buffer.len(), 32 + 32);
        assert_eq!(buffer[..8], 7u64.to_ne_bytes());
        assert_eq!(buffer[16..20], 1u32.to_ne_bytes());
        assert_eq!(&buffer[24..32], b"a\0\0\0\0\0\0\0");
        assert_eq!(buffer[40..48], 2u64.to_ne_bytes());
        assert_eq!(&buffer[56..64], b"12345678");
    }

    #[test]
    fn a_record_with_attributes_starts_with_the_entry() {
        let mut buffer = Vec::new();
        let mut sink = DirSink::new(&mut buffer, 160, true);
        let attr = crate::Attr { ino: 5, mode: libc::S_IFDIR | 0o755, ..Default::default() };
        let entry = Entry { node: 3, attr, entry_valid: Default::default(), attr_valid: Default::default() };
        assert!(sink.add_plus(&entry, 1, OsStr::new("dir")));
        assert!(!sink.remaining_for(OsStr::new("")));
        assert_eq!(buffer.len(), 160);
        assert_eq!(buffer[..8], 3u64.to_ne_bytes());
        assert_eq!(buffer[148..152], u32::from(libc::DT_DIR).to_ne_bytes());
    }

    #[test]
    fn the_lookups_of_a_listing_are_found_in_it() {
        let mut buffer = Vec::new();
        let mut sink = DirSink::new(&mut buffer, 4096, true);
        assert!(sink.add(1, 1, 4, OsStr::new(".")));
        for (node, name) in [(3, "a name of some length"), (5, "b"), (3, "another of the first")] {
            let entry = Entry {
                node,
                attr: Default::default(),
                entry_valid: Default::default(),
                attr_valid: Default::default(),
            };
            assert!(sink.add_plus(&entry, node, OsStr::new(name)));
        }
        assert_eq!(looked_up(&buffer).collect::<Vec<_>>(), [3, 5, 3]);
        assert_eq!(looked_up(&buffer[..buffer.len() - 150]).count(), 2, "what is cut off is not read");
    }
}
