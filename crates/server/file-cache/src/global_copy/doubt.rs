//! Detection of changes that others made to a global copy since we left it.
//!
//! Another size or mtime shows a change. A change that kept both (`cp -p`, `rsync -t`, `touch -r`) moves only ctime,
//! and so does every change of attributes or names, ours included. Therefore:
//!
//! 1. Our own changes through the mount are noted with the time that they took ([`Below::own`]): a ctime within it is
//!    ours. That holds if somebody looked shortly before ([`Inner::saw`]); a doubt that existed then stays
//!    ([`Below::doubted`]).
//! 2. Any other ctime is a doubt, and the bytes decide (`content.rs`): before a clean file is opened again, and before
//!    a stage-out writes. The result is remembered by the new ctime.
//! 3. If nothing tells the former bytes, other attributes, or another name of the file, explain one such ctime.
//! 4. A fingerprint that a later change may leave as it is ([`Inner::is_racy`]) is a doubt at the next look.
//!
//! Facts that are only in memory here are doubts after a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use catalogue::{Durability, Record, State};
use global_store::Anchor;
use types::{Fingerprint, Moved, Timestamp};

use crate::cache::Inner;
use crate::clock::wall;
use crate::limits::COARSE_SECONDS;
use crate::residency::{File, Live, earlier};

impl Inner {
    /// Returns whether a look ([`Inner::saw`]) should precede a change of a file's attributes or names through the
    /// agent: nobody has looked for a while.
    pub(crate) fn wants_look(&self, file: &File, live: &Live) -> bool {
        let now = self.now();
        let is_recent = |then: Duration| now.saturating_sub(then) < live.policy.revalidate;
        live.record().is_some() && !file.drain.is_locked() && !live.below.looked.is_some_and(is_recent)
    }

    /// Notes a look at a global copy while no change of ours was under way. Doubts that our changes would hide stay.
    pub(crate) fn saw(&self, file: &File, found: &Fingerprint) {
        if file.drain.is_locked() {
            return;
        }
        let now = self.now();
        let mut live = file.live.lock();
        let Some(known) = live.known_below() else { return };
        match live.moved(&known, found) {
            Moved::Nothing => {
                live.below.looked = Some(now);
                if known != *found {
                    live.believe(found);
                }
            }
            // An earlier ctime is the one seen before our last change.
            Moved::ChangeTime => live.below.doubted |= found.ctime > known.ctime,
            Moved::Content => {}
        }
    }

    /// Notes that attributes or names of a file were changed through the agent since `began` (by
    /// [`now_of_files`](global_store::now_of_files)): its ctime is no outsider's.
    pub(crate) fn note_own(&self, file: &File, began: Timestamp) {
        let anchor = {
            let mut live = file.live.lock();
            if live.below.doubted {
                return;
            }
            let Some(record) = live.record_mut() else { return };
            record.base.attributes = 0;
            let ended = wall();
            live.below.own = Some((began, ended));
            if file.drain.is_locked() && live.is_ahead() {
                // Changes of the global copy meanwhile say nothing.
                live.change_attributes(ended, None);
            }
            live.anchor.clone()
        };
        // Times of a shared store come from another machine.
        if self.store.is_shared()
            && let Some(anchor) = anchor
            && let Ok(found) = anchor.attributes()
        {
            let found = found.fingerprint;
            let mut live = file.live.lock();
            live.below.own = Some((found.ctime, found.ctime));
        }
    }

    /// Updates the known state of the global copy after a change of our own that moved only ctime. Any other
    /// difference between the two looks is somebody else's change. Gate held.
    pub(crate) fn follow_own(&self, file: &File, before: &Fingerprint, after: Fingerprint) {
        if !before.same_content(&after) {
            return;
        }
        let record = file.peek(|live| {
            live.follow(before, after);
            live.keep_shown(before.ctime, after.ctime);
            live.record().cloned().filter(|record| record.state == State::Clean)
        });
        if let Some(record) = record {
            // If this fails, the next start looks once more.
            let _ = self.put(file, record, Durability::Process);
        }
    }

    /// Remembers that a clean file's global copy was found to have its former bytes. Gate held.
    pub(crate) fn remember(&self, file: &File, found: &Fingerprint, racy: bool) {
        let record = file.peek(|live| {
            live.believe(found);
            let shown = live.shown_of(found);
            let record = live.record_mut().filter(|record| record.state == State::Clean);
            record.map(|record| {
                (record.racy, record.shown) = (racy, shown);
                record.clone()
            })
        });
        if let Some(record) = record {
            // If this fails, the next start looks once more.
            let _ = self.put(file, record, Durability::Process);
        }
    }

    /// Returns whether a change that follows a look at `found` may leave the fingerprint as it is. `looked`: [`now_of_files`](global_store::now_of_files)
    /// before that look, or `slack` later.
    pub(crate) fn is_racy(&self, found: &Fingerprint, looked: Timestamp, slack: Duration) -> bool {
        let ctime = found.ctime;
        if ctime.nanos == 0 {
            return ctime >= earlier(looked, COARSE_SECONDS);
        }
        let slack = Timestamp::from_nanos(slack.as_nanos() as u64);
        let after = Timestamp { seconds: ctime.seconds + slack.seconds, nanos: ctime.nanos };
        let after = match after.nanos + slack.nanos {
            nanos if nanos < 1_000_000_000 => Timestamp { nanos, ..after },
            nanos => Timestamp { seconds: after.seconds + 1, nanos: nanos - 1_000_000_000 },
        };
        !self.store.tells_changes_apart() && after >= looked
    }

    /// Returns which changes others made to the global copy of a clean file. Gate held.
    pub(crate) fn moved_below(&self, file: &File, record: &Record, found: &Fingerprint) -> Moved {
        match file.live.lock().moved(&record.base, found) {
            Moved::Nothing if record.racy => Moved::ChangeTime,
            moved => moved,
        }
    }
}

/// Returns the present path of a file with one name, if that name differs from the record's. A rename explains a ctime
/// that moved alone, if nothing tells the former bytes. Another path to the same name explains nothing, for a
/// directory's rename leaves the file's ctime.
pub(crate) fn new_place(record: &Record, anchor: &dyn Anchor, links: u64) -> Option<PathBuf> {
    (links == 1).then(|| anchor.path_hint()).filter(|now| is_renamed(&record.hint, now))
}

/// Returns whether the name in `now` differs from that in `hint`, whatever became of the directories. Returns false if
/// that is not known.
fn is_renamed(hint: &Path, now: &Path) -> bool {
    hint.file_name().zip(now.file_name()).is_some_and(|(was, is)| was != is)
}
