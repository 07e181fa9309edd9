//! Striping: which bytes of a file are on which target.

use super::FileId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub target: usize,
    /// Position on the target, as if the file's stripes there were contiguous.
    pub place: u64,
    pub bytes: u64,
}

/// Splits a range into one piece for each target, since a target's stripes of one range are contiguous there.
pub fn pieces(file: FileId, offset: u64, bytes: u64, stripe: u64, targets: usize) -> Vec<Piece> {
    let (mut at, end) = (offset, offset.saturating_add(bytes));
    let mut pieces: Vec<Piece> = Vec::new();
    while at < end {
        let number = at / stripe;
        let length = ((number + 1).saturating_mul(stripe)).min(end) - at;
        // Files begin on different targets, as a real store distributes them.
        let target = ((number % targets as u64 + file % targets as u64) % targets as u64) as usize;
        match pieces.iter_mut().find(|piece| piece.target == target) {
            Some(piece) => piece.bytes += length,
            None => {
                let place = number / targets as u64 * stripe + at % stripe;
                pieces.push(Piece { target, place, bytes: length });
            }
        }
        at += length;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_on_one_target_and_a_sequential_read_is_sequential_on_each() {
        let mut heads = [0u64; 3];
        let mut at = 0;
        for length in [10u64, 95, 300, 1, 47, 500] {
            let found = pieces(1, at, length, 100, 3);
            assert_eq!(found.iter().map(|piece| piece.bytes).sum::<u64>(), length);
            for piece in found {
                assert_eq!(piece.place, heads[piece.target], "{piece:?}");
                heads[piece.target] += piece.bytes;
            }
            at += length;
        }
    }

    #[test]
    fn files_begin_on_different_targets() {
        let first: Vec<usize> = (0..4).map(|file| pieces(file, 0, 1, 1 << 20, 4)[0].target).collect();
        assert_eq!(first, [0, 1, 2, 3]);
    }
}
