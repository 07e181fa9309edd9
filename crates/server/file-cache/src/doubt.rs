//! Whether others have changed a global copy since we left it.
//!
//! Another size or mtime says so. A change that kept both (`cp -p`, `rsync -t`, `touch -r`) moves ctime alone, and so does every
//! change of attributes or names, ours included. Therefore:
//!
//! 1. Our own changes through the mount are noted with the time that they took ([`Live::own`]): a ctime from then is ours. That
//!    holds if somebody looked shortly before ([`FileCache::saw`]); what was doubtful then stays so ([`Live::doubted`]).
//! 2. Any other ctime is a doubt, and the bytes decide (`content.rs`): before a clean file is opened again, and before a stage-out
//!    writes. What they decide is remembered by the new ctime.
//! 3. Where nothing tells what bytes there were, other attributes, or another name of the file, explain one such ctime.
//! 4. A fingerprint that a later change may leave as it is ([`Inner::is_racy`]) is a doubt when it is looked at next.
//!
//! What is only in memory here is a doubt after a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use catalogue::{Durability, Record, State};
use global_store::Anchor;
use types::{Fingerprint, Identity, Moved, Timestamp};

use crate::cache::Inner;
use crate::clock::{tick, wall};
use crate::file::{File, Live};
use crate::limits::COARSE_SECONDS;
use crate::surface::FileCache;

/// Whether `time` lies between two others, as a store keeps it.
fn is_within((began, ended): (Timestamp, Timestamp), time: Timestamp) -> bool {
    // Whole seconds may be cut ones.
    let began = if time.nanos == 0 { earlier(began, COARSE_SECONDS) } else { began };
    began <= time && time <= ended
}

fn earlier(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp { seconds: time.seconds.saturating_sub(seconds), nanos: 0 }
}

impl Live {
    /// What others moved of a global copy that we left as `left` and that is `found`.
    pub(crate) fn moved(&self, left: &Fingerprint, found: &Fingerprint) -> Moved {
        match left.moved(found) {
            Moved::ChangeTime if !self.doubted && self.own.is_some_and(|own| is_within(own, found.ctime)) => {
                Moved::Nothing
            }
            // A time that we tried to set may have become its own.
            Moved::Content if self.has_tried(left, found) => Moved::Nothing,
            moved => moved,
        }
    }

    /// Takes `found` for what we left: nobody else changed it, or its bytes were compared.
    pub(crate) fn believe(&mut self, found: &Fingerprint) {
        let before = self.known_below().filter(|known| known.same_content(found)).map(|known| known.ctime);
        let known = self.left.iter_mut().chain(self.record.iter_mut().map(|record| &mut record.base));
        known.filter(|known| known.same_content(found)).for_each(|known| *known = *found);
        if before.is_some_and(|before| before != found.ctime) {
            self.see_attributes_changed(found.ctime);
        }
        (self.own, self.doubted) = (None, false);
    }

    /// Has what we know of the global copy follow a change of ours, before and after which it looked so. A doubt stays one.
    pub(crate) fn follow(&mut self, before: &Fingerprint, after: Fingerprint) {
        let followed = |live: &Live, known: Fingerprint| match live.moved(&known, before) {
            Moved::Nothing => after,
            Moved::ChangeTime => Fingerprint { ctime: known.ctime, attributes: known.attributes, ..after },
            Moved::Content => known,
        };
        let left = self.left.map(|left| followed(self, left));
        let base = self.record.as_ref().map(|record| followed(self, record.base));
        self.left = left;
        if let (Some(record), Some(base)) = (&mut self.record, base) {
            record.base = base;
        }
    }

    /// Whether a ctime that moved alone may be that of a change of attributes, where nothing tells what bytes there were.
    pub(crate) fn is_explained(left: &Fingerprint, found: &Fingerprint) -> bool {
        left.attributes == 0 || left.attributes != found.attributes
    }

    /// What is known of the global copy.
    fn known_below(&self) -> Option<Fingerprint> {
        self.left.or(self.record.as_ref().map(|record| record.base))
    }
}

impl FileCache {
    /// Somebody looked at a global copy, and nothing of ours was under way there: doubts that own changes would hide are kept.
    pub fn saw(&self, identity: &Identity, found: &Fingerprint) {
        if let Some(file) = self.inner.known(identity) {
            self.inner.saw(&file, found);
        }
    }

    /// Whether a change of a file's attributes or names through us should be preceded by a look ([`FileCache::saw`]): nobody has
    /// looked for a while.
    pub fn wants_look(&self, identity: &Identity) -> bool {
        let Some(file) = self.inner.known(identity) else { return false };
        let live = file.live.lock();
        let now = self.inner.now();
        let is_recent = |then: Duration| now.saturating_sub(then) < live.policy.revalidate;
        live.record.is_some() && !file.drain.is_locked() && !live.looked.is_some_and(is_recent)
    }

    /// Attributes or names of a file were changed through us, since [`tick`] said `began`: its ctime is no outsider's.
    pub fn changed_attributes(&self, identity: &Identity, began: Timestamp) {
        if let Some(file) = self.inner.known(identity) {
            self.inner.note_own(&file, began);
        }
    }
}

impl Inner {
    pub(crate) fn saw(&self, file: &File, found: &Fingerprint) {
        if file.drain.is_locked() {
            return;
        }
        let now = self.now();
        let mut live = file.live.lock();
        let Some(known) = live.known_below() else { return };
        match live.moved(&known, found) {
            Moved::Nothing => {
                live.looked = Some(now);
                if known != *found {
                    live.believe(found);
                }
            }
            // An earlier one is what was seen before our last change.
            Moved::ChangeTime => live.doubted |= found.ctime > known.ctime,
            Moved::Content => {}
        }
    }

    /// See [`FileCache::changed_attributes`].
    pub(crate) fn note_own(&self, file: &File, began: Timestamp) {
        let anchor = {
            let mut live = file.live.lock();
            if live.doubted {
                return;
            }
            let Some(record) = live.record.as_mut() else { return };
            record.base.attributes = 0;
            let ended = wall();
            live.own = Some((began, ended));
            if file.drain.is_locked() && live.is_ahead() {
                // What is moved below meanwhile tells nothing.
                live.change_attributes(ended, None);
            }
            live.anchor.clone()
        };
        // Its times are another machine's.
        if self.store.is_shared()
            && let Some(anchor) = anchor
            && let Ok(found) = anchor.attributes()
        {
            let found = found.fingerprint;
            let mut live = file.live.lock();
            live.own = Some((found.ctime, found.ctime));
        }
    }

    /// What we know of the global copy follows a change of ours that moved ctime alone: what else moved between the two looks is
    /// somebody else's. Gate held.
    pub(crate) fn follow_own(&self, file: &File, before: &Fingerprint, after: Fingerprint) {
        if !before.same_content(&after) {
            return;
        }
        let record = {
            let mut live = file.live.lock();
            live.follow(before, after);
            live.keep_shown(before.ctime, after.ctime);
            live.record.clone().filter(|record| record.state == State::Clean)
        };
        if let Some(record) = record {
            // Without it the next start looks once more.
            let _ = self.put(file, record, Durability::Process);
        }
    }

    /// Remembers that a clean file's global copy was found to have the bytes that it had. Gate held.
    pub(crate) fn remember(&self, file: &File, found: &Fingerprint, racy: bool) {
        let record = {
            let mut live = file.live.lock();
            live.believe(found);
            let shown = live.shown_of(found);
            let record = live.record.as_mut().filter(|record| record.state == State::Clean);
            record.map(|record| {
                (record.racy, record.shown) = (racy, shown);
                record.clone()
            })
        };
        if let Some(record) = record {
            // Without it the next start looks once more.
            let _ = self.put(file, record, Durability::Process);
        }
    }

    /// Whether a change that follows a look at `found` may leave it as it is. `looked`: [`tick`] before that look, or `slack`
    /// later.
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

    /// What others moved of the global copy of a clean file. Gate held.
    pub(crate) fn moved_below(&self, file: &File, record: &Record, found: &Fingerprint) -> Moved {
        match file.live.lock().moved(&record.base, found) {
            Moved::Nothing if record.racy => Moved::ChangeTime,
            moved => moved,
        }
    }
}

/// Where a file with one name is, if it is called otherwise than its record says: that explains a ctime that moved alone, where
/// nothing tells what bytes there were. Another path to the same name does not, for a directory's rename leaves the file's ctime.
pub(crate) fn new_place(record: &Record, anchor: &dyn Anchor, links: u64) -> Option<PathBuf> {
    (links == 1).then(|| anchor.path_hint()).filter(|now| is_renamed(&record.hint, now))
}

/// Whether a file has another name at `now` than it had at `hint`, whatever became of its directories. False: not known.
pub(crate) fn is_renamed(hint: &Path, now: &Path) -> bool {
    hint.file_name().zip(now.file_name()).is_some_and(|(was, is)| was != is)
}

/// The clock of file systems: it stands still between two ticks of the kernel.
pub fn now_of_files() -> Timestamp {
    tick()
}
