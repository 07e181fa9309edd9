//! Where the newest object of a key lies, in 16 bytes.

use crate::layout::ALIGNMENT;
use crate::limits::{OBJECT_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX, SEQUENCE_END};

const LENGTH_BITS: u32 = 21;
const OFFSET_BITS: u32 = 27;
const SLOT_BITS: u32 = 24;

const _: () = assert!(OBJECT_BYTES_MAX < 1 << LENGTH_BITS);
const _: () = assert!(SEGMENT_BYTES_MAX / ALIGNMENT <= 1 << OFFSET_BITS);
const _: () = assert!(SEGMENTS_MAX <= 1 << SLOT_BITS);
const _: () = assert!(SEQUENCE_END == 1 << (u128::BITS - LENGTH_BITS - OFFSET_BITS - SLOT_BITS));

/// Place and sequence number of an object. The sequence number stands in the highest bits, so the larger place is the newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ObjectPlace(u128);

impl ObjectPlace {
    /// The place of an unused entry of a table.
    pub(super) const NONE: ObjectPlace = ObjectPlace(0);

    /// Packs a place. The values must be within the bounds of `limits.rs`, and the sequence number must not be 0.
    pub(crate) fn new(sequence: u64, slot: u32, offset: u64, length: u32) -> ObjectPlace {
        let mut packed = u128::from(sequence);
        packed = packed << SLOT_BITS | u128::from(slot);
        packed = packed << OFFSET_BITS | u128::from(offset / ALIGNMENT);
        ObjectPlace(packed << LENGTH_BITS | u128::from(length))
    }

    pub(crate) fn sequence(self) -> u64 {
        (self.0 >> (LENGTH_BITS + OFFSET_BITS + SLOT_BITS)) as u64
    }

    /// Place of the segment in the table of segments.
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> (LENGTH_BITS + OFFSET_BITS)) as u32 & ((1 << SLOT_BITS) - 1)
    }

    /// Offset of the object's header in the segment's file, in bytes.
    pub(crate) fn offset(self) -> u64 {
        ((self.0 >> LENGTH_BITS) as u64 & ((1 << OFFSET_BITS) - 1)) * ALIGNMENT
    }

    /// Length of the object in bytes, without its header.
    pub(crate) fn length(self) -> u32 {
        self.0 as u32 & ((1 << LENGTH_BITS) - 1)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_place_come_back_at_their_bounds() {
        for sequence in [1, 77, SEQUENCE_END - 1] {
            for slot in [0, 5, SEGMENTS_MAX as u32 - 1] {
                for offset in [0, 4096, SEGMENT_BYTES_MAX - ALIGNMENT] {
                    for length in [0, 1, OBJECT_BYTES_MAX as u32] {
                        let place = ObjectPlace::new(sequence, slot, offset, length);
                        assert_eq!(
                            (place.sequence(), place.slot(), place.offset(), place.length()),
                            (sequence, slot, offset, length)
                        );
                    }
                }
            }
        }
    }
}
