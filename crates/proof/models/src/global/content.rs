//! The bytes of one file, and which of its blocks are holes.

use std::collections::BTreeSet;

use types::{ByteRange, Timestamp};

/// Size of a block in bytes. Holes are tracked by block, as file systems do.
const BLOCK: u64 = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    data: Vec<u8>,
    blocks: BTreeSet<u64>,
    pub(super) mtime: Timestamp,
}

impl Content {
    pub(super) fn new(mtime: Timestamp) -> Content {
        Content { mtime, ..Content::default() }
    }

    pub(super) fn len(&self) -> u64 {
        self.data.len() as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = self.data.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        let range = ByteRange::at(offset, data.len() as u64);
        if self.len() < range.end {
            self.set_len(range.end);
        }
        self.data[range.start as usize..range.end as usize].copy_from_slice(data);
        self.blocks.extend(range.start / BLOCK..range.end.div_ceil(BLOCK));
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.data.resize(len as usize, 0);
        self.blocks.split_off(&len.div_ceil(BLOCK));
    }

    pub(super) fn punch(&mut self, range: ByteRange) {
        let range = range.intersection(&ByteRange::new(0, self.len()));
        if range.is_empty() {
            return;
        }
        self.data[range.start as usize..range.end as usize].fill(0);
        let end = if range.end == self.len() { range.end.div_ceil(BLOCK) } else { range.end / BLOCK };
        self.blocks.retain(|block| !(range.start.div_ceil(BLOCK)..end).contains(block));
    }

    pub(super) fn next_data(&self, offset: u64) -> Option<ByteRange> {
        let first = *self.blocks.range(offset / BLOCK..).next()?;
        let mut end = first + 1;
        while self.blocks.contains(&end) {
            end += 1;
        }
        let found = ByteRange::new((first * BLOCK).max(offset), (end * BLOCK).min(self.len()));
        (!found.is_empty()).then_some(found)
    }
}
