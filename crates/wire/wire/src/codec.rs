//! Encoding and decoding of the fields of a message.

use std::fmt;

use types::{Identity, Timestamp};

use crate::limits::{IDENTITY_BYTES_MAX, PATH_BYTES_MAX, PIECE_BYTES_MAX, TEXT_BYTES_MAX};

/// Reason why bytes are not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The magic number is wrong: the peer speaks another protocol.
    Magic,
    /// The checksum of the header does not match.
    Checksum,
    /// A length is above its bound, or the body is shorter or longer than its message.
    Length,
    /// A field has a value that is not allowed.
    Value,
    /// No message of this protocol version has this number.
    Kind(u16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Magic => write!(f, "the peer does not speak the protocol of Forebay"),
            DecodeError::Checksum => write!(f, "the header of a frame is damaged"),
            DecodeError::Length => write!(f, "a length in a frame is out of bounds"),
            DecodeError::Value => write!(f, "a field in a frame has an impossible value"),
            DecodeError::Kind(kind) => write!(f, "the peer sent a message of the unknown kind {kind}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Byte string of at most `MAX` bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bytes<const MAX: usize>(Vec<u8>);

/// Path relative to the accelerated directory, in the kernel's bytes.
pub type Path = Bytes<PATH_BYTES_MAX>;

/// First part of a kernel's message, or numbers that accompany it.
pub type Piece = Bytes<PIECE_BYTES_MAX>;

impl<const MAX: usize> Bytes<MAX> {
    /// Wraps the bytes. Returns `None` if there are more than `MAX`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Bytes<MAX>> {
        Some(bytes.into()).filter(|bytes| bytes.len() <= MAX).map(Bytes)
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> fmt::Debug for Bytes<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// UTF-8 text of at most [`TEXT_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text(String);

impl Text {
    /// Wraps the text. Cuts a longer text at the last character boundary within the limit.
    pub fn cut(text: impl Into<String>) -> Text {
        let mut text = text.into();
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Text(text)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decoder that takes fields from the front of a body.
pub(crate) struct FieldReader<'a> {
    left: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> FieldReader<'a> {
        FieldReader { left: body }
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(bytes).ok_or(DecodeError::Length)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Length)
    }

    /// Takes a length of two bytes and that many bytes after it. Errors: [`DecodeError::Length`] if the length is above
    /// `most`.
    fn counted(&mut self, most: usize) -> Result<&'a [u8], DecodeError> {
        let bytes = usize::from(u16::from_le_bytes(self.array()?));
        if bytes > most {
            return Err(DecodeError::Length);
        }
        self.take(bytes)
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        if self.left.is_empty() { Ok(()) } else { Err(DecodeError::Length) }
    }
}

fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    // The bound of every field fits in two bytes, as the assertions below check.
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

const _: () = assert!(PATH_BYTES_MAX < u16::MAX as usize);
const _: () = assert!(PIECE_BYTES_MAX < u16::MAX as usize);
const _: () = assert!(TEXT_BYTES_MAX < u16::MAX as usize);

/// Encoding of one field of a message.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(impl Field for $number {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.to_le_bytes());
        }
        fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
            Ok(<$number>::from_le_bytes(from.array()?))
        }
    })* };
}
numbers!(u8, u16, u32, u64, i64);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value),
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        from.array()
    }
}

impl<const MAX: usize> Field for Bytes<MAX> {
    fn put(&self, out: &mut Vec<u8>) {
        put_counted(out, &self.0);
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        Ok(Bytes(from.counted(MAX)?.to_vec()))
    }
}

impl Field for Text {
    fn put(&self, out: &mut Vec<u8>) {
        put_counted(out, self.0.as_bytes());
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(from.counted(TEXT_BYTES_MAX)?).map_err(|_| DecodeError::Value)?;
        Ok(Text(text.to_owned()))
    }
}

impl Field for Identity {
    fn put(&self, out: &mut Vec<u8>) {
        put_counted(out, self.as_bytes());
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        Identity::new(from.counted(IDENTITY_BYTES_MAX)?).map_err(|_| DecodeError::Value)
    }
}

impl Field for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.seconds.put(out);
        self.nanos.put(out);
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let (seconds, nanos) = (i64::take(from)?, u32::take(from)?);
        if nanos < 1_000_000_000 { Ok(Timestamp { seconds, nanos }) } else { Err(DecodeError::Value) }
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}
