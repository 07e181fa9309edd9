//! Few bytes, mostly, of which there are many.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Bytes of which up to `INLINE` lie in the value itself; more have memory of their own. `INLINE` is at most 255.
#[derive(Clone)]
pub struct ShortBytes<const INLINE: usize>(Bytes<INLINE>);

#[derive(Clone)]
enum Bytes<const INLINE: usize> {
    Inline { len: u8, bytes: [u8; INLINE] },
    Long(Box<[u8]>),
}

impl<const INLINE: usize> ShortBytes<INLINE> {
    /// No bytes.
    pub const EMPTY: ShortBytes<INLINE> = ShortBytes(Bytes::Inline { len: 0, bytes: [0; INLINE] });

    /// Creates a value of these bytes.
    pub fn new(from: &[u8]) -> ShortBytes<INLINE> {
        ShortBytes(match u8::try_from(from.len()) {
            Ok(len) if from.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..from.len()].copy_from_slice(from);
                Bytes::Inline { len, bytes }
            }
            _ => Bytes::Long(from.into()),
        })
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl<const INLINE: usize> PartialEq for ShortBytes<INLINE> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const INLINE: usize> Eq for ShortBytes<INLINE> {}

impl<const INLINE: usize> PartialOrd for ShortBytes<INLINE> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<const INLINE: usize> Ord for ShortBytes<INLINE> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl<const INLINE: usize> Hash for ShortBytes<INLINE> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl<const INLINE: usize> fmt::Debug for ShortBytes<INLINE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn bytes_of_every_length_are_kept_compared_and_hashed_as_a_slice_is() {
        let hasher = RandomState::new();
        let all: Vec<Vec<u8>> = (0..=300).map(|len| (0..len).map(|at| (at * 7 % 251) as u8).collect()).collect();
        for bytes in &all {
            let short = ShortBytes::<22>::new(bytes);
            assert_eq!(short.as_bytes(), bytes);
            assert_eq!(hasher.hash_one(&short), hasher.hash_one(&bytes[..]));
            for other in &all[bytes.len().saturating_sub(2)..] {
                assert_eq!(short.cmp(&ShortBytes::new(other)), bytes.cmp(other));
                assert_eq!(short == ShortBytes::new(other), bytes == other);
            }
        }
        assert_eq!((size_of::<ShortBytes<22>>(), size_of::<Option<ShortBytes<22>>>()), (24, 24));
    }
}
