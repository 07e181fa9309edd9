//! Step W4: which bytes of a replica are written to the global copy, and how.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use global_store::StoreFile;
use types::ByteRange;

use crate::burst_buffer::extents::Extents;
use crate::burst_buffer::replica;
use crate::burst_buffer::sums::{self, Sums, block_range, blocks_of};
use crate::errors::here;
use crate::global_copy::content::HolesBelow;
use crate::limits::{BEHIND_BYTES, BLOCK_BYTES, SMALL_BYTES};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All data, after the global copy was truncated: the file is new or was truncated.
    Everything,
    /// The blocks whose checksums differ from these, which are those of the global copy.
    Changed(Sums),
    /// The blocks that differ from the global copy, which is read: nothing is known of it.
    Differing,
}

pub(crate) trait CopyProgress {
    /// Called before the first change of the global copy, and before each later one; an error ends the copy.
    fn before_write(&mut self, bytes: u64) -> io::Result<()>;
    /// Called before data below is cut off or made a hole; an error ends the copy.
    fn before_cut(&mut self) -> io::Result<()>;
    /// Called for every buffer of the replica that was compared, with its end; an error ends the copy.
    fn looked(&mut self, end: u64) -> io::Result<()>;
    /// Called when the global store failed to keep data that it had accepted.
    fn lost(&mut self);
}

/// Ranges that were written and are not yet on the store's medium, in the order of the writes.
#[derive(Debug, Default)]
struct CopyWriteBack {
    ranges: VecDeque<ByteRange>,
    bytes: u64,
}

impl CopyWriteBack {
    /// Starts writing a range back, and waits for ranges that are far behind it.
    fn wrote(&mut self, global: &dyn StoreFile, range: ByteRange) -> io::Result<()> {
        global.begin_sync(range);
        self.ranges.push_back(range);
        self.bytes += range.len();
        while self.bytes > BEHIND_BYTES
            && let Some(first) = self.ranges.pop_front()
        {
            self.bytes -= first.len();
            global.leave_behind(first)?;
        }
        Ok(())
    }
}

/// One copy of a replica of `size` bytes over a global copy of `global_size` bytes.
pub(crate) struct Copy<'a> {
    pub(crate) replica: &'a OwnedFd,
    pub(crate) size: u64,
    pub(crate) global: &'a dyn StoreFile,
    pub(crate) global_size: u64,
    pub(crate) progress: &'a mut dyn CopyProgress,
    /// Number of first bytes that equal those of the former checksums: they are not read.
    pub(crate) unchanged: u64,
    extents: Extents<'a>,
    below: HolesBelow<'a>,
    behind: CopyWriteBack,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Checksums of what the global copy holds now.
    pub(crate) sums: Sums,
    pub(crate) bytes: u64,
    pub(crate) changed: bool,
}

impl<'a> Copy<'a> {
    pub(crate) fn new(
        replica: &'a OwnedFd,
        size: u64,
        global: &'a dyn StoreFile,
        global_size: u64,
        progress: &'a mut dyn CopyProgress,
    ) -> Copy<'a> {
        let extents = Extents::new(replica, size);
        let (below, behind) = (HolesBelow::of(global, global_size), CopyWriteBack::default());
        Copy { replica, size, global, global_size, progress, unchanged: 0, extents, below, behind }
    }

    /// Copies in file order, and gives the global copy its length.
    pub(crate) fn run(&mut self, extent: &Extent) -> io::Result<Copied> {
        let mut copied = Copied { sums: Sums { size: self.size, blocks: Vec::new() }, ..Copied::default() };
        let end = match extent {
            Extent::Everything => self.everything(&mut copied)?,
            Extent::Changed(before) => self.blocks(&mut copied, Some(before))?,
            Extent::Differing => self.blocks(&mut copied, None)?,
        };
        if end != self.size {
            if self.global_size > self.size {
                self.progress.before_cut()?
            } else {
                self.progress.before_write(0)?
            }
            self.global.set_len(self.size)?;
            copied.changed = true;
        }
        crate::fault::point("w5.sized");
        Ok(copied)
    }

    /// Writes all data. Returns the length that the global copy has then.
    fn everything(&mut self, copied: &mut Copied) -> io::Result<u64> {
        if self.global_size > 0 {
            self.progress.before_cut()?;
            self.global.set_len(0)?;
            copied.changed = true;
            crate::fault::point("w4.cut");
        }
        let mut buffer = vec![0; BLOCK_BYTES.min(self.size) as usize];
        let (mut at, mut end) = (0, 0);
        while at < self.size {
            let part = block_range(at / BLOCK_BYTES, self.size);
            if self.extents.is_hole(part).map_err(here)? {
                copied.sums.blocks.push(sums::of_zeros(part.len()));
                at = part.end;
                continue;
            }
            let bytes = &mut buffer[..part.len() as usize];
            self.read(bytes, part.start)?;
            copied.sums.blocks.push(sums::sum(bytes));
            let mut from = part.start;
            while let Some(data) = self.extents.data_in(bytes, part, from).map_err(here)? {
                let slice = &bytes[(data.start - part.start) as usize..(data.end - part.start) as usize];
                self.write(slice, data.start, copied)?;
                (from, end) = (data.end, data.end);
            }
            self.progress.looked(part.end)?;
            at = part.end;
        }
        Ok(end)
    }

    /// Writes the changed blocks. Returns the length that the global copy has then.
    fn blocks(&mut self, copied: &mut Copied, before: Option<&Sums>) -> io::Result<u64> {
        let mut buffer = vec![0; BLOCK_BYTES.min(self.size) as usize];
        let mut theirs = Vec::new();
        let mut end = self.global_size;
        for index in 0..blocks_of(self.size) {
            let block = block_range(index, self.size);
            let known = before.filter(|before| block_range(index, before.size) == block);
            let known = known.and_then(|before| before.blocks.get(index as usize).copied());
            if let Some(known) = known.filter(|_| block.end <= self.unchanged) {
                copied.sums.blocks.push(known);
                continue;
            }
            if self.extents.is_hole(block).map_err(here)? {
                let sum = sums::of_zeros(block.len());
                copied.sums.blocks.push(sum);
                let same = match before {
                    Some(_) => known == Some(sum),
                    None => self.below.is_hole(block)? || self.equals_zeros(&mut buffer, block, &mut theirs)?,
                };
                if !same {
                    self.hole(block, copied)?;
                }
                continue;
            }
            let bytes = &mut buffer[..block.len() as usize];
            self.read(bytes, block.start)?;
            let sum = sums::sum(bytes);
            copied.sums.blocks.push(sum);
            let same = match before {
                Some(_) => known == Some(sum),
                None => self.equals(bytes, block, &mut theirs)?,
            };
            if !same {
                end = end.max(self.block(bytes, block, copied)?);
            }
            self.progress.looked(block.end)?;
        }
        Ok(end)
    }

    /// Writes one block's data and punches its holes. Returns where the data ends.
    fn block(&mut self, bytes: &[u8], block: ByteRange, copied: &mut Copied) -> io::Result<u64> {
        let mut at = block.start;
        loop {
            let data = self.extents.data_in(bytes, block, at).map_err(here)?;
            self.hole(ByteRange::new(at, data.map_or(block.end, |data| data.start)), copied)?;
            let Some(data) = data else { return Ok(if at > block.start { at } else { 0 }) };
            self.write(
                &bytes[(data.start - block.start) as usize..(data.end - block.start) as usize],
                data.start,
                copied,
            )?;
            at = data.end;
        }
    }

    fn hole(&mut self, hole: ByteRange, copied: &mut Copied) -> io::Result<()> {
        let hole = hole.intersection(&ByteRange::new(0, self.global_size));
        if !hole.is_empty() {
            self.progress.before_cut()?;
            self.global.punch(hole)?;
            copied.changed = true;
        }
        Ok(())
    }

    /// Reads the replica. Bytes that were cut off during the copy read as zeros, and are noticed as a change.
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let read = replica::read_full(self.replica, bytes, at).map_err(here)?;
        bytes[read..].fill(0);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], at: u64, copied: &mut Copied) -> io::Result<()> {
        self.progress.before_write(bytes.len() as u64)?;
        self.global.write_at(bytes, at)?;
        copied.bytes += bytes.len() as u64;
        copied.changed = true;
        if self.size > SMALL_BYTES {
            let range = ByteRange::at(at, bytes.len() as u64);
            self.behind.wrote(self.global, range).inspect_err(|_| self.progress.lost())?;
        }
        crate::fault::point("w4.range");
        Ok(())
    }

    /// Returns whether the global copy holds these bytes.
    fn equals(&self, bytes: &[u8], block: ByteRange, theirs: &mut Vec<u8>) -> io::Result<bool> {
        if block.end > self.global_size {
            return Ok(false);
        }
        theirs.resize(bytes.len(), 0);
        Ok(read_global(self.global, theirs, block.start)? == bytes.len() && theirs[..] == *bytes)
    }

    fn equals_zeros(&mut self, buffer: &mut [u8], block: ByteRange, theirs: &mut Vec<u8>) -> io::Result<bool> {
        let zeros = &mut buffer[..block.len() as usize];
        zeros.fill(0);
        self.progress.looked(block.end)?;
        self.equals(zeros, block, theirs)
    }

    /// Reads the whole global copy back and compares it.
    pub(crate) fn verify(&mut self) -> io::Result<bool> {
        let mut ours = vec![0; BLOCK_BYTES.min(self.size) as usize];
        let mut theirs = Vec::new();
        for index in 0..blocks_of(self.size) {
            let block = block_range(index, self.size);
            if self.extents.is_hole(block).map_err(here)? && self.below.is_hole(block)? {
                continue;
            }
            let bytes = &mut ours[..block.len() as usize];
            self.read(bytes, block.start)?;
            theirs.resize(bytes.len(), 0);
            if read_global(self.global, &mut theirs, block.start)? != bytes.len() || theirs[..] != *bytes {
                return Ok(false);
            }
            self.progress.looked(self.size)?;
        }
        Ok(true)
    }
}

fn read_global(global: &dyn StoreFile, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match global.read_at(&mut buffer[done..], at + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use global_store::StoreAttributes;
    use parking_lot::Mutex;
    use types::Timestamp;

    use super::*;

    struct Unasked;

    impl CopyProgress for Unasked {
        fn before_write(&mut self, _bytes: u64) -> io::Result<()> {
            Ok(())
        }
        fn before_cut(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn looked(&mut self, _end: u64) -> io::Result<()> {
            Ok(())
        }
        fn lost(&mut self) {}
    }

    /// A global copy with data where it was written.
    #[derive(Default)]
    struct Below {
        written: Arc<Mutex<Vec<ByteRange>>>,
        read: AtomicU64,
    }

    impl StoreFile for Below {
        fn read_at(&self, buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            self.read.fetch_add(1, Ordering::Relaxed);
            buffer.fill(7);
            Ok(buffer.len())
        }
        fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
            self.written.lock().push(ByteRange::at(offset, data.len() as u64));
            Ok(())
        }
        fn next_data(&self, offset: u64) -> io::Result<Option<ByteRange>> {
            let written = self.written.lock();
            let behind = written.iter().map(|range| ByteRange::new(range.start.max(offset), range.end));
            Ok(behind.filter(|range| !range.is_empty()).min_by_key(|range| range.start))
        }
        fn punch(&self, range: ByteRange) -> io::Result<()> {
            panic!("{range:?} is a hole already")
        }
        fn allocate(&self, _mode: u32, _range: ByteRange) -> io::Result<()> {
            unreachable!()
        }
        fn set_len(&self, _len: u64) -> io::Result<()> {
            Ok(())
        }
        fn set_mtime(&self, _mtime: Timestamp) -> io::Result<()> {
            unreachable!()
        }
        fn attributes(&self) -> io::Result<StoreAttributes> {
            unreachable!()
        }
        fn sync(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    /// Reading and summing the whole length would take a quarter of an hour.
    #[test] // S66
    fn a_hole_of_a_tebibyte_is_neither_read_nor_written() {
        const TIB: u64 = 1 << 40;
        let replica = OwnedFd::from(tempfile::tempfile_in("/dev/shm").unwrap());
        rustix::fs::ftruncate(&replica, TIB).unwrap();
        let data = ByteRange::at(TIB / 2, BLOCK_BYTES);
        replica::write_full(&replica, &vec![7; BLOCK_BYTES as usize], data.start).unwrap();
        let (below, mut unasked) = (Below::default(), Unasked);
        let mut copy = |global_size, extent: &Extent| {
            let copied = Copy::new(&replica, TIB, &below, global_size, &mut unasked).run(extent).unwrap();
            (copied.sums, std::mem::take(&mut *below.written.lock()))
        };
        let (sums, written) = copy(0, &Extent::Everything);
        assert_eq!(written, [data]);
        assert_eq!(sums.blocks.len() as u64, TIB / BLOCK_BYTES);
        assert_eq!(copy(TIB, &Extent::Changed(sums.clone())), (sums.clone(), vec![]));
        below.written.lock().push(data);
        assert_eq!(copy(TIB, &Extent::Differing), (sums.clone(), vec![data]), "what is below is not written again");
        assert_eq!(below.read.load(Ordering::Relaxed), 1, "but for the block with data");
        assert_eq!(sums::of_replica(&replica, TIB).unwrap(), sums);
    }
}
