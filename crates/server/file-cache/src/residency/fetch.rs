//! A stage-in under way.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use global_store::StoreFile;
use types::{ByteRange, Fingerprint, RangeSet, Version};

use crate::limits::BLOCK_BYTES;

pub(crate) struct Fetch {
    pub(crate) version: Version,
    pub(crate) base: Fingerprint,
    /// Whether a later content may have the same fingerprint.
    pub(crate) racy: bool,
    pub(crate) present: RangeSet,
    pub(crate) claimed: BTreeSet<u64>,
    /// The block after the last read: the next to be fetched.
    pub(crate) wanted: u64,
    /// Blocks that readers are expected to want, the nearest first. Fetched before all others.
    pub(crate) ahead: VecDeque<u64>,
    /// Number of background fetchers that work on the file or are about to.
    pub(crate) fetchers: u32,
    /// Most fetchers allowed. It grows when readers catch up with blocks that were expected.
    pub(crate) fetchers_max: u32,
    pub(crate) sums: Vec<u64>,
    pub(crate) source: Arc<dyn StoreFile>,
    pub(crate) replica: Arc<OwnedFd>,
    pub(crate) started: bool,
    /// Whether the fetch continues without readers.
    pub(crate) commanded: bool,
}

impl Fetch {
    pub(crate) fn has_block(&self, block: u64) -> bool {
        self.present.contains(crate::burst_buffer::sums::block_range(block, self.base.size))
    }

    /// Returns a block that nobody has or copies: the nearest expected one, otherwise the next from `wanted` on.
    pub(crate) fn next_block(&mut self) -> Option<u64> {
        while let Some(block) = self.ahead.pop_front() {
            if !self.claimed.contains(&block) && !self.has_block(block) {
                return Some(block);
            }
        }
        let size = self.base.size;
        let from = self.wanted.min(size) / BLOCK_BYTES * BLOCK_BYTES;
        let ranges = [ByteRange::new(from, size), ByteRange::new(0, from)];
        let gaps = ranges.into_iter().flat_map(|range| self.present.missing(range));
        gaps.flat_map(|gap| gap.start / BLOCK_BYTES..gap.end.div_ceil(BLOCK_BYTES))
            .find(|block| !self.claimed.contains(block))
    }

    /// Marks whole blocks of a hole as present: the replica has the hole too.
    pub(crate) fn skip(&mut self, hole: ByteRange) {
        let first = hole.start.div_ceil(BLOCK_BYTES);
        let mut skipped = ByteRange::at(first * BLOCK_BYTES, 0);
        for block in first..self.sums.len() as u64 {
            let range = crate::burst_buffer::sums::block_range(block, self.base.size);
            if range.end > hole.end {
                break;
            }
            self.sums[block as usize] = crate::burst_buffer::sums::of_zeros(range.len());
            skipped.end = range.end;
        }
        self.present.insert(skipped);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.present.contains(ByteRange::new(0, self.base.size))
    }
}
