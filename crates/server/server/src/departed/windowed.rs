//! A file on which a client may have windows, and what others have changed of it.

use types::{ByteRange, Identity, RangeSet};

use super::kept::DepartureEvent;
use super::{ClientSessionId, mark_of};

/// A file on which a client may have windows.
pub(super) struct Windowed {
    pub client: ClientSessionId,
    pub identity: Identity,
    /// The client's number of its handle.
    pub handle: u64,
    /// Its place among the silent ones.
    pub silent: Option<u64>,
    /// The mark of its next life, which asked last: what that brings is the client's own.
    pub heir: u64,
    /// What others have changed while it was silent.
    pub ranges: RangeSet,
    /// At least as many as these.
    pub count: usize,
}

impl Windowed {
    pub fn new(client: ClientSessionId, handle: u64, identity: Identity) -> Windowed {
        let (heir, ranges) = (mark_of(&client), RangeSet::new());
        Windowed { client, identity, handle, silent: None, heir, ranges, count: 0 }
    }

    /// What comes to it.
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

    /// More than `most` become one: more is held back then than others wrote, and that is told.
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
