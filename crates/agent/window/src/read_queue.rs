//! Read queue: blocks fetched ahead, sorted and disjoint.
//!
//! [`ReadQueue::search`] is Algorithm 2 of the paper, corrected. [`ReadQueue::read`] continues behind gaps and returns
//! the missing ranges. The algorithm as printed, in [`printed`], is only for the ablation: it returns wrong bytes.
//!
//! Invariants, checked by `assert_sound` in the tests:
//!
//! 1. blocks are sorted by offset, disjoint and not empty;
//! 2. `bytes` is their sum, and at most `bytes_max` after an insertion;
//! 3. bytes that a write invalidated after their fetch began never enter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use types::ByteRange;

/// Treatment of bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge {
    /// Bytes that were read are removed, and also those further than `back_window` bytes behind the reader. For a file
    /// read by one sequential or stride stream.
    Consume {
        /// Bytes kept behind the reader for small steps back.
        back_window: u64,
    },
    /// Bytes stay until they are evicted, because random readers come back.
    Retain,
}

/// Result of a search from the beginning of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Number of bytes copied, from the request's first byte on.
    pub filled: u64,
    /// Bytes that are left to fetch; empty for a full hit.
    pub remainder: ByteRange,
}

/// Running fetch, from [`ReadQueue::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchTicket(u64);

/// Bytes of a fetch, shared by the queue and its readers.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Part of a fetched buffer. Cutting a block copies nothing.
#[derive(Clone)]
struct Block {
    data: SharedBytes,
    from: usize,
    len: usize,
    /// Number of the insertion; blocks with smaller numbers are evicted first.
    age: u64,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("from", &self.from).field("len", &self.len).field("age", &self.age).finish()
    }
}

/// Bytes of the queue in place. They stay unchanged, whatever happens to the queue.
#[derive(Debug)]
pub struct Part(Block);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Block {
    fn bytes(&self) -> &[u8] {
        &(*self.data).as_ref()[self.from..self.from + self.len]
    }

    /// Returns the bytes from `skip` on, at most `len`.
    fn cut(&self, skip: u64, len: u64) -> Block {
        Block { data: self.data.clone(), from: self.from + skip as usize, len: len as usize, age: self.age }
    }
}

/// Queue of blocks of one file, fetched ahead of its readers.
#[derive(Debug)]
pub struct ReadQueue {
    blocks: BTreeMap<u64, Block>,
    bytes: u64,
    bytes_max: u64,
    ages: u64,
    /// Age and offset of every block.
    order: BTreeSet<(u64, u64)>,
    fetches: BTreeMap<FetchTicket, Vec<ByteRange>>,
    tickets: u64,
}

impl ReadQueue {
    /// Makes an empty queue that keeps at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> ReadQueue {
        ReadQueue {
            blocks: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            ages: 0,
            order: BTreeSet::new(),
            fetches: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// Returns the number of bytes kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the blocks as offset and length, sorted.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().map(|(offset, block)| (*offset, block.len as u64))
    }

    /// Fills `out` with the bytes of the file from `offset` on, up to the first gap, and removes the copied bytes
    /// (Algorithm 2, corrected). Returns `None` if the first byte is missing.
    pub fn search(&mut self, offset: u64, out: &mut [u8]) -> Option<Hit> {
        let request = ByteRange::at(offset, out.len() as u64);
        let mut at = offset;
        for (block, found) in self.overlapping(request) {
            if found.start > at {
                break;
            }
            fill(out, request, &block, found);
            at = found.end;
        }
        self.remove(ByteRange::new(offset, at));
        (at > offset).then(|| Hit { filled: at - offset, remainder: ByteRange::new(at, request.end) })
    }

    /// Fills all parts of `out` that are present. Returns the missing ranges in order; empty for a full hit.
    pub fn read(&mut self, offset: u64, out: &mut [u8], purge: Purge) -> Vec<ByteRange> {
        let request = ByteRange::at(offset, out.len() as u64);
        let mut missing = Vec::new();
        let mut at = offset;
        for (block, found) in self.overlapping(request) {
            if found.start > at {
                missing.push(ByteRange::new(at, found.start));
            }
            fill(out, request, &block, found);
            at = found.end;
        }
        if at < request.end {
            missing.push(ByteRange::new(at, request.end));
        }
        if let Purge::Consume { back_window } = purge {
            self.remove(request);
            let limit = offset.saturating_sub(back_window);
            let far = |(start, block): &(&u64, &Block)| **start + block.len as u64 <= limit;
            let behind: Vec<u64> = self.blocks.range(..offset).filter(far).map(|(start, _)| *start).collect();
            behind.into_iter().for_each(|start| self.take(start));
        }
        missing
    }

    /// Returns all bytes of `range` in place and in order, or `None` if some are missing.
    pub fn parts(&self, range: ByteRange) -> Option<Vec<Part>> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        for ((block, start), found) in self.overlapping(range) {
            if found.start > at {
                return None;
            }
            parts.push(Part(block.cut(found.start - start, found.len())));
            at = found.end;
        }
        (at == range.end).then_some(parts)
    }

    /// Removes `range`, which a stream no longer needs. Unlike [`Purge::Consume`], this leaves the bytes of other
    /// streams.
    pub fn consume(&mut self, range: ByteRange) {
        self.remove(range);
    }

    /// Returns the parts of `range` that are not present, whether or not they are being fetched.
    pub fn lacking(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut present = types::RangeSet::new();
        self.overlapping(range).into_iter().for_each(|(_, found)| present.insert(found));
        present.missing(range)
    }

    /// Returns the parts of `range` that are neither present nor being fetched: the ranges to prefetch.
    pub fn absent(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut present = types::RangeSet::new();
        self.overlapping(range).into_iter().for_each(|(_, found)| present.insert(found));
        let meets = |fetch: &&ByteRange| !fetch.intersection(&range).is_empty();
        self.fetches.values().flatten().filter(meets).for_each(|fetch| present.insert(*fetch));
        present.missing(range)
    }

    /// Begins a fetch of `range`.
    pub fn begin(&mut self, range: ByteRange) -> FetchTicket {
        self.tickets += 1;
        self.fetches.insert(FetchTicket(self.tickets), vec![range]);
        FetchTicket(self.tickets)
    }

    /// Inserts the bytes of a fetch, from `offset` on. Fewer bytes than asked for (end of file) are allowed. Bytes
    /// invalidated meanwhile are dropped. A ticket is valid once.
    pub fn arrive(&mut self, ticket: FetchTicket, offset: u64, data: SharedBytes) {
        let arrived = ByteRange::at(offset, (*data).as_ref().len() as u64);
        for valid in self.fetches.remove(&ticket).unwrap_or_default() {
            let part = valid.intersection(&arrived);
            if !part.is_empty() {
                let from = (part.start - offset) as usize;
                self.insert(part.start, Block { data: data.clone(), from, len: part.len() as usize, age: 0 });
            }
        }
    }

    /// Ends a fetch that failed or is no longer wanted.
    pub fn cancel(&mut self, ticket: FetchTicket) {
        self.fetches.remove(&ticket);
    }

    /// Removes the bytes of `range`, which have changed; running fetches of them are dropped as well.
    pub fn invalidate(&mut self, range: ByteRange) {
        self.remove(range);
        for parts in self.fetches.values_mut() {
            *parts = parts.iter().flat_map(|part| without(*part, range)).collect();
        }
    }

    /// Inserts bytes, which replace older ones. Then evicts the oldest blocks until the limit is kept.
    fn insert(&mut self, offset: u64, mut block: Block) {
        self.ages += 1;
        block.age = self.ages;
        self.remove(ByteRange::at(offset, block.len as u64));
        self.put(offset, block);
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.order.first().copied() else { break };
            self.take(oldest);
        }
    }

    fn put(&mut self, offset: u64, block: Block) {
        self.bytes += block.len as u64;
        self.order.insert((block.age, offset));
        self.blocks.insert(offset, block);
    }

    fn take(&mut self, offset: u64) {
        if let Some(block) = self.blocks.remove(&offset) {
            self.bytes -= block.len as u64;
            self.order.remove(&(block.age, offset));
        }
    }

    fn remove(&mut self, range: ByteRange) {
        for ((block, offset), found) in self.overlapping(range) {
            self.take(offset);
            let (before, end) = (found.start - offset, found.end - offset);
            if before > 0 {
                self.put(offset, block.cut(0, before));
            }
            if end < block.len as u64 {
                self.put(found.end, block.cut(end, block.len as u64 - end));
            }
        }
    }

    /// Returns the blocks that overlap `range`, with their offsets and their part of it; sorted.
    fn overlapping(&self, range: ByteRange) -> Vec<((Block, u64), ByteRange)> {
        let first = self.blocks.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let mut found = Vec::new();
        if range.is_empty() {
            return found;
        }
        for (start, block) in self.blocks.range(first..range.end) {
            let part = ByteRange::at(*start, block.len as u64).intersection(&range);
            if !part.is_empty() {
                found.push(((block.clone(), *start), part));
            }
        }
        found
    }
}

fn fill(out: &mut [u8], request: ByteRange, (block, start): &(Block, u64), found: ByteRange) {
    let to = (found.start - request.start) as usize;
    let from = (found.start - start) as usize;
    out[to..to + found.len() as usize].copy_from_slice(&block.bytes()[from..from + found.len() as usize]);
}

fn without(part: ByteRange, hole: ByteRange) -> impl Iterator<Item = ByteRange> {
    let before = ByteRange::new(part.start, part.end.min(hole.start));
    let after = ByteRange::new(part.start.max(hole.end), part.end);
    let parts = if part.intersection(&hole).is_empty() { [part, ByteRange::new(0, 0)] } else { [before, after] };
    parts.into_iter().filter(|part| !part.is_empty())
}

/// Algorithm 2 as the paper prints it, on offsets only.
pub mod printed {
    use types::ByteRange;

    /// Walks the sorted list of blocks (offset, length). Returns the number of bytes claimed as hits, and the
    /// remainder. Removes the claimed bytes from the front of the block that was hit. Its copies would run past the
    /// ends of blocks, so none are made.
    pub fn search(list: &mut Vec<(u64, u64)>, request: ByteRange) -> (u64, ByteRange) {
        let (mut left_offset, mut left_size) = (request.start, request.len());
        for block in list.iter_mut() {
            let (offset, size) = *block;
            if offset + size <= left_offset {
                continue;
            }
            if offset <= left_offset && offset + size >= left_offset {
                // Line 6: an exact hit counts 0 bytes, and a tail of a block counts more bytes than it has.
                let hit = if size > request.len() { request.len() } else { request.len() - size };
                left_offset += hit;
                left_size = left_size.saturating_sub(hit);
                *block = (offset + hit.min(size), size.saturating_sub(hit));
            }
            if left_size == 0 {
                break;
            }
        }
        list.retain(|block| block.1 > 0);
        (request.len() - left_size, ByteRange::at(left_offset, left_size))
    }
}

#[cfg(test)]
impl ReadQueue {
    /// Asserts invariants 1 and 2.
    pub(crate) fn assert_sound(&self) {
        let mut end = 0;
        for (offset, len) in self.blocks() {
            assert!(offset >= end && len > 0, "block at {offset}, the last one ended at {end}");
            end = offset + len;
        }
        assert_eq!(self.blocks().map(|(_, len)| len).sum::<u64>(), self.bytes);
        assert!(self.bytes <= self.bytes_max);
    }
}

#[cfg(test)]
mod tests;
