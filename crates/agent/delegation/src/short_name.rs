//! One name of a directory.

use std::fmt;

use types::ShortBytes;

use crate::limits;

/// Bytes of a name that need no memory of their own.
const INLINE_BYTES: usize = 22;

/// A checked name of one component. Short ones lie in the value itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(ShortBytes<INLINE_BYTES>);

impl ShortName {
    /// The name that no entry of a directory has.
    pub(crate) const EMPTY: ShortName = ShortName(ShortBytes::EMPTY);

    /// Creates a name. `None` if it is empty, too long, `.` or `..`, or has a slash or a NUL byte.
    pub fn new(name: &[u8]) -> Option<ShortName> {
        let is_plain = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        (is_plain && name.len() <= limits::NAME_BYTES_MAX).then(|| ShortName(ShortBytes::new(name)))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_every_length_keeps_its_bytes_and_others_are_refused() {
        for len in 1..=limits::NAME_BYTES_MAX {
            assert_eq!(ShortName::new(&vec![b'x'; len]).unwrap().as_bytes(), vec![b'x'; len]);
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(ShortName::new(bad).is_none());
        }
        assert_eq!(size_of::<ShortName>(), 24);
    }
}
