//! Offset of the i-th transfer of a process.

use super::block::mix;
use super::pattern::{Layout, Pattern};

pub struct Places {
    transfer: u64,
    layout: Layout,
    owner: u64,
    ranks: u64,
    slots: u64,
    random: bool,
}

impl Places {
    /// Creates the offsets of `owner` among `ranks` processes.
    pub fn new(pattern: &Pattern, owner: u64, ranks: u64) -> Places {
        let slots = (pattern.size_max / pattern.transfer.max(1)).max(1);
        let (transfer, layout, random) = (pattern.transfer, pattern.layout, pattern.random);
        Places { transfer, layout, owner, ranks, slots, random }
    }

    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the file offset of the `index`-th transfer, `index < slots`.
    pub fn offset(&self, index: u64) -> u64 {
        let slot = if self.random { scattered(index, self.slots) } else { index };
        match self.layout {
            Layout::FilePerProcess => slot * self.transfer,
            Layout::Segmented => (self.owner * self.slots + slot) * self.transfer,
            Layout::Strided => (slot * self.ranks + self.owner) * self.transfer,
        }
    }
}

/// Returns a pseudorandom permutation of `0..slots`: each slot occurs once.
fn scattered(index: u64, slots: u64) -> u64 {
    let bits = u64::BITS - (slots - 1).leading_zeros();
    if bits < 2 {
        return index;
    }
    let mask = u64::MAX >> (u64::BITS - bits);
    let mut slot = index;
    // Values beyond the end are permuted again until they fall inside; less than half need that each time.
    loop {
        slot = (slot.wrapping_mul(0x9E37_79B9_7F4A_7C15 | 1)) & mask;
        slot ^= slot >> bits.div_ceil(2);
        slot = (slot.wrapping_mul(mix(slots) | 1)) & mask;
        slot ^= slot >> bits.div_ceil(2);
        if slot < slots {
            return slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::workload::Preset;

    fn pattern(layout: Layout, random: bool, slots: u64) -> Pattern {
        Pattern { layout, random, transfer: 10, size_max: slots * 10, ..Pattern::preset(Preset::Stream) }
    }

    proptest! {
        #[test]
        fn every_place_belongs_to_one_transfer_of_one_process(ranks in 1u64..9, slots in 1u64..200, random: bool, strided: bool) {
            let layout = if strided { Layout::Strided } else { Layout::Segmented };
            let places = (0..ranks).map(|owner| Places::new(&pattern(layout, random, slots), owner, ranks));
            let all: BTreeSet<u64> = places.flat_map(|p| (0..slots).map(move |i| p.offset(i)).collect::<Vec<_>>()).collect();
            prop_assert_eq!(all.len() as u64, ranks * slots);
            prop_assert_eq!(all.last().copied(), Some((ranks * slots - 1) * 10));
        }
    }

    #[test]
    fn a_random_order_is_no_order() {
        let places = Places::new(&pattern(Layout::FilePerProcess, true, 1000), 0, 1);
        let adjacent = (1..1000).filter(|i| places.offset(*i).abs_diff(places.offset(i - 1)) <= 20).count();
        assert!(adjacent < 50, "{adjacent}");
    }
}
