//! Reads of a file that is being staged in, and fetches ahead of them.
//!
//! A reader waits for the blocks that it reads and for no others. Background fetchers meanwhile copy, in this order:
//! the blocks that the reader is expected to want ([`OpenData::read_ahead`]), the blocks behind the last read, the
//! rest of the file. There is one fetcher at first. Each time a reader comes before what was expected of it, the
//! number doubles. A read that nobody expected takes it back to one, for anything fetched beside such a read only
//! makes it wait longer.
//!
//! [`OpenData::read_ahead`]: data_store::OpenData::read_ahead

use std::io;
use std::sync::Arc;

use types::ByteRange;

use crate::burst_buffer::replica;
use crate::burst_buffer::sums::block_range;
use crate::cache::{CacheCounters, Inner};
use crate::limits::{AHEAD_BLOCKS_MAX, BLOCK_BYTES, FETCHERS_PER_FILE_MAX};
use crate::residency::{Fetch, File};
use data_store::{Fared, Foresee};

fn blocks(range: ByteRange) -> std::ops::Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

impl Fetch {
    /// Returns how a read of `range` would fare now.
    fn fares(&self, range: ByteRange) -> Fared {
        let absent = || blocks(range).filter(|block| !self.has_block(*block));
        match absent().all(|block| self.claimed.contains(&block)) {
            _ if absent().next().is_none() => Fared::Hit,
            true => Fared::Late,
            false => Fared::Miss,
        }
    }

    /// Notes a read of `range` that is about to be made. Returns how it fares.
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

    /// Adds ranges that readers are expected to want, the nearest first.
    fn expect(&mut self, ranges: &[ByteRange]) {
        for block in ranges.iter().flat_map(|range| blocks(*range)) {
            if !self.ahead.contains(&block) {
                self.ahead.push_back(block);
            }
        }
        // The oldest expectations that did not come true are forgotten first.
        let excess = self.ahead.len().saturating_sub(AHEAD_BLOCKS_MAX);
        self.ahead.drain(..excess);
    }
}

impl Inner {
    /// Lets the ranges that the reader will want next be fetched before anything else, ahead of a read of `range`.
    pub(crate) fn read_ahead(&self, file: &File, range: ByteRange, foresee: Foresee<'_>) {
        if let Some(fetch) = file.live.lock().fetch_mut() {
            let (size, fared) = (fetch.base.size, fetch.fares(range));
            let notice = foresee(size, fared, u64::MAX, &mut |range| fetch.absent(range));
            fetch.expect(&notice.following);
        }
    }

    /// Reads a file that is being fetched. Returns `None` if it is not being fetched any more.
    pub(crate) fn read_partial(&self, file: &Arc<File>, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let (range, replica) = {
            let mut live = file.live.lock();
            let Some(fetch) = live.fetch_mut() else { return Ok(None) };
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
                // Everything is copied but cannot be kept: readers continue in the global store.
                Err(_) if file.live.lock().fetch().is_none() => return Ok(None),
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
