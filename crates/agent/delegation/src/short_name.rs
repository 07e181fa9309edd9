//! One name of a directory.

use std::fmt;

use crate::limits;

/// Bytes of a name that need no memory of their own.
const INLINE_BYTES: usize = 22;

/// A checked name of one component. Short ones lie in the value itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(Bytes);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Bytes {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Long(Box<[u8]>),
}

impl ShortName {
    /// The name that no entry of a directory has.
    pub(crate) const EMPTY: ShortName = ShortName(Bytes::Inline { len: 0, bytes: [0; INLINE_BYTES] });

    /// Creates a name. `None` if it is empty, too long, `.` or `..`, or has a slash or a NUL byte.
    pub fn new(name: &[u8]) -> Option<ShortName> {
        let is_plain = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !is_plain || name.len() > limits::NAME_BYTES_MAX {
            return None;
        }
        Some(ShortName(if name.len() <= INLINE_BYTES {
            let mut bytes = [0; INLINE_BYTES];
            bytes[..name.len()].copy_from_slice(name);
            Bytes::Inline { len: name.len() as u8, bytes }
        } else {
            Bytes::Long(name.into())
        }))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
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
