//! Values with small numbers, in memory that grows and shrinks by a few of them at a time.
//!
//! A hash table of such numbers wastes and doubles four bytes a value, and not the values.

/// Values of one chunk.
const CHUNK: usize = 64;

struct Chunk<T> {
    /// A bit for each value that is there.
    used: u64,
    values: [Option<T>; CHUNK],
}

/// Values by their numbers. The number of a removed value is given again.
pub struct Slab<T> {
    chunks: Vec<Option<Box<Chunk<T>>>>,
    /// Chunks that have room, or no memory.
    roomy: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), roomy: Vec::new() }
    }
}

/// Returns a hash of a number that was counted up.
pub fn hash_of(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn place_of(number: u32) -> (usize, usize) {
    (number as usize / CHUNK, number as usize % CHUNK)
}

impl<T> Slab<T> {
    /// Adds a value and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let chunk = self.roomy.last().copied().unwrap_or_else(|| {
            let new = self.chunks.len() as u32;
            assert!(new < u32::MAX / CHUNK as u32, "the kernel has no memory for so many");
            self.chunks.push(None);
            self.roomy.push(new);
            new
        });
        let values = self.chunks[chunk as usize]
            .get_or_insert_with(|| Box::new(Chunk { used: 0, values: [const { None }; CHUNK] }));
        let at = values.used.trailing_ones();
        values.used |= 1 << at;
        values.values[at as usize] = Some(value);
        if values.used == u64::MAX {
            self.roomy.pop();
        }
        chunk * CHUNK as u32 + at
    }

    /// Removes and returns a value, if it is there.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let (chunk, at) = place_of(number);
        let values = self.chunks.get_mut(chunk)?.as_mut()?;
        let value = values.values[at].take()?;
        if values.used == u64::MAX {
            self.roomy.push(chunk as u32);
        }
        values.used &= !(1 << at);
        if values.used == 0 {
            self.chunks[chunk] = None;
        }
        Some(value)
    }

    /// Returns a value.
    pub fn get(&self, number: u32) -> Option<&T> {
        let (chunk, at) = place_of(number);
        self.chunks.get(chunk)?.as_ref()?.values[at].as_ref()
    }

    /// Returns a value, to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let (chunk, at) = place_of(number);
        self.chunks.get_mut(chunk)?.as_mut()?.values[at].as_mut()
    }

    /// Returns all values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().flat_map(|chunk| chunk.values.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use testkit::Random;

    use super::*;

    #[test]
    fn a_slab_agrees_with_a_map_under_random_changes_and_gives_its_memory_back() {
        let (mut random, mut slab, mut model) = (Random(3), Slab::default(), HashMap::new());
        for step in 0..20_000_u64 {
            let grows = step / 4000 % 2 == 0;
            if random.below(4) < if grows { 3 } else { 1 } {
                let number = slab.insert(step);
                assert_eq!(model.insert(number, step), None, "a number is given to one value");
            } else if let Some(number) = model.keys().nth(random.below(7) as usize).copied() {
                assert_eq!(slab.remove(number), model.remove(&number));
                assert_eq!((slab.remove(number), slab.get(number)), (None, None));
            }
            if let Some((number, value)) = model.iter_mut().next() {
                *value += 1;
                *slab.get_mut(*number).unwrap() += 1;
                assert_eq!(slab.get(*number), Some(&*value));
            }
        }
        let (mut all, mut expected): (Vec<u64>, Vec<u64>) =
            (slab.values().copied().collect(), model.values().copied().collect());
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected);
        model.keys().for_each(|number| _ = slab.remove(*number));
        assert!(slab.chunks.iter().all(Option::is_none) && slab.roomy.len() == slab.chunks.len());
    }
}
