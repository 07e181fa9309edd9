//! The identity of a file, which stays valid when the file is renamed.

use std::fmt;

use crate::ShortBytes;

/// Most bytes an identity can have: a kernel file handle has at most 128, and four bytes say its kind.
pub const IDENTITY_BYTES_MAX: usize = 132;
/// Bytes of an identity that need no memory of their own: those of common handles, and of a delegated tree's nodes.
const INLINE_BYTES: usize = 30;

/// A file of one global store, named independently of its path.
///
/// Minted by `global-store` from a durable file handle (`name_to_handle_at`). If the store's handles do not survive a
/// remount, inode number and birth time are used instead. An identity dies with its inode. The bytes are opaque: they
/// are compared and stored, never interpreted outside `global-store`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(ShortBytes<INLINE_BYTES>);

/// Error for bytes that cannot be an identity: none, or more than `IDENTITY_BYTES_MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityError {
    /// Number of bytes given.
    pub bytes: usize,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an identity has 1 to {IDENTITY_BYTES_MAX} bytes, not {}", self.bytes)
    }
}

impl std::error::Error for IdentityError {}

impl Identity {
    /// Creates an identity from its bytes. Errors: [`IdentityError`] unless there are 1 to `IDENTITY_BYTES_MAX`
    /// bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Identity, IdentityError> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > IDENTITY_BYTES_MAX {
            return Err(IdentityError { bytes: bytes.len() });
        }
        Ok(Identity(ShortBytes::new(bytes)))
    }

    /// Parses the form that `Display` prints: two hexadecimal digits for each byte. Returns `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Identity> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        Identity::new(text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?).ok()
    }

    /// Returns the bytes, for storing and comparing.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_its_bytes_and_prints_as_hex() {
        let identity = Identity::new(vec![0xab, 1]).unwrap();
        assert_eq!(identity.as_bytes(), [0xab, 1]);
        assert_eq!(identity.to_string(), "ab01");
        assert_eq!(Identity::from_hex("aB01"), Some(identity));
        assert_eq!(size_of::<Identity>(), 32);
    }

    #[test]
    fn what_prints_as_no_identity_is_none() {
        for text in ["", "a", "ab0", "ag", "+1", "ab 1", "\u{e9}"] {
            assert_eq!(Identity::from_hex(text), None, "{text}");
        }
        assert_eq!(Identity::from_hex(&"00".repeat(IDENTITY_BYTES_MAX + 1)), None);
    }

    #[test]
    fn no_bytes_and_too_many_are_refused() {
        assert_eq!(Identity::new(vec![]), Err(IdentityError { bytes: 0 }));
        assert!(Identity::new(vec![0; IDENTITY_BYTES_MAX]).is_ok());
        assert!(Identity::new(vec![0; IDENTITY_BYTES_MAX + 1]).is_err());
    }
}
