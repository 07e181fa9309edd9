//! The read queue: blocks fetched ahead, sorted and disjoint.
//!
//! Algorithm 2 of the paper, corrected, is [`ReadQueue::search`]; [`ReadQueue::read`] goes on behind gaps and returns what
//! is missing. The printed algorithm stands in [`printed`] for the ablation alone: it hands out wrong bytes.
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

/// What becomes of bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge {
    /// They go, and so does what lies further than `back_window` bytes behind the reader: a file read by one sequential
    /// or stride stream.
    Consume {
        /// Bytes kept behind the reader for small steps back.
        back_window: u64,
    },
    /// They stay until they are evicted: random readers come back.
    Retain,
}

/// What a search found at the beginning of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Bytes copied, from the request's first on.
    pub filled: u64,
    /// The bytes that are left to fetch; empty for a full hit.
    pub remainder: ByteRange,
}

/// A fetch under way, from [`ReadQueue::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchTicket(u64);

/// Bytes of a fetch, which the queue shares with those who read them.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Part of a fetched buffer; cutting one copies nothing.
#[derive(Clone)]
struct Block {
    data: SharedBytes,
    from: usize,
    len: usize,
    /// The insertion it came with: what is older goes first.
    age: u64,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("from", &self.from).field("len", &self.len).field("age", &self.age).finish()
    }
}

/// Bytes of the queue where they lie. They stay what they are, whatever becomes of the queue.
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

    /// The bytes from `skip` on, at most `len`.
    fn cut(&self, skip: u64, len: u64) -> Block {
        Block { data: self.data.clone(), from: self.from + skip as usize, len: len as usize, age: self.age }
    }
}

/// Blocks of one file fetched ahead of its readers.
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
    /// An empty queue that keeps at most `bytes_max` bytes.
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

    /// Bytes kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The blocks as offset and length, sorted.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().map(|(offset, block)| (*offset, block.len as u64))
    }

    /// Algorithm 2 corrected: fills `out`, the bytes of the file from `offset` on, up to the first gap, and consumes what it
    /// copied. `None` when the first byte is not here.
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

    /// Fills all parts of `out` that are here and returns the ranges that are missing, in order: empty for a full hit.
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

    /// All of `range` where it lies, in order; `None` if some of it is missing.
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

    /// A stream has no more use for `range`. Unlike [`Purge::Consume`] it leaves the other streams' bytes alone.
    pub fn consume(&mut self, range: ByteRange) {
        self.remove(range);
    }

    /// What of `range` is not here, being fetched or not.
    pub fn lacking(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut present = types::RangeSet::new();
        self.overlapping(range).into_iter().for_each(|(_, found)| present.insert(found));
        present.missing(range)
    }

    /// What of `range` is neither here nor being fetched: what a prefetch should ask for.
    pub fn absent(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut present = types::RangeSet::new();
        self.overlapping(range).into_iter().for_each(|(_, found)| present.insert(found));
        let meets = |fetch: &&ByteRange| !fetch.intersection(&range).is_empty();
        self.fetches.values().flatten().filter(meets).for_each(|fetch| present.insert(*fetch));
        present.missing(range)
    }

    /// A fetch of `range` begins.
    pub fn begin(&mut self, range: ByteRange) -> FetchTicket {
        self.tickets += 1;
        self.fetches.insert(FetchTicket(self.tickets), vec![range]);
        FetchTicket(self.tickets)
    }

    /// The bytes of a fetch, from `offset` on, have arrived; a short one (end of file) is fine. What was invalidated meanwhile
    /// is dropped. A ticket counts once.
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

    /// A fetch failed or is not wanted any more.
    pub fn cancel(&mut self, ticket: FetchTicket) {
        self.fetches.remove(&ticket);
    }

    /// The bytes of `range` have changed: they go, and fetches under way lose them.
    pub fn invalidate(&mut self, range: ByteRange) {
        self.remove(range);
        for parts in self.fetches.values_mut() {
            *parts = parts.iter().flat_map(|part| without(*part, range)).collect();
        }
    }

    /// Puts bytes in; where some are already, these are newer. Then evicts the oldest until the budget is kept.
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

    /// Takes the bytes of `range` out, splitting blocks.
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

    /// Blocks that meet `range`, with their offsets, and what of them lies in it; sorted.
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

/// Algorithm 2 as the paper prints it, on offsets alone.
pub mod printed {
    use types::ByteRange;

    /// Walks the sorted list of blocks (offset, length). Returns the bytes said to be hit, and the remainder; purges the
    /// bytes said to be hit from the front of the block that was hit. Its copies would run past blocks, so none are made.
    pub fn search(list: &mut Vec<(u64, u64)>, request: ByteRange) -> (u64, ByteRange) {
        let (mut left_offset, mut left_size) = (request.start, request.len());
        for block in list.iter_mut() {
            let (offset, size) = *block;
            if offset + size <= left_offset {
                continue;
            }
            if offset <= left_offset && offset + size >= left_offset {
                // Line 6: an exact hit counts 0 bytes, and a tail of a block counts more than it has.
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
    /// Invariants 1 and 2.
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
