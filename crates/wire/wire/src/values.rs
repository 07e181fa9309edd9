//! What fields of messages can say.

use types::Timestamp;

use crate::code::Code;
use crate::codec::{DecodeError, Field, FieldReader};

/// Bits of [`Message::Open`](crate::Message::Open).
pub mod open {
    /// For reading.
    pub const READ: u32 = 1;
    /// For writing.
    pub const WRITE: u32 = 2;
    /// The content goes.
    pub const TRUNCATE: u32 = 4;
    /// The client created the file just now, empty.
    pub const CREATED: u32 = 8;
    /// `O_SYNC`, `O_DSYNC`.
    pub const SYNC: u32 = 16;
    /// Windows of the client are drained through it: of these it asks in its next life what others have changed.
    pub const WINDOWS: u32 = 32;
    /// All of them; others are refused.
    pub const ALL: u32 = 63;
}

/// Values of [`Message::Begin`](crate::Message::Begin)'s verb.
pub mod job {
    /// Stage the file out.
    pub const STAGE_OUT: u8 = 1;
    /// Stage the file in.
    pub const STAGE_IN: u8 = 2;
}

/// Values of [`Message::Seek`](crate::Message::Seek)'s target.
pub mod seek {
    /// `SEEK_DATA`
    pub const DATA: u8 = 1;
    /// `SEEK_HOLE`
    pub const HOLE: u8 = 2;
}

/// Values of [`Message::Relay`](crate::Message::Relay)'s pace: what it waits for at the server.
pub mod pace {
    /// For nothing: locks, the end of a wait.
    pub const QUICK: u8 = 1;
    /// For a little of a file or a directory.
    pub const BRIEF: u8 = 2;
    /// For up to a whole frame of data, one way or the other.
    pub const LARGE: u8 = 3;
    /// For disks or the global store, by its nature.
    pub const SLOW: u8 = 4;
}

/// What becomes of one of a file's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeChange {
    /// It stays.
    Keep,
    /// The moment of setting.
    Now,
    /// This moment.
    At(Timestamp),
}

impl Field for TimeChange {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            TimeChange::Keep => out.push(0),
            TimeChange::Now => out.push(1),
            TimeChange::At(time) => {
                out.push(2);
                time.put(out);
            }
        }
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        match u8::take(from)? {
            0 => Ok(TimeChange::Keep),
            1 => Ok(TimeChange::Now),
            2 => Ok(TimeChange::At(Timestamp::take(from)?)),
            _ => Err(DecodeError::Value),
        }
    }
}

impl Field for Code {
    fn put(&self, out: &mut Vec<u8>) {
        self.number().put(out);
    }
    fn take(from: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        Ok(Code::from_number(u16::take(from)?))
    }
}
