//! Data extents of a replica that is being copied.

use std::io;
use std::os::fd::OwnedFd;

use types::ByteRange;

use super::replica::next_data;
use crate::limits::GAP_BYTES;

/// The data extents of a replica of `size` bytes, found from its beginning on. The file system is asked once for each
/// extent, for finding an extent's end costs tmpfs a step for each page.
pub(crate) struct Extents<'a> {
    replica: &'a OwnedFd,
    size: u64,
    /// Offset from which the file system was asked last.
    from: u64,
    /// Extent found then; behind all bytes if only a hole follows.
    found: ByteRange,
    #[cfg(test)]
    asked: u64,
}

const NOTHING: ByteRange = ByteRange { start: u64::MAX, end: u64::MAX };

fn is_zero(piece: &[u8]) -> bool {
    piece.iter().fold(0, |all, byte| all | byte) == 0
}

impl<'a> Extents<'a> {
    pub fn new(replica: &'a OwnedFd, size: u64) -> Extents<'a> {
        Extents {
            replica,
            size,
            from: u64::MAX,
            found: NOTHING,
            #[cfg(test)]
            asked: 0,
        }
    }

    /// Returns whether all of a range is a hole, so that nothing of it need be read.
    pub fn is_hole(&mut self, range: ByteRange) -> io::Result<bool> {
        if range.start < self.from || range.start >= self.found.end {
            self.ask(range.start)?;
        }
        Ok(range.end <= self.found.start)
    }

    fn ask(&mut self, from: u64) -> io::Result<()> {
        #[cfg(test)]
        {
            self.asked += 1;
        }
        self.found = next_data(self.replica, from, self.size)?.unwrap_or(NOTHING);
        self.from = from;
        Ok(())
    }

    /// Returns the first data at or after `from` in a range that was read as `bytes`. If a range became a hole since
    /// then but was read as more than zeros, it still counts as data: the checksums say so.
    pub fn data_in(&mut self, bytes: &[u8], range: ByteRange, from: u64) -> io::Result<Option<ByteRange>> {
        let data = self.next(&bytes[(from - range.start) as usize..], ByteRange::new(from, range.end))?;
        let end = data.map_or(range.end, |data| data.start);
        let gap = &bytes[(from - range.start) as usize..(end - range.start) as usize];
        Ok(match gap.chunks(GAP_BYTES).position(|piece| !is_zero(piece)) {
            None => data,
            Some(piece) => Some(ByteRange::new(from + (piece * GAP_BYTES) as u64, end)),
        })
    }

    /// Returns the first data of `range`, which was read as `bytes`.
    fn next(&mut self, bytes: &[u8], range: ByteRange) -> io::Result<Option<ByteRange>> {
        if range.is_empty() {
            return Ok(None);
        }
        let known = self.found.intersection(&range);
        let is_known = self.from <= range.start && range.start < self.found.end;
        // A range that was read as zeros may be a hole by now, although data was found there before.
        if !is_known || (known.start == range.start && bytes.chunks(GAP_BYTES).all(is_zero)) {
            self.ask(range.start)?;
        }
        Ok(Some(self.found.intersection(&range)).filter(|data| !data.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const BLOCK: u64 = 1 << 20;

    /// Returns all data extents that a copy finds, block after block, and how often the file system was asked.
    fn found(file: &OwnedFd, size: u64) -> (Vec<ByteRange>, u64) {
        let (mut extents, mut all) = (Extents::new(file, size), Vec::<ByteRange>::new());
        for start in (0..size).step_by(BLOCK as usize) {
            let block = ByteRange::new(start, (start + BLOCK).min(size));
            let mut bytes = vec![0; block.len() as usize];
            rustix::io::pread(file, &mut bytes, start).unwrap();
            let mut from = start;
            while let Some(data) = extents.data_in(&bytes, block, from).unwrap() {
                assert!(data.start >= from && data.end <= block.end && !data.is_empty());
                from = data.end;
                match all.last_mut().filter(|last| last.end == data.start) {
                    Some(last) => last.end = data.end,
                    None => all.push(data),
                }
            }
        }
        (all, extents.asked)
    }

    #[test]
    fn an_extent_is_asked_for_once_and_holes_stay_holes() {
        let file = OwnedFd::from(tempfile::tempfile_in("/dev/shm").unwrap());
        let size = 40 * BLOCK + 5;
        rustix::fs::ftruncate(&file, size).unwrap();
        let write = |range: ByteRange, byte: u8| {
            rustix::io::pwrite(&file, &vec![byte; range.len() as usize], range.start).unwrap();
        };
        let data = [ByteRange::new(4096, 20 * BLOCK), ByteRange::new(30 * BLOCK + 8192, 30 * BLOCK + 12288)];
        data.iter().for_each(|range| write(*range, 7));
        let (all, asked) = found(&file, size);
        assert_eq!(all, data);
        // Twice for the first block, once for each block that is a hole or begins behind data.
        assert!(asked <= 25, "{asked}");
    }

    #[test] // S66
    fn holes_are_told_without_a_question_for_each_block() {
        let file = OwnedFd::from(tempfile::tempfile_in("/dev/shm").unwrap());
        let size = 1000 * BLOCK + 5;
        rustix::fs::ftruncate(&file, size).unwrap();
        let data = [ByteRange::at(500 * BLOCK + 4096, 4096), ByteRange::at(700 * BLOCK, 2 * BLOCK)];
        for range in data {
            rustix::io::pwrite(&file, &vec![7; range.len() as usize], range.start).unwrap();
        }
        let mut extents = Extents::new(&file, size);
        let blocks = (0..size).step_by(BLOCK as usize).map(|start| ByteRange::new(start, (start + BLOCK).min(size)));
        let read: Vec<u64> =
            blocks.filter(|block| !extents.is_hole(*block).unwrap()).map(|block| block.start / BLOCK).collect();
        assert_eq!(read, [500, 700, 701]);
        assert!(extents.asked <= 4, "{}", extents.asked);
        assert!(extents.is_hole(ByteRange::at(0, BLOCK)).unwrap(), "from the beginning again");
    }

    #[test]
    fn what_became_a_hole_after_it_was_found_is_one_and_what_was_written_there_is_data() {
        let file = File::from(OwnedFd::from(tempfile::tempfile_in("/dev/shm").unwrap()));
        let file = OwnedFd::from(file);
        rustix::io::pwrite(&file, &vec![7; 4 * BLOCK as usize], 0).unwrap();
        let mut extents = Extents::new(&file, 4 * BLOCK);
        let block = |number| ByteRange::at(number * BLOCK, BLOCK);
        assert_eq!(extents.data_in(&vec![7; BLOCK as usize], block(0), 0).unwrap(), Some(block(0)));
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, BLOCK, BLOCK).unwrap();
        assert_eq!(extents.data_in(&vec![0; BLOCK as usize], block(1), BLOCK).unwrap(), None);
        assert_eq!(extents.data_in(&vec![7; BLOCK as usize], block(1), BLOCK).unwrap(), Some(block(1)), "read before");
        assert_eq!(
            extents.data_in(&vec![0; BLOCK as usize], block(2), 2 * BLOCK).unwrap(),
            Some(block(2)),
            "zeros stored"
        );
    }
}
