//! Small files that move into the pack after their last close, and out of it when somebody writes them. An open for writing alone
//! leaves them there: the agent sees all writes then.
//!
//! States of a small file's data, with the place that the log has, and what a crash leaves:
//!
//! | after | place | the agent dies | the machine crashes |
//! | --- | --- | --- | --- |
//! | the copy into the pack (`pack.put`) | local file N | the object goes | the same |
//! | the log's record (`pack.logged`) | object N | local file N goes | without the object, local file N counts again |
//! | a sync of pack and log (`pack.durable`) | object N | local file N goes | the same |
//! | local file N is emptied, and has another number (`pack.emptied`) | object N | the empty file goes | the same |
//! | the copy into local file M (`unpack.copied`) | object N | the local file goes | the same |
//! | its sync (`unpack.synced`) | object N | the local file goes | the same |
//! | the log's record (`unpack.logged`) | local file M | the object goes | the last record that the log has counts |
//! | the removal of the object (`unpack.removed`), after a sync of the log | local file M | nothing | the object may be back, and goes |
//!
//! An object has the number of the local file that it was copied from. So the log's record names both, and a crash of the machine
//! that kept the record and lost the object finds the local file, which nobody has touched.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use delegation::{BelowState, DataPlace, NodeKind, NodeNumber, NotedContent};
use global_store::posix::lease::{self, Nobody};
use rustix::io::Errno;
use types::{HasErrno, Step};

use super::contents::{end_copy, write_full};
use super::directory::{LocalFile, UNWRITTEN, mtime_of};
use super::node::{NodeUse, OpenNode, Place};
use super::{Shared, TreeFiles, limits};
use crate::fault;

/// Outcome for one file that might have been packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// The file is packed, and the local file goes to the next one.
    Packed,
    /// The file is not to be packed until somebody writes it again.
    Never,
    /// Somebody uses the file.
    Later,
}

/// Outcome of packing some files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackReport {
    /// Files that were packed.
    pub packed: usize,
    /// Files that were looked at.
    pub looked_at: usize,
}

impl Shared {
    /// Notes that a file may be packed.
    pub(super) fn may_pack(&self, node: NodeNumber) {
        let mut closed = self.closed.lock();
        if closed.len() < limits::PACK_QUEUE_MAX {
            closed.push_back(node);
        } else {
            self.has_more_closed.store(true, Ordering::Release);
        }
    }

    /// Looks for closed files among all nodes, if there are more than are remembered.
    fn find_closed(&self) {
        if self.has_more_closed.swap(false, Ordering::AcqRel) {
            let mut found = self.tree.states();
            found.retain(|state| state.kind == NodeKind::File && matches!(state.data, DataPlace::Replica(_)));
            *self.closed.lock() = found.into_iter().map(|state| state.number).collect();
        }
    }
}

impl TreeFiles {
    /// Number of closed files that may be packed.
    pub fn closed_len(&self) -> usize {
        self.shared.find_closed();
        self.shared.closed.lock().len()
    }

    /// Moves closed files of up to `small_bytes` into the pack, and looks at `most` at most. Files that are in use stay for a later
    /// call. Errors: those of the pack and the log; `ENOSPC` if there is no room.
    pub fn pack(&self, small_bytes: u64, most: usize) -> io::Result<PackReport> {
        let (mut report, mut later) = (PackReport::default(), Vec::new());
        let mut outcome = Ok(());
        self.shared.find_closed();
        while report.looked_at < most && outcome.is_ok() {
            let Some(node) = self.shared.closed.lock().pop_front() else { break };
            report.looked_at += 1;
            let open = self.shared.table.enter(node);
            match open.pack(self.shared.place(), small_bytes) {
                Ok(Packing::Packed) => report.packed += 1,
                Ok(Packing::Never) => {}
                Ok(Packing::Later) => later.push(node),
                Err(error) => {
                    later.push(node);
                    outcome = Err(error);
                }
            }
            self.shared.leave(&open);
        }
        later.into_iter().for_each(|node| self.shared.may_pack(node));
        outcome.map(|()| report)
    }

    /// Returns the content of a packed file.
    pub(crate) fn packed_bytes(&self, number: u64) -> io::Result<Vec<u8>> {
        self.shared.directory.packs.bytes(number)
    }

    /// Makes the pack survive a crash of the machine.
    pub fn sync_pack(&self) -> io::Result<()> {
        self.shared.directory.packs.sync()
    }

    /// Whether the pack has a content under this number.
    pub fn has_packed(&self, number: u64) -> bool {
        self.shared.directory.packs.find(number).is_some()
    }

    /// Whether objects of the pack were removed since it was tidied.
    pub fn has_dead_packed(&self) -> bool {
        self.shared.directory.packs.has_dead.load(Ordering::Acquire)
    }

    /// Gives back room that dead and future objects of the pack take. Returns whether more is to be done.
    pub fn tidy_pack(&self) -> io::Result<bool> {
        let packs = &self.shared.directory.packs;
        packs.has_dead.store(false, Ordering::Release);
        let more = packs.compact()?;
        if !more {
            packs.trim()?;
        }
        Ok(more)
    }
}

impl OpenNode {
    /// Moves the content of a small file into the pack, if nobody has the file open or mapped.
    fn pack(&self, place: Place<'_>, small_bytes: u64) -> io::Result<Packing> {
        let Place { tree, directory } = place;
        // Whoever opens the file meanwhile waits, and finds it packed.
        let _making = self.making.lock();
        if !self.using.lock().is_unused() {
            return Ok(Packing::Later);
        }
        let Some(NotedContent { size, mtime, place: DataPlace::Replica(number), has_name: true, .. }) =
            tree.content(self.number)
        else {
            return Ok(Packing::Never);
        };
        if size > small_bytes.min(limits::PACKED_BYTES_MAX) {
            return Ok(Packing::Never);
        }
        let fd = match directory.open_file(number) {
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(Packing::Never),
            opened => opened.step("open the local file")?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        let found = mtime_of(&stat);
        // A file with holes takes less room as it is, and programs look for them.
        let has_holes = size > limits::WITHOUT_HOLES_BYTES && (stat.st_blocks as u64) * 512 < size;
        if has_holes {
            return Ok(Packing::Never);
        }
        // Somebody sets a time now, or has written what the tree did not get yet.
        if stat.st_size as u64 != size || found != UNWRITTEN && found != mtime {
            return Ok(Packing::Later);
        }
        // A mapping outlives the last close, and shows what others write later only if it is one of their local file.
        if !lease::probe(fd.as_fd(), Nobody::Uses).unwrap_or(false) {
            return Ok(Packing::Later);
        }
        let packed = if size == 0 { DataPlace::None } else { DataPlace::Packed(number) };
        if size > 0 {
            directory.packs.put(number, fd.as_fd(), size).step("pack a small file")?;
        }
        fault::point("pack.put");
        drop(fd);
        match tree.set_place(self.number, packed) {
            Ok(()) => {}
            Err(error) => {
                directory.packs.remove(number);
                // The last name went meanwhile.
                return if error.errno() == Some(libc::ENOENT) { Ok(Packing::Never) } else { Err(error) };
            }
        }
        fault::point("pack.logged");
        place.drop_file(number);
        // Whoever closes the file last drops the object, if the last name goes now.
        self.using.lock().packed = directory.packs.find(number);
        Ok(Packing::Packed)
    }

    /// Makes a local file of an open packed one, for a first write.
    pub(super) fn make_local(&self, place: Place<'_>, truncates: bool) -> io::Result<()> {
        if self.using.lock().local.is_some() {
            return Ok(());
        }
        let _making = self.making.lock();
        let number = match &*self.using.lock() {
            NodeUse { local: Some(_), .. } => return Ok(()),
            NodeUse { packed, .. } => packed.as_ref().ok_or(Errno::IO)?.number,
        };
        let file = self.unpack(place, number, truncates)?;
        let mut using = self.using.lock();
        // From here on, those who read the pack read the local file as well.
        (using.local, using.packed) = (Some(LocalFile { is_new: false, ..file }), None);
        using.may_pack = true;
        Ok(())
    }

    /// Makes a local file of the content of a packed one, of which the log knows then. The object is removed once the log is durable.
    pub(super) fn unpack(&self, place: Place<'_>, number: u64, truncates: bool) -> io::Result<LocalFile> {
        let Place { tree, directory } = place;
        let file = directory.take()?;
        let copied = if truncates { Ok(()) } else { self.copy_unpacked(place, number, &file) };
        let logged = copied.and_then(|()| tree.set_place(self.number, DataPlace::Replica(file.number)));
        if let Err(error) = logged {
            directory.remove(file.number);
            return Err(error);
        }
        fault::point("unpack.logged");
        place.drop_data(DataPlace::Packed(number));
        Ok(file)
    }

    /// Copies an object into a local file, durably.
    fn copy_unpacked(&self, Place { directory, .. }: Place<'_>, number: u64, file: &LocalFile) -> io::Result<()> {
        let bytes = directory.packs.bytes(number).step("read the packed file")?;
        let fd = directory.open_file(file.number)?;
        write_full(&fd, &bytes, 0).step("write the local file")?;
        end_copy(directory, &fd, || fault::point("unpack.copied"))?;
        fault::point("unpack.synced");
        Ok(())
    }

    /// Drops the local data, if nobody has opened it and the global store has all of it.
    pub fn evict(&self, place: Place<'_>) -> io::Result<bool> {
        let tree = place.tree;
        // Whoever opens the file meanwhile waits, and copies it again.
        let _making = self.making.lock();
        if !self.using.lock().is_unused() {
            return Ok(false);
        }
        let Some(content) = tree.content(self.number) else { return Ok(false) };
        let is_local = matches!(content.place, DataPlace::Replica(_) | DataPlace::Packed(_));
        let is_below = matches!(tree.state(self.number), Some(state)
            if matches!(&state.below, BelowState::At(copy) if copy.identity.is_some()));
        if !is_local || content.is_pending || !content.has_name || !is_below {
            return Ok(false);
        }
        tree.set_place(self.number, DataPlace::BelowOnly)?;
        place.drop_data(content.place);
        Ok(true)
    }
}
