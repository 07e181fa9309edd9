//! Comparison of a global copy's bytes, for cases in which its fingerprint does not tell whose they are.

use std::io;
use std::os::fd::OwnedFd;

use catalogue::Record;
use global_store::{Access, Anchor, StoreFile};
use types::ByteRange;

use crate::burst_buffer::extents::Extents;
use crate::burst_buffer::replica::{How, read_full};
use crate::burst_buffer::sums::{self, Sums};
use crate::cache::Inner;
use crate::errors::{here, os};
use crate::limits::{BLOCK_BYTES, SMALL_BYTES};

/// Whose bytes a global copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentOwner {
    /// The bytes that it held when it was recorded: only its attributes were changed.
    Base,
    /// The bytes of the replica: overwriting them loses nothing.
    Replica,
    Others,
    /// Unknown: nothing tells the former content, and the bytes differ from the replica.
    Untold,
}

/// Which ranges of a global copy of more than one block are holes. The store is asked once for each extent.
pub(crate) struct HolesBelow<'a> {
    global: &'a dyn StoreFile,
    size: u64,
    /// From where it was asked last, and the next data.
    known: Option<(u64, ByteRange)>,
}

impl<'a> HolesBelow<'a> {
    pub(crate) fn of(global: &'a dyn StoreFile, size: u64) -> HolesBelow<'a> {
        HolesBelow { global, size, known: None }
    }

    /// Returns whether all of `range` is a hole, as far as the store can tell without reading it.
    pub(crate) fn is_hole(&mut self, range: ByteRange) -> io::Result<bool> {
        if range.end > self.size || self.size <= SMALL_BYTES {
            return Ok(false);
        }
        let known = self.known.filter(|(from, data)| *from <= range.start && range.start < data.end);
        let data = match known {
            Some((_, data)) => data,
            None => {
                let data = self.global.next_data(range.start)?.unwrap_or(ByteRange::new(u64::MAX, u64::MAX));
                self.known = Some((range.start, data));
                data
            }
        };
        Ok(range.end <= data.start)
    }
}

impl Inner {
    /// Whose bytes a global copy of `size` bytes holds. Reads it whole; the gate need not be held.
    pub(crate) fn whose_bytes(&self, record: &Record, anchor: &dyn Anchor, size: u64) -> io::Result<ContentOwner> {
        if size == 0 && record.base.size == 0 {
            return Ok(ContentOwner::Base);
        }
        let global = anchor.open(Access::Read)?;
        let recorded = || match record.sum {
            Some(sum) => Some(Sums { size, blocks: vec![sum] }),
            None => Sums::load(&self.replicas.sums_path(record.version)).filter(|sums| sums.size == size),
        };
        let sums = if record.base.size == size { recorded() } else { None };
        if sums.is_some() && sums == Some(self.sums_below(&*global, size)?) {
            return Ok(ContentOwner::Base);
        }
        let replica = self.replicas.open_as(record.version, How::Read).map_err(here)?;
        if rustix::fs::fstat(&replica)?.st_size as u64 == size && self.is_equal(&replica, &*global, size)? {
            return Ok(ContentOwner::Replica);
        }
        // The checksums of a truncated file may be those of its former content.
        let told = sums.is_some() && (record.was_clean || record.sum.is_some());
        Ok(if told { ContentOwner::Others } else { ContentOwner::Untold })
    }

    fn sums_below(&self, global: &dyn StoreFile, size: u64) -> io::Result<Sums> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut blocks = Vec::with_capacity(sums::blocks_of(size) as usize);
        let mut holes = HolesBelow::of(global, size);
        for index in 0..sums::blocks_of(size) {
            let range = sums::block_range(index, size);
            if holes.is_hole(range)? {
                blocks.push(sums::of_zeros(range.len()));
                continue;
            }
            let read = global.read_at(&mut block[..range.len() as usize], range.start)?;
            blocks.push(sums::sum(&block[..read]));
            self.go_on()?;
        }
        Ok(Sums { size, blocks })
    }

    /// Returns whether a replica has the bytes of the global copy, which has the same size.
    pub(crate) fn is_equal(&self, replica: &OwnedFd, global: &dyn StoreFile, size: u64) -> io::Result<bool> {
        let (mut ours, mut theirs) = (vec![0; BLOCK_BYTES as usize], vec![0; BLOCK_BYTES as usize]);
        let (mut extents, mut holes) = (Extents::new(replica, size), HolesBelow::of(global, size));
        for index in 0..sums::blocks_of(size) {
            let range = sums::block_range(index, size);
            if extents.is_hole(range).map_err(here)? && holes.is_hole(range)? {
                continue;
            }
            let len = range.len() as usize;
            let read = read_full(replica, &mut ours[..len], range.start).map_err(here)?;
            if read != global.read_at(&mut theirs[..len], range.start)? || ours[..read] != theirs[..read] {
                return Ok(false);
            }
            self.go_on()?;
        }
        Ok(true)
    }

    fn go_on(&self) -> io::Result<()> {
        if self.is_dead() { os(libc::EINTR) } else { Ok(()) }
    }
}
