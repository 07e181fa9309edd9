//! Reads of a file that is being staged in, and what is fetched before they come.
//!
//! A reader waits for the blocks that it reads and for no others. Background fetchers meanwhile copy, in this order:
//! the blocks that the reader is expected to want ([`FileHandle::read_ahead`]), the blocks behind the last read, the
//! rest of the file. There is one fetcher at first. Each time a reader comes before what was expected of it, the
//! number doubles. A read that nobody expected takes it back to one, for anything fetched beside such a read only
//! makes it wait longer.
//!
//! [`FileHandle::read_ahead`]: crate::FileHandle::read_ahead

use std::io;
use std::sync::Arc;

use types::ByteRange;

use crate::api::Fared;
use crate::cache::{CacheCounters, Inner};
use crate::file::{Body, Fetch, File};
use crate::limits::{AHEAD_BLOCKS_MAX, BLOCK_BYTES, FETCHERS_PER_FILE_MAX};
use crate::replica;
use crate::sums::block_range;

/// Which bytes of a range are neither there nor on their way.
pub type FindMissing<'a> = &'a mut dyn FnMut(ByteRange) -> Vec<ByteRange>;

/// Says which ranges the reader will want, the nearest first, of a file of so many bytes and after a read that fared
/// so.
pub type Foresee<'a> = &'a mut dyn FnMut(u64, Fared, FindMissing<'_>) -> Vec<ByteRange>;

fn blocks(range: ByteRange) -> std::ops::Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

impl Fetch {
    /// How a read of `range` fares now.
    fn fares(&self, range: ByteRange) -> Fared {
        let absent = || blocks(range).filter(|block| !self.has_block(*block));
        match absent().all(|block| self.claimed.contains(&block)) {
            _ if absent().next().is_none() => Fared::Hit,
            true => Fared::Late,
            false => Fared::Miss,
        }
    }

    /// A read of `range` is about to be made.
    fn meet(&mut self, range: ByteRange) -> Fared {
        let fared = self.fares(range);
        let expected = self.wanted == range.start || blocks(range).any(|block| self.ahead.contains(&block));
        match fared {
            Fared::Hit => {}
            Fared::Miss if !expected => self.fetchers_max = 1,
            Fared::Late | Fared::Miss => self.fetchers_max = (self.fetchers_max * 2).min(FETCHERS_PER_FILE_MAX),
        }
        self.wanted = range.end;
        fared
    }

    fn absent(&self, range: ByteRange) -> Vec<ByteRange> {
        let range = range.intersection(&ByteRange::new(0, self.base.size));
        let fresh = blocks(range).filter(|block| !self.claimed.contains(block) && !self.has_block(*block));
        fresh.map(|block| block_range(block, self.base.size).intersection(&range)).collect()
    }

    /// Readers are expected to want these ranges too, the nearest first.
    fn expect(&mut self, ranges: &[ByteRange]) {
        for block in ranges.iter().flat_map(|range| blocks(*range)) {
            if !self.ahead.contains(&block) {
                self.ahead.push_back(block);
            }
        }
        // What was expected first and did not come is the first to be forgotten.
        let excess = self.ahead.len().saturating_sub(AHEAD_BLOCKS_MAX);
        self.ahead.drain(..excess);
    }
}

impl Inner {
    /// Before a read of `range`: what its reader will want next is fetched before anything else.
    pub(crate) fn read_ahead(&self, file: &File, range: ByteRange, foresee: Foresee<'_>) {
        if let Body::Partial(fetch) = &mut file.live.lock().body {
            let (size, fared) = (fetch.base.size, fetch.fares(range));
            let ranges = foresee(size, fared, &mut |range| fetch.absent(range));
            fetch.expect(&ranges);
        }
    }

    /// A read of a file that is being fetched. `None`: it is not any more.
    pub(crate) fn read_partial(&self, file: &Arc<File>, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let (range, replica) = {
            let mut live = file.live.lock();
            let Body::Partial(fetch) = &mut live.body else { return Ok(None) };
            let range = ByteRange::at(offset, buffer.len() as u64).intersection(&ByteRange::new(0, fetch.base.size));
            if range.is_empty() {
                return Ok(Some(0));
            }
            self.count_read(fetch.meet(range));
            fetch.started = true;
            while fetch.fetchers < fetch.fetchers_max && !fetch.is_complete() {
                fetch.fetchers += 1;
                self.fetches.push(file);
            }
            (range, Arc::clone(&fetch.replica))
        };
        for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
            match self.fetch_block(file, block) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // All is copied and cannot be kept: whoever reads goes on in the global store.
                Err(_) if !matches!(file.live.lock().body, Body::Partial(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        replica::read_full(&replica, &mut buffer[..range.len() as usize], range.start).map(Some)
    }

    fn count_read(&self, fared: Fared) {
        let counter = match fared {
            Fared::Hit => &self.counters.read_hits,
            Fared::Late => &self.counters.read_late,
            Fared::Miss => &self.counters.read_misses,
        };
        CacheCounters::add(counter, 1);
    }
}
