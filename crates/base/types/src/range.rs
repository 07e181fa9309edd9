//! Half-open byte ranges, the only kind of range in the project.

use std::collections::BTreeMap;

/// The bytes `start..end` of a file. Empty when `end <= start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Creates the range `start..end`.
    pub fn new(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    /// Creates the range of `len` bytes from `start`; the end is capped at `u64::MAX`.
    pub fn at(start: u64, len: u64) -> ByteRange {
        ByteRange { start, end: start.saturating_add(len) }
    }

    /// Returns the number of bytes in the range.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether the range contains no byte.
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Returns the bytes that are in both ranges; empty if the ranges do not overlap.
    pub fn intersection(&self, other: &ByteRange) -> ByteRange {
        ByteRange { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

/// A set of bytes, stored as sorted ranges that neither overlap nor touch. Every operation costs O(log n + ranges
/// touched).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Creates an empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds every byte of `range`.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.ends.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ends.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ends.insert(start, end);
    }

    /// Removes every byte of `range`.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.ends.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.ends.remove(&s);
            if e > range.end {
                self.ends.insert(range.end, e);
            }
            if s < range.start {
                self.ends.insert(s, range.start);
                break;
            }
        }
    }

    /// Returns whether every byte of `range` is in the set; true for an empty range.
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty() || self.ends.range(..=range.start).next_back().is_some_and(|(_, &e)| e >= range.end)
    }

    /// Returns the parts of `range` that are not in the set, in ascending order.
    pub fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let first = self.ends.range(..=range.start).next_back().map_or(range.start, |(&s, _)| s);
        for (&s, &e) in self.ends.range(first..) {
            if s >= range.end {
                break;
            }
            if s > at {
                gaps.push(ByteRange::new(at, s));
            }
            at = at.max(e);
        }
        if at < range.end {
            gaps.push(ByteRange::new(at, range.end));
        }
        gaps
    }

    /// Returns the number of bytes in the set.
    pub fn len(&self) -> u64 {
        self.ends.iter().map(|(s, e)| e - s).sum()
    }

    /// Returns whether the set contains no byte.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.ends.iter().map(|(&s, &e)| ByteRange::new(s, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(of: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        of.iter().for_each(|&(s, e)| set.insert(ByteRange::new(s, e)));
        set
    }

    #[test]
    fn touching_ranges_become_one() {
        assert_eq!(set(&[(0, 10), (20, 30), (10, 20)]).iter().collect::<Vec<_>>(), [ByteRange::new(0, 30)]);
    }

    #[test]
    fn missing_parts_are_the_gaps() {
        let set = set(&[(10, 20), (30, 40)]);
        let gaps = set.missing(ByteRange::new(5, 45));
        assert_eq!(gaps, [(5, 10), (20, 30), (40, 45)].map(|(s, e)| ByteRange::new(s, e)));
        assert!(set.missing(ByteRange::new(12, 18)).is_empty());
    }

    /// Naive model: one bool per byte.
    #[test]
    fn random_operations_agree_with_one_flag_a_byte() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut set = RangeSet::new();
        let mut model = [false; 64];
        for _ in 0..20_000 {
            let start = next(64);
            let range = ByteRange::new(start, start + next(65 - start));
            let within = range.start as usize..range.end as usize;
            match next(3) {
                0 => {
                    set.insert(range);
                    model[within].fill(true);
                }
                1 => {
                    set.remove(range);
                    model[within].fill(false);
                }
                _ => {
                    assert_eq!(set.contains(range), model[within.clone()].iter().all(|&b| b));
                    let missing: u64 = set.missing(range).iter().map(ByteRange::len).sum();
                    assert_eq!(missing, model[within].iter().filter(|&&b| !b).count() as u64);
                }
            }
            assert_eq!(set.len(), model.iter().filter(|&&b| b).count() as u64);
        }
    }
}
