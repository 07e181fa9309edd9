//! Step W4: what of a replica is written to the global copy, and how.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use global_store::OpenFile;
use types::ByteRange;

use crate::extents::Extents;
use crate::limits::{BEHIND_BYTES, BLOCK_BYTES, SMALL_BYTES};
use crate::replica;
use crate::side::here;
use crate::sums::{self, Sums, block_range, blocks_of};

/// What of the replica is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of its data, after the global copy was cut to nothing: the file is new or was truncated.
    Everything,
    /// The blocks whose checksums differ from these, which are those of the global copy.
    Changed(Sums),
    /// The blocks that differ from the global copy, which is read: nothing is known of it.
    Differing,
}

/// What a copy needs to ask and to tell while it runs.
pub(crate) trait Progress {
    /// Called before the first change of the global copy, and before each later one; an error ends the copy.
    fn before_write(&mut self, bytes: u64) -> io::Result<()>;
    /// Called before data below is cut off or made a hole; an error ends the copy.
    fn before_cut(&mut self) -> io::Result<()>;
    /// Called for every buffer of the replica that was looked at, with where it ends; an error ends the copy.
    fn looked(&mut self, end: u64) -> io::Result<()>;
    /// Called when the global store failed to keep what it had taken.
    fn lost(&mut self);
}

/// What was written and is on its way to the store's medium, in the order of the writes.
#[derive(Debug, Default)]
struct Behind {
    ranges: VecDeque<ByteRange>,
    bytes: u64,
}

impl Behind {
    /// Sends a range on its way, and waits for those that are far behind it.
    fn wrote(&mut self, global: &dyn OpenFile, range: ByteRange) -> io::Result<()> {
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
    pub(crate) global: &'a dyn OpenFile,
    pub(crate) global_size: u64,
    pub(crate) progress: &'a mut dyn Progress,
    extents: Extents<'a>,
    behind: Behind,
}

/// What a copy did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Checksums of what the global copy holds now.
    pub(crate) sums: Sums,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Whether the global copy was changed at all.
    pub(crate) changed: bool,
}

impl<'a> Copy<'a> {
    pub(crate) fn new(
        replica: &'a OwnedFd,
        size: u64,
        global: &'a dyn OpenFile,
        global_size: u64,
        progress: &'a mut dyn Progress,
    ) -> Copy<'a> {
        let extents = Extents::new(replica, size);
        Copy { replica, size, global, global_size, progress, extents, behind: Behind::default() }
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

    /// Returns the length that the global copy has then.
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

    /// Returns the length that the global copy has then.
    fn blocks(&mut self, copied: &mut Copied, before: Option<&Sums>) -> io::Result<u64> {
        let mut buffer = vec![0; BLOCK_BYTES.min(self.size) as usize];
        let mut theirs = Vec::new();
        let mut end = self.global_size;
        for index in 0..blocks_of(self.size) {
            let block = block_range(index, self.size);
            let bytes = &mut buffer[..block.len() as usize];
            self.read(bytes, block.start)?;
            let sum = sums::sum(bytes);
            copied.sums.blocks.push(sum);
            let same = match before {
                Some(before) => {
                    before.blocks.get(index as usize) == Some(&sum) && block_range(index, before.size) == block
                }
                None => self.equals(bytes, block, &mut theirs)?,
            };
            if !same {
                end = end.max(self.block(bytes, block, copied)?);
            }
            self.progress.looked(block.end)?;
        }
        Ok(end)
    }

    /// Writes one block's data and makes holes of its holes. Returns where the data ends.
    fn block(&mut self, bytes: &[u8], block: ByteRange, copied: &mut Copied) -> io::Result<u64> {
        let mut at = block.start;
        loop {
            let data = self.extents.data_in(bytes, block, at).map_err(here)?;
            let hole = ByteRange::new(at, data.map_or(block.end, |data| data.start));
            let hole = hole.intersection(&ByteRange::new(0, self.global_size));
            if !hole.is_empty() {
                self.progress.before_cut()?;
                self.global.punch(hole)?;
                copied.changed = true;
            }
            let Some(data) = data else { return Ok(if at > block.start { at } else { 0 }) };
            self.write(
                &bytes[(data.start - block.start) as usize..(data.end - block.start) as usize],
                data.start,
                copied,
            )?;
            at = data.end;
        }
    }

    /// The replica's bytes; what was cut off while we copy reads as zeros, and is noticed as a change.
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

    /// Whether the global copy holds these bytes.
    fn equals(&self, bytes: &[u8], block: ByteRange, theirs: &mut Vec<u8>) -> io::Result<bool> {
        if block.end > self.global_size {
            return Ok(false);
        }
        theirs.resize(bytes.len(), 0);
        Ok(read_global(self.global, theirs, block.start)? == bytes.len() && theirs[..] == *bytes)
    }

    /// Reads all of the global copy back and compares.
    pub(crate) fn verify(&mut self) -> io::Result<bool> {
        let mut ours = vec![0; BLOCK_BYTES.min(self.size) as usize];
        let mut theirs = Vec::new();
        for index in 0..blocks_of(self.size) {
            let block = block_range(index, self.size);
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

fn read_global(global: &dyn OpenFile, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match global.read_at(&mut buffer[done..], at + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}
