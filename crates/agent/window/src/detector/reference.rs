//! Algorithm 1: one stream, judged by the last two requests.

use types::ByteRange;

use crate::limits::BLOCK;

/// Variant of the algorithm's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Variant {
    /// Variant without the defects of the print.
    #[default]
    Corrected,
    /// Variant as printed, for the ablation: a learned stride is never unlearned, and 0 means none.
    Printed,
}

/// State between two requests.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    variant: Variant,
    last: Option<ByteRange>,
    stride: Option<i64>,
}

impl Reference {
    /// Makes a detector that has seen nothing.
    pub fn new(variant: Variant) -> Reference {
        Reference { variant, ..Reference::default() }
    }

    /// Handles a read of `request` in a file of `size` bytes. Returns the bytes to prefetch, never an empty range. The
    /// printed variant ignores the end of the file. Both variants return no range before its start.
    pub fn read(&mut self, request: ByteRange, size: u64) -> Option<ByteRange> {
        let want = match self.variant {
            Variant::Corrected => self.corrected(request),
            Variant::Printed => self.printed(request),
        };
        self.last = Some(request);
        let (start, len) = want?;
        let start = u64::try_from(start).ok()?;
        let want = ByteRange::at(start, len);
        let want = if self.variant == Variant::Corrected { want.intersection(&ByteRange::new(0, size)) } else { want };
        (!want.is_empty()).then_some(want)
    }

    fn corrected(&mut self, request: ByteRange) -> Option<(i64, u64)> {
        let next = (request.end as i64, BLOCK);
        let Some(last) = self.last else { return Some(next) };
        let jump = distance(last, request);
        if last.end == request.start {
            self.stride = None;
            return Some(next);
        }
        if jump == 0 {
            return None; // a re-read tells nothing
        }
        let known = self.stride.replace(jump);
        match known {
            Some(stride) if stride != jump => Some(next), // random; the jump is remembered
            _ => Some((request.start as i64 + jump, request.len())),
        }
    }

    fn printed(&mut self, request: ByteRange) -> Option<(i64, u64)> {
        let next = (request.end as i64, BLOCK);
        let last = self.last?;
        let jump = distance(last, request);
        if last.end == request.start {
            return Some(next);
        }
        match self.stride.filter(|stride| *stride != 0) {
            Some(stride) if stride == jump => Some((request.start as i64 + stride, request.len())),
            Some(_) => Some(next),
            None => {
                self.stride = Some(jump);
                Some((request.start as i64 + jump, request.len()))
            }
        }
    }
}

/// Returns the distance between the starts in bytes, negative backwards.
pub(super) fn distance(from: ByteRange, to: ByteRange) -> i64 {
    to.start as i64 - from.start as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;

    /// Returns the answer to the last request, as offset and size.
    fn last(variant: Variant, size: u64, requests: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mut detector = Reference::new(variant);
        let answers = requests.iter().map(|(offset, len)| detector.read(ByteRange::at(*offset, *len), size));
        answers.last().flatten().map(|want| (want.start, want.len()))
    }

    fn both(size: u64, requests: &[(u64, u64)]) -> [Option<(u64, u64)>; 2] {
        [Variant::Corrected, Variant::Printed].map(|variant| last(variant, size, requests))
    }

    #[test]
    fn t1_sequential_asks_for_the_next_block() {
        assert_eq!(both(1 << 40, &[(0, 128 * K), (128 * K, 128 * K)]), [Some((256 * K, M)); 2]);
    }

    #[test]
    fn t2_a_jump_is_tried_as_a_stride_and_then_confirmed() {
        let requests = [(0, 8 * K), (64 * K, 8 * K), (128 * K, 8 * K)];
        assert_eq!(both(1 << 40, &requests[..2]), [Some((128 * K, 8 * K)); 2]);
        assert_eq!(both(1 << 40, &requests), [Some((192 * K, 8 * K)); 2]);
    }

    #[test]
    fn t3_a_stride_may_go_backwards() {
        let requests = [(M, 8 * K), (896 * K, 8 * K), (768 * K, 8 * K)];
        assert_eq!(both(1 << 40, &requests), [Some((640 * K, 8 * K)); 2]);
    }

    #[test]
    fn t4_a_first_wrong_jump_is_unlearned() {
        let requests = [0, 500 * K, 100 * K, 200 * K, 300 * K].map(|offset| (offset, 8 * K));
        assert_eq!(both(1 << 40, &requests), [Some((400 * K, 8 * K)), Some((308 * K, M))]);
    }

    #[test]
    fn t5_a_re_read_asks_for_nothing() {
        let requests = [0, 64 * K, 64 * K].map(|offset| (offset, 8 * K));
        assert_eq!(both(1 << 40, &requests), [None, Some((72 * K, M))]);
    }

    #[test]
    fn t6_a_stride_below_the_start_asks_for_nothing() {
        let requests = [192 * K, 128 * K, 64 * K, 0].map(|offset| (offset, 8 * K));
        assert_eq!(both(1 << 40, &requests), [None; 2]);
    }

    #[test]
    fn t7_the_end_of_the_file_cuts() {
        let requests = [(0, 128 * K), (128 * K, 128 * K)];
        assert_eq!(both(300 * K, &requests), [Some((256 * K, 44 * K)), Some((256 * K, M))]);
    }
}
