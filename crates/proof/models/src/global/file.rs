//! Anchors and open files of the memory store.

use std::io;
use std::path::PathBuf;

use rustix::fs::FallocateFlags;
use types::{ByteRange, Identity, Timestamp};

use super::{MemoryStore, StoreOperation, stale};
use global_store::{Access, Anchor, StoreAttributes, StoreFile};

#[derive(Clone)]
pub(super) struct MemoryAnchor {
    store: MemoryStore,
    identity: Identity,
}

impl MemoryAnchor {
    pub(super) fn new(store: MemoryStore, identity: Identity) -> MemoryAnchor {
        MemoryAnchor { store, identity }
    }

    fn sync_as(&self, operation: StoreOperation) -> io::Result<()> {
        self.store.operate(operation, &self.identity, |state| {
            let inode = state.files.get_mut(&self.identity).ok_or_else(stale)?;
            inode.durable = inode.content.clone();
            Ok(())
        })
    }
}

impl Anchor for MemoryAnchor {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        self.store.operate(StoreOperation::Attributes, &self.identity, |state| {
            let found = state.files.get(&self.identity).ok_or_else(stale)?.attributes();
            let remembered = state.remembered.as_mut();
            Ok(remembered.map_or(found, |known| *known.entry(self.identity.clone()).or_insert(found)))
        })
    }

    fn attributes_now(&self) -> io::Result<StoreAttributes> {
        self.store.state.lock().remembered.iter_mut().for_each(|known| _ = known.remove(&self.identity));
        self.attributes()
    }

    fn open(&self, access: Access) -> io::Result<Box<dyn StoreFile>> {
        self.store.operate(StoreOperation::Open(access), &self.identity, |_| {
            Ok(Box::new(MemoryFile { anchor: self.clone(), writable: access != Access::Read }) as Box<dyn StoreFile>)
        })
    }

    fn path_hint(&self) -> PathBuf {
        let state = self.store.state.lock();
        let name = state.names.iter().find(|(_, identity)| **identity == self.identity);
        name.map(|(path, _)| path.clone()).unwrap_or_default()
    }

    fn set_atime(&self, atime: Timestamp) -> io::Result<()> {
        self.store.operate(StoreOperation::SetAtime(atime), &self.identity, |state| {
            state.touch(&self.identity, |inode| inode.atime = atime)
        })
    }

    fn sync_name(&self) -> io::Result<()> {
        self.sync_as(StoreOperation::SyncName)?;
        self.store.state.lock().keep_names_of(&self.identity);
        Ok(())
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.store.operate(StoreOperation::Mark, &self.identity, |state| {
            Ok(state.files.get(&self.identity).ok_or_else(stale)?.mark.clone())
        })
    }

    fn set_mark(&self, mark: Option<&[u8]>) -> io::Result<()> {
        let mark = mark.map(<[u8]>::to_vec);
        self.store.operate(StoreOperation::SetMark(mark.clone()), &self.identity, |state| {
            // Removing an absent mark changes nothing.
            if mark.is_none() && state.files.get(&self.identity).is_some_and(|inode| inode.mark.is_none()) {
                return Ok(());
            }
            state.touch(&self.identity, |inode| inode.mark = mark)
        })
    }
}

struct MemoryFile {
    anchor: MemoryAnchor,
    writable: bool,
}

impl MemoryFile {
    fn change(&self, operation: StoreOperation, change: impl FnOnce(&mut super::Content)) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let identity = &self.anchor.identity;
        self.anchor.store.operate(operation, identity, |state| state.modify(identity, change))
    }
}

impl StoreFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        self.anchor.store.operate(StoreOperation::Read(range), &self.anchor.identity, |state| {
            Ok(state.files.get(&self.anchor.identity).ok_or_else(stale)?.content.read(buffer, offset))
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let range = ByteRange::at(offset, data.len() as u64);
        self.change(StoreOperation::Write(range), |content| content.write(data, offset))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<ByteRange>> {
        self.anchor.store.operate(StoreOperation::NextData, &self.anchor.identity, |state| {
            Ok(state.files.get(&self.anchor.identity).ok_or_else(stale)?.content.next_data(offset))
        })
    }

    fn punch(&self, range: ByteRange) -> io::Result<()> {
        self.change(StoreOperation::Punch(range), |content| content.punch(range))
    }

    fn allocate(&self, mode: u32, range: ByteRange) -> io::Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode);
        if mode.contains(FallocateFlags::ZERO_RANGE) {
            self.punch(range)?;
        }
        let grows = !mode.contains(FallocateFlags::KEEP_SIZE) && range.end > self.attributes()?.fingerprint.size;
        if grows { self.set_len(range.end) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(StoreOperation::SetLen(len), |content| content.set_len(len))
    }

    fn set_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        let identity = &self.anchor.identity;
        self.anchor.store.operate(StoreOperation::SetMtime(mtime), identity, |state| {
            let mtime = state.kept(mtime);
            state.touch(identity, |inode| inode.content.mtime = mtime)
        })
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        self.anchor.attributes()
    }

    fn sync(&self) -> io::Result<()> {
        self.anchor.sync_as(StoreOperation::Sync)
    }

    fn leave_behind(&self, range: ByteRange) -> io::Result<()> {
        self.anchor.store.operate(StoreOperation::LeaveBehind(range), &self.anchor.identity, |_| Ok(()))
    }
}
