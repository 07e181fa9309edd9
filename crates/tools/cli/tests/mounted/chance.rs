//! Repeatable chance: the same seed gives the same story on every machine.

use testkit::Random;

/// A generator.
pub struct Chance(Random);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(Random(seed))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// One of the items.
    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A size below `max`, small ones as likely as large ones.
    pub fn size(&mut self, max: u64) -> u64 {
        let bits = self.below(u64::from(max.max(2).ilog2()) + 1) + 1;
        self.below(1 << bits).min(max - 1)
    }
}

/// `len` bytes that differ for each seed and at each offset; never zero, so that a lost byte shows.
pub fn payload(seed: u64, len: usize) -> Vec<u8> {
    let mut chance = Chance::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&(chance.next() | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
