//! The time of change (ctime) that programs see.
//!
//! Our own bookkeeping moves the global copy's - a stage-out sets its times, marks come and go, times of last access go below - and
//! the replica's. Programs see one time until somebody changes the file:
//!
//! 1. While the replica is ahead it is that of the replica when its data changed last, as size and mtime tell, or a later one that
//!    somebody else's change of attributes gave the global copy.
//! 2. A file that becomes clean keeps it, as long as the global copy has the time that we left it with. The record says so.

use catalogue::Record;
use rustix::fs::Stat;
use types::{Fingerprint, Timestamp};

use crate::file::Live;
use crate::replica::{ctime_of, mtime_of};

/// A time of change as programs see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VisibleChangeTime {
    pub(crate) ctime: Timestamp,
    /// The global copy's, for which it stands.
    pub(crate) below: Timestamp,
    /// Size and mtime of the replica when it was that.
    data: Option<(u64, Timestamp)>,
}

impl VisibleChangeTime {
    /// What a record says.
    pub(crate) fn of(record: &Record) -> Option<VisibleChangeTime> {
        record.shown.map(|ctime| VisibleChangeTime { ctime, below: record.base.ctime, data: None })
    }
}

fn data_of(stat: &Stat) -> (u64, Timestamp) {
    (stat.st_size as u64, mtime_of(stat))
}

impl Live {
    /// What we know the global copy's time of change to be.
    fn left_below(&self) -> Option<Timestamp> {
        self.left.or(self.record.as_ref().map(|record| record.base)).map(|known| known.ctime)
    }

    /// The time of change of a file whose replica is ahead.
    pub(crate) fn change_time(&mut self, replica: &Stat) -> Timestamp {
        let base = self.record.as_ref().map(|record| record.base);
        let was = self.shown.map(|shown| (shown.ctime, shown.data)).or(base.map(|base| (base.ctime, None)));
        let Some((former, data)) = was else { return ctime_of(replica) };
        let now = data_of(replica);
        // Of what nobody wrote: making the replica moved its own time alone.
        let data = data.or(base.map(|base| (base.size, base.mtime)));
        let ctime = if data == Some(now) { former } else { former.max(ctime_of(replica)) };
        let below = self.left_below().unwrap_or_default();
        self.shown = Some(VisibleChangeTime { ctime, below, data: Some(now) });
        ctime
    }

    /// The time of change that is shown for one of the global copy.
    pub(crate) fn shown_for(&self, below: Timestamp) -> Timestamp {
        self.shown.filter(|shown| shown.below == below).map_or(below, |shown| shown.ctime)
    }

    /// The same as a record has it.
    pub(crate) fn shown_of(&self, base: &Fingerprint) -> Option<Timestamp> {
        Some(self.shown_for(base.ctime)).filter(|shown| *shown != base.ctime)
    }

    /// Our bookkeeping moved the global copy's time of change, from one to another.
    pub(crate) fn keep_shown(&mut self, before: Timestamp, after: Timestamp) {
        let data = self.shown.and_then(|shown| shown.data);
        self.shown = Some(VisibleChangeTime { ctime: self.shown_for(before), below: after, data });
        self.record_shown();
    }

    /// Somebody changed attributes through us, at this time by the clock of files; `after`: what the global copy has then, if known.
    pub(crate) fn change_attributes(&mut self, time: Timestamp, after: Option<Timestamp>) {
        let below = after.or(self.left_below()).unwrap_or_default();
        let data = self.shown.and_then(|shown| shown.data);
        let moved = VisibleChangeTime { ctime: self.shown.map_or(time, |shown| shown.ctime.max(time)), below, data };
        // A clean file has the global copy's.
        self.shown = Some(moved).filter(|_| self.is_ahead());
        self.record_shown();
    }

    /// A look found that somebody changed attributes, through us if it was the last that we did.
    pub(crate) fn see_attributes_changed(&mut self, found: Timestamp) {
        // Told already, for the global copy's time told nothing then.
        match (&mut self.shown, self.own) {
            (Some(shown), Some((_, ended))) if shown.ctime == ended => {
                shown.below = found;
                self.record_shown();
            }
            _ => self.change_attributes(found, Some(found)),
        }
    }

    fn record_shown(&mut self) {
        let shown = self.record.as_ref().and_then(|record| self.shown_of(&record.base));
        if let Some(record) = &mut self.record {
            record.shown = shown;
        }
    }

    /// What a stage-out leaves below stands for what programs see. `kept`: the replica's time of modification from now on.
    pub(crate) fn show_left(&mut self, replica: &Stat, left: &Fingerprint, kept: Timestamp) -> Option<Timestamp> {
        let ctime = self.change_time(replica);
        self.shown = Some(VisibleChangeTime { ctime, below: left.ctime, data: Some((replica.st_size as u64, kept)) });
        Some(ctime).filter(|ctime| *ctime != left.ctime)
    }
}
