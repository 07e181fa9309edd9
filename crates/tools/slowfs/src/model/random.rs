//! The one source of chance: numbers that follow from the seed.

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// At least 0 and below 1, from any number.
pub fn share(state: u64) -> f64 {
    (splitmix(state) >> 11) as f64 / (1u64 << 53) as f64
}
