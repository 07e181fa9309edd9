//! Pseudorandom numbers derived from the seed, the only source of randomness.

/// Returns the next pseudorandom number. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
pub fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps any number to a pseudorandom value in 0..1.
pub fn share(state: u64) -> f64 {
    (splitmix(state) >> 11) as f64 / (1u64 << 53) as f64
}
