//! Values of message fields.

use types::Timestamp;

use crate::code::Code;
use crate::codec::{DecodeError, Field, FieldReader};

/// Bits of [`Message::Open`](crate::Message::Open).
pub mod open {
    /// Open for reading.
    pub const READ: u32 = 1;
    /// Open for writing.
    pub const WRITE: u32 = 2;
    /// Truncate the file to no content.
    pub const TRUNCATE: u32 = 4;
    /// Created by the client just now, empty.
    pub const CREATED: u32 = 8;
    /// Synchronous writes: `O_SYNC`, `O_DSYNC`.
    pub const SYNC: u32 = 16;
    /// Handle through which records of the client's windows are applied. After a restart the client asks what others
    /// have changed of these files ([`Message::Since`](crate::Message::Since)).
    pub const WINDOWS: u32 = 32;
    /// All bits. The server refuses others.
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

/// Values of [`Message::Relay`](crate::Message::Relay)'s pace: how long the server may take.
pub mod pace {
    /// Waits for nothing: locks, the end of a wait.
    pub const QUICK: u8 = 1;
    /// Reads or writes a little of a file or a directory.
    pub const BRIEF: u8 = 2;
    /// Transfers up to a whole frame of data, in either direction.
    pub const LARGE: u8 = 3;
    /// Waits for disks or the global store.
    pub const SLOW: u8 = 4;
}

/// New value of one of a file's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeChange {
    /// Unchanged.
    Keep,
    /// Current time of the server when the time is set.
    Now,
    /// Given time.
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
