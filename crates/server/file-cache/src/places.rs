//! What files that take others' places (`publish = atomic`) have to do with everybody else.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use catalogue::{Change, Durability, Record, State, Successor};
use config::Policy;
use global_store::hidden;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use types::Identity;

use crate::cache::{Inner, broken};
use crate::file::File;
use crate::marks;
use crate::surface::FileCache;

/// Called with each file that lost its place.
type Tell = Box<dyn Fn(&Identity) + Send + Sync>;

/// What these files share.
#[derive(Default)]
pub(crate) struct Places {
    /// Before any gate: shared by changes of names and attributes, exclusive while a file takes another's place.
    pub(crate) names: RwLock<()>,
    /// They may be taken.
    pub(crate) begun: AtomicBool,
    /// Whether any was, in this process's life.
    pub(crate) any: AtomicBool,
    /// Changes of a commit that failed, without which no later one may be made.
    pub(crate) owed: Mutex<Vec<Change>>,
    /// Hears of each file that lost its place.
    pub(crate) told: OnceLock<Tell>,
}

impl Places {
    /// What a file's record will be with the next commit, if one failed.
    fn owed(&self, identity: &Identity) -> Option<Option<Record>> {
        let owed = self.owed.lock();
        owed.iter().rev().find(|change| change.identity() == identity).map(|change| match change {
            Change::Put(_, record) => Some(record.clone()),
            Change::Remove(_) => None,
        })
    }

    /// Commits changes after those that are owed.
    pub(crate) fn with_owed(
        &self,
        changes: Vec<Change>,
        commit: impl FnOnce(Vec<Change>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut owed = self.owed.lock();
        if owed.is_empty() {
            drop(owed);
            return commit(changes);
        }
        commit(owed.iter().cloned().chain(changes).collect())?;
        owed.clear();
        Ok(())
    }
}

impl FileCache {
    /// Files may take others' places from now on, where they were to wait for it (`Settings::held`).
    pub fn begin_publishing(&self) {
        self.inner.places.begun.store(true, Ordering::Release);
    }

    /// Whether files have taken others' places (policy `publish = atomic`) since the cache was opened.
    pub fn has_published(&self) -> bool {
        self.inner.places.any.load(Ordering::Acquire)
    }

    /// Of a file that has no name any more: whether that may be as another took it. Who asks for the file by this identity shall
    /// look its name up again, `ESTALE`. Not so of one that was removed through us while it is open.
    pub fn may_have_lost_place(&self, identity: &Identity) -> bool {
        self.inner.may_have_lost_place(identity)
    }

    /// Has `tell` called when another file has taken one's place, from whatever thread. It must not call back. The first one stays.
    pub fn when_replaced(&self, tell: Box<dyn Fn(&Identity) + Send + Sync>) {
        let _ = self.inner.places.told.set(tell);
    }

    /// To be held by who changes names or attributes below: no file takes another's place meanwhile. Not while something is
    /// opened or staged out.
    pub fn steady_names(&self) -> RwLockReadGuard<'_, ()> {
        // In turn: else those who come and go without a pause would keep every file from its place.
        self.inner.places.names.read()
    }
}

impl Inner {
    /// A file's record, as it will be once all is committed.
    pub(crate) fn recorded(&self, identity: &Identity) -> io::Result<Option<Record>> {
        self.places.owed(identity).map_or_else(|| self.catalogue.get(identity).map_err(broken), Ok)
    }

    /// The rules for a file that an earlier process left: it arrives as its directory's say.
    pub(crate) fn policy_of_left(&self, record: &Record) -> Arc<Policy> {
        let base = &self.settings.policy;
        let publish_atomic = self.settings.publishes.as_ref().map_or(base.publish_atomic, |rule| rule(&record.hint));
        if publish_atomic == base.publish_atomic {
            return Arc::clone(base);
        }
        Arc::new(Policy { publish_atomic, ..Policy::clone(base) })
    }

    /// Whether files may take others' places yet.
    pub(crate) fn may_publish(&self) -> bool {
        !self.settings.held || self.places.begun.load(Ordering::Acquire)
    }

    /// Of a file without a name: whether that may be as another took it. A file that was removed is known while it is open.
    pub(crate) fn may_have_lost_place(&self, identity: &Identity) -> bool {
        let in_use = |file: &File| {
            let live = file.live.lock();
            live.handles > 0 || live.unlinked
        };
        self.places.any.load(Ordering::Acquire) && !self.known(identity).is_some_and(|file| in_use(&file))
    }

    /// We died while files had successors: each record becomes that of the file which has the name now. Returns those that had
    /// taken one. What cannot be found out stays as it is, for the next start.
    pub(crate) fn settle_successors(&self, found: &mut Vec<(Identity, Record)>) -> io::Result<HashSet<Identity>> {
        let mut placed = HashSet::new();
        let begun: Vec<_> = found.extract_if(.., |(_, record)| record.successor.is_some()).collect();
        for (old, told) in begun {
            let mut record = Record { successor: None, ..told.clone() };
            let Some(successor) = told.successor.clone() else { continue };
            let mut hidden = record.hint.with_file_name(hidden::name(&self.settings.agent_id, record.version.0));
            let heir = match self.placed(&old, &mut record.hint, &successor, &mut hidden) {
                Ok(heir) => heir,
                Err(error) => {
                    tracing::warn!(%error, file = %told.hint.display(), "whether a file was published cannot be found out");
                    found.push((old, told));
                    continue;
                }
            };
            let keeps_place = heir.as_ref() == Some(&old);
            let Some(heir) = heir.filter(|_| !keeps_place) else {
                self.give_up_successor(&old, record.clone(), &hidden, keeps_place)?;
                found.push((old, record));
                continue;
            };
            tracing::info!(file = %record.hint.display(), "a file that had just taken another's place is looked at again");
            let mut changes = vec![Change::Remove(old)];
            match found.iter().find(|(known, _)| *known == heir) {
                // What was told of that file is of later.
                Some((_, later)) if later.version == record.version => {}
                Some(_) => self.replicas.unbrand(record.version),
                None => {
                    (record.state, record.base, record.was_clean) = (State::Dirty, successor.left, false);
                    (record.orphaned, record.reason) = (false, String::new());
                    changes.push(Change::Put(heir.clone(), record.clone()));
                    found.push((heir.clone(), record));
                }
            }
            self.commit(changes, Durability::Machine)?;
            placed.insert(heir);
        }
        Ok(placed)
    }

    /// A file keeps its place: what was to take it goes, unless the burst buffer has lost what that has.
    fn give_up_successor(&self, file: &Identity, record: Record, hidden: &Path, placed: bool) -> io::Result<()> {
        if !placed && self.replicas.stat(record.version).is_err() {
            tracing::error!(path = %hidden.display(), "what the burst buffer has lost may be in a hidden file, which stays");
        } else if !placed && let Err(error) = self.store.remove_hidden(hidden) {
            tracing::warn!(%error, path = %hidden.display(), "a hidden file stays");
        }
        self.commit(vec![Change::Put(file.clone(), record)], Durability::Machine)
    }

    /// A file that took another's place before we died is written and synced once more.
    pub(crate) fn adopt_placed(&self, file: &File) {
        let record = {
            let mut live = file.live.lock();
            live.unsynced_below = true;
            live.record.clone()
        };
        let Some(record) = record else { return };
        self.brand_again(file, &record);
        if self.store.is_shared()
            && let Ok(Some(anchor)) = self.store.locate(&file.identity, &record.hint, false)
            && let Err(error) = marks::set(&*anchor, &self.settings.agent_id, record.epoch)
        {
            tracing::warn!(%error, file = %record.hint.display(), "a published file has no mark; who changes it is a conflict");
        }
    }

    /// Which file took the place of `old`, for good, and in `hint` where it is; `None`: none did, and in `hidden` where the new one is.
    fn placed(
        &self,
        old: &Identity,
        hint: &mut PathBuf,
        successor: &Successor,
        hidden: &mut PathBuf,
    ) -> io::Result<Option<Identity>> {
        let Some(heir) = &successor.identity else { return Ok(None) };
        let is_there = |identity, at: &Path| Ok::<_, io::Error>(self.store.locate(identity, at, false)?.is_some());
        let mut anchor = self.store.locate(heir, hint, false)?;
        if anchor.is_none() && !self.store.finds_by_identity() && !is_there(old, hint)? {
            // Without handles a file that was moved since is found by a walk alone, whatever its name.
            anchor = self.store.locate(heir, hidden, true)?;
        }
        let Some(anchor) = anchor else { return Ok(None) };
        let mut path = anchor.path_hint();
        if path.as_os_str().is_empty() {
            // By a handle alone the kernel may not know where it is; by its name it does.
            path = self.store.locate(heir, hidden, false)?.map(|anchor| anchor.path_hint()).unwrap_or_default();
        }
        let placed = match path.file_name() {
            Some(name) => !hidden::is_hidden(name),
            // The old file had one name, and lost it then.
            None => !is_there(old, hint)?,
        };
        if !path.as_os_str().is_empty() {
            *(if placed { hint } else { hidden }) = path;
        }
        if !placed {
            return Ok(None);
        }
        // Before the old file's record goes: a crash could bring that file back.
        anchor.sync_name()?;
        Ok(Some(heir.clone()))
    }
}
