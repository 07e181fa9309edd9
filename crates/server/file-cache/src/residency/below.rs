//! The global copy, as far as it is known: how we left it, and which of its changes are our own.

use std::time::Duration;

use types::{Fingerprint, Moved, Timestamp};

use super::Live;
use crate::limits::COARSE_SECONDS;
use data_store::NewTime;

#[derive(Debug, Default)]
pub(crate) struct Below {
    /// Fingerprint that our last unfinished stage-out left on the global copy, if it could be read.
    pub(crate) left: Option<Fingerprint>,
    /// Period in which attributes or names of the global copy were last changed through the agent. `None` after
    /// somebody has looked.
    pub(crate) own: Option<(Timestamp, Timestamp)>,
    /// Whether a look found a ctime that moved, and not by us: only the bytes can tell whether the content changed.
    pub(crate) doubted: bool,
    /// When a look last found the global copy as we left it.
    pub(crate) looked: Option<Duration>,
    /// When the fingerprint was last compared with the global copy.
    pub(crate) checked: Option<Duration>,
    /// Fingerprint of the global copy when the store last failed to set a program's time, and that time.
    tried_time: Option<(Fingerprint, Timestamp)>,
    pub(crate) given_time: Option<Timestamp>,
    /// Whether a sync of the global copy failed since both copies were last equal. Its bytes may then never be durable.
    pub(crate) unsynced: bool,
}

impl Below {
    /// Ends doubts: somebody has looked, and knows whose the bytes are.
    pub(super) fn believe(&mut self) {
        (self.own, self.doubted) = (None, false);
    }

    /// Notes that a sync succeeded: the global copy has all bytes of the replica.
    pub(crate) fn synced(&mut self, left: Option<Fingerprint>) {
        (self.left, self.unsynced) = (left, false);
    }
}

/// Returns whether `time` lies between two others, as a store keeps it.
fn is_within((began, ended): (Timestamp, Timestamp), time: Timestamp) -> bool {
    // Whole seconds may be truncated ones.
    let began = if time.nanos == 0 { earlier(began, COARSE_SECONDS) } else { began };
    began <= time && time <= ended
}

pub(crate) fn earlier(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp { seconds: time.seconds.saturating_sub(seconds), nanos: 0 }
}

impl Live {
    /// Returns which changes others made to a global copy that we left as `left` and that is now `found`.
    pub(crate) fn moved(&self, left: &Fingerprint, found: &Fingerprint) -> Moved {
        // The store may have applied a time that we tried to set.
        let is_tried =
            |(was, mtime): (Fingerprint, _)| was.same_content(left) && Fingerprint { mtime, ..was }.same_content(found);
        match left.moved(found) {
            Moved::ChangeTime
                if !self.below.doubted && self.below.own.is_some_and(|own| is_within(own, found.ctime)) =>
            {
                Moved::Nothing
            }
            Moved::Content if self.below.tried_time.is_some_and(is_tried) => Moved::Nothing,
            moved => moved,
        }
    }

    /// Takes `found` for the state that we left: nobody else changed it, or its bytes were compared.
    pub(crate) fn believe(&mut self, found: &Fingerprint) {
        let before = self.known_below().filter(|known| known.same_content(found)).map(|known| known.ctime);
        let follow = |known: &mut Fingerprint| *known = if known.same_content(found) { *found } else { *known };
        self.below.left.iter_mut().for_each(follow);
        self.record_mut().into_iter().for_each(|record| follow(&mut record.base));
        if before.is_some_and(|before| before != found.ctime) {
            self.see_attributes_changed(found.ctime);
        }
        self.below.believe();
    }

    /// Updates the known state of the global copy after a change of our own, which had these fingerprints before and
    /// after. A doubt stays a doubt.
    pub(crate) fn follow(&mut self, before: &Fingerprint, after: Fingerprint) {
        let followed = |live: &Live, known: Fingerprint| match live.moved(&known, before) {
            Moved::Nothing => after,
            Moved::ChangeTime => Fingerprint { ctime: known.ctime, attributes: known.attributes, ..after },
            Moved::Content => known,
        };
        let left = self.below.left.map(|left| followed(self, left));
        let base = self.record().map(|record| followed(self, record.base));
        self.below.left = left;
        if let (Some(record), Some(base)) = (self.record_mut(), base) {
            record.base = base;
        }
    }

    /// Returns the fingerprint of the global copy as far as we know.
    pub(crate) fn known_below(&self) -> Option<Fingerprint> {
        self.below.left.or(self.record().map(|record| record.base))
    }

    /// Notes a time whose setting the store did not confirm. It may be set already, or later, and must not pass for an
    /// outsider's change.
    pub(crate) fn note_try(&mut self, before: &Fingerprint, sets: Option<NewTime>) {
        let Some(NewTime::At(time)) = sets else { return };
        let base = self.record().map(|record| record.base);
        let known = |was: &Option<Fingerprint>| was.filter(|was| self.moved(was, before) != Moved::Content);
        let (left, base) = (known(&self.below.left), known(&base));
        let Some(was) = left.or(base) else { return };
        // An earlier tried time arrived, and this one is tried over it. The replica of a clean file does not follow.
        let over = Fingerprint { attributes: 0, ..if self.is_unclean() { *before } else { was } };
        if self.is_unclean() {
            self.below.left = left.map(|_| over).or(self.below.left);
            if let Some(record) = self.record_mut().filter(|_| base.is_some()) {
                record.base = over;
            }
        }
        self.below.tried_time = Some((over, time));
    }
}
