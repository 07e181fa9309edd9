//! The change time (ctime) that programs see.
//!
//! The agent's own bookkeeping moves the change time of the global copy: a stage-out sets its times, marks are set and
//! removed, access times are written. It also moves the change time of the replica. Programs see one time until
//! somebody changes the file:
//!
//! 1. While the replica is ahead, programs see the replica's change time as of its last change of data, as size and
//!    mtime tell. If somebody else's change of attributes gave the global copy a later one, programs see that.
//! 2. A file that becomes clean keeps this time as long as the global copy has the time that we left it with. The
//!    record says so.

use catalogue::Record;
use rustix::fs::Stat;
use types::{Fingerprint, Timestamp};

use super::Live;
use crate::burst_buffer::replica::{ctime_of, mtime_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VisibleChangeTime {
    pub(crate) ctime: Timestamp,
    /// Change time of the global copy in whose place `ctime` is shown.
    pub(crate) below: Timestamp,
    /// Size and mtime of the replica at that time.
    data: Option<(u64, Timestamp)>,
}

impl VisibleChangeTime {
    pub(crate) fn of(record: &Record) -> Option<VisibleChangeTime> {
        record.shown.map(|ctime| VisibleChangeTime { ctime, below: record.base.ctime, data: None })
    }
}

impl Live {
    /// Returns the change time that the global copy has as far as we know.
    fn left_below(&self) -> Option<Timestamp> {
        self.below.left.or(self.record().map(|record| record.base)).map(|known| known.ctime)
    }

    pub(crate) fn change_time(&mut self, replica: &Stat) -> Timestamp {
        let base = self.record().map(|record| record.base);
        let was = self.shown.map(|shown| (shown.ctime, shown.data)).or(base.map(|base| (base.ctime, None)));
        let Some((former, data)) = was else { return ctime_of(replica) };
        let now = (replica.st_size as u64, mtime_of(replica));
        // Nobody wrote the replica: making it moved only the replica's own time.
        let data = data.or(base.map(|base| (base.size, base.mtime)));
        let ctime = if data == Some(now) { former } else { former.max(ctime_of(replica)) };
        let below = self.left_below().unwrap_or_default();
        self.shown = Some(VisibleChangeTime { ctime, below, data: Some(now) });
        ctime
    }

    /// Returns the change time that is shown for a given one of the global copy.
    pub(crate) fn shown_for(&self, below: Timestamp) -> Timestamp {
        self.shown.filter(|shown| shown.below == below).map_or(below, |shown| shown.ctime)
    }

    /// Returns the shown change time in the form of a record: `None` if it equals the global copy's.
    pub(crate) fn shown_of(&self, base: &Fingerprint) -> Option<Timestamp> {
        Some(self.shown_for(base.ctime)).filter(|shown| *shown != base.ctime)
    }

    /// Keeps the shown time after the agent's bookkeeping moved the global copy's change time.
    pub(crate) fn keep_shown(&mut self, before: Timestamp, after: Timestamp) {
        let data = self.shown.and_then(|shown| shown.data);
        self.shown = Some(VisibleChangeTime { ctime: self.shown_for(before), below: after, data });
        self.record_shown();
    }

    /// Notes that somebody changed attributes through the agent at `time`, by the clock of file systems. `after`: the
    /// change time that the global copy has then, if known.
    pub(crate) fn change_attributes(&mut self, time: Timestamp, after: Option<Timestamp>) {
        let below = after.or(self.left_below()).unwrap_or_default();
        let data = self.shown.and_then(|shown| shown.data);
        let moved = VisibleChangeTime { ctime: self.shown.map_or(time, |shown| shown.ctime.max(time)), below, data };
        // A clean file shows the global copy's time.
        self.shown = Some(moved).filter(|_| self.is_ahead());
        self.record_shown();
    }

    /// Notes a change of attributes that a look has found. It may be the last one made through the agent.
    pub(crate) fn see_attributes_changed(&mut self, found: Timestamp) {
        // This change is shown already, for the global copy's time said nothing then.
        match (&mut self.shown, self.below.own) {
            (Some(shown), Some((_, ended))) if shown.ctime == ended => {
                shown.below = found;
                self.record_shown();
            }
            _ => self.change_attributes(found, Some(found)),
        }
    }

    fn record_shown(&mut self) {
        let shown = self.record().and_then(|record| self.shown_of(&record.base));
        if let Some(record) = self.record_mut() {
            record.shown = shown;
        }
    }

    /// Lets the fingerprint that a stage-out leaves stand for the time that programs see. `kept`: the replica's
    /// modification time from now on.
    pub(crate) fn show_left(&mut self, replica: &Stat, left: &Fingerprint, kept: Timestamp) -> Option<Timestamp> {
        let ctime = self.change_time(replica);
        self.shown = Some(VisibleChangeTime { ctime, below: left.ctime, data: Some((replica.st_size as u64, kept)) });
        Some(ctime).filter(|ctime| *ctime != left.ctime)
    }
}
