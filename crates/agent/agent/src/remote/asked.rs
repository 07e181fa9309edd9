//! What is asked about an open file.

use std::time::Instant;

use wire::Message;

/// A request about a handle, its answer's data, and how it waits.
pub(super) struct Asked<'a> {
    pub message: Message,
    pub data: &'a [u8],
    pub into: &'a mut [u8],
    /// It changes data: it waits for the server however long.
    pub changes: bool,
    pub once: bool,
    pub made: Instant,
    /// It waits for its turn among the large writes of drains.
    pub drains: bool,
}

impl Asked<'_> {
    pub fn new(message: Message, changes: bool) -> Asked<'static> {
        Asked { message, data: &[], into: &mut [], changes, once: false, made: Instant::now(), drains: false }
    }
}
