//! Protocol between agent and server as pure data: no I/O, no clock, no thread.
//!
//! A *frame* is a [`Header`], a body (one encoded [`Message`]) and data. Data are bytes of a file, which are never
//! copied into a message. All numbers are little-endian and of fixed width. Decoders accept any bytes: they return a
//! message or a [`DecodeError`] and never panic. They never reserve more memory than there are bytes.
//!
//! # Invariants
//!
//! 1. A frame's lengths are known and bounded before anything is read or reserved for it.
//! 2. Decoding what was encoded gives the same message; a body has no bytes to spare.
//! 3. A kind's number is never used for another message. A change of a message is a new version of the protocol.

mod code;
mod codec;
mod header;
pub mod limits;
mod message;
mod table;
mod values;
mod version;

pub use code::Code;
pub use codec::{Bytes, DecodeError, Path, Piece, Text};
pub use header::{HEADER_BYTES, Header};
pub use message::Message;
pub use values::{TimeChange, job, open, pace, seek};
pub use version::{VERSION_MAX, VERSION_MIN, Versions};
