//! A file on which a client may have windows, and the ranges of it that others have changed.

use types::{ByteRange, Identity, RangeSet};

use super::kept::DepartureEvent;
use super::{ClientSessionId, mark_of};

/// A file on which a client may have windows.
pub(super) struct Windowed {
    pub client: ClientSessionId,
    pub identity: Identity,
    /// Number of the client's handle.
    pub handle: u64,
    /// Position in the order in which entries fell silent; `None` while the client is connected.
    pub silent: Option<u64>,
    /// Mark of the client's successor that asked last. Changes with this mark are the client's own.
    pub heir: u64,
    /// Ranges that others have changed while the client was silent.
    pub ranges: RangeSet,
    /// Upper bound of the number of ranges.
    pub count: usize,
}

impl Windowed {
    pub fn new(client: ClientSessionId, handle: u64, identity: Identity) -> Windowed {
        let (heir, ranges) = (mark_of(&client), RangeSet::new());
        Windowed { client, identity, handle, silent: None, heir, ranges, count: 0 }
    }

    /// Returns the events that restore this entry, for a log that is rewritten.
    pub fn events(&self, number: u64) -> impl Iterator<Item = DepartureEvent> {
        let joined = DepartureEvent::Joined {
            number,
            client: self.client,
            handle: self.handle,
            identity: self.identity.clone(),
        };
        let heir = (self.heir != mark_of(&self.client)).then_some(DepartureEvent::Heir { number, mark: self.heir });
        let changed = self.ranges.iter().map(move |range| DepartureEvent::Changed { number, range });
        std::iter::once(joined).chain(heir).chain(changed)
    }

    /// Adds a range. More than `most` ranges become one. The answer then contains more bytes than others wrote, which
    /// is reported.
    pub fn add(&mut self, range: ByteRange, most: usize) {
        if self.ranges.contains(range) {
            return;
        }
        self.ranges.insert(range);
        self.count += 1;
        if self.count > most {
            self.count = self.ranges.iter().count();
        }
        if self.count > most {
            let bounds = |(start, end): (u64, u64), one: ByteRange| (one.start.min(start), one.end.max(end));
            let (start, end) = self.ranges.iter().fold((u64::MAX, 0), bounds);
            self.ranges.insert(ByteRange::new(start, end));
            self.count = 1;
        }
    }
}
