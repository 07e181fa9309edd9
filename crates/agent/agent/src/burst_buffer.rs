//! The seam between an agent and the data of its files: a file cache in this process, or one behind a server.

mod open_data;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use concurrency::RwLockReadGuard;
use config::{Atime, Policy};
use file_cache::{
    Anchor, Cleaned, DrainProgress, FileCache, Keep, OpenHow, Overlay, Residency, SetMtime, Status, Stuck, Which,
};
use types::{ByteRange, Fingerprint, Identity, Timestamp, Version};

pub use self::open_data::{DataVersion, OpenData};
use crate::attributes::NewTime;
use crate::remote::Reads;

/// Where the data of files is. The methods mean what those of [`FileCache`] mean; with a server in between they may fail
/// for want of it.
pub trait BurstBuffer: Send + Sync {
    /// Opens a file; `EINTR` if `interrupted` says so while it waits.
    fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>>;
    /// Whether there may be something of a file whose identity begins so; true where nobody can tell.
    fn may_know(&self, _start: &[u8]) -> bool {
        true
    }
    /// What `stat` must say instead of the global copy's attributes; `below`: these, if they are not older than the last change of ours.
    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>>;
    /// Somebody looked at a global copy.
    fn saw(&self, _identity: &Identity, _found: &Fingerprint) {}
    /// Whether a change of a file's attributes or names should be preceded by a look at the global copy.
    fn wants_look(&self, _identity: &Identity) -> bool {
        false
    }
    /// Attributes or names of a file were changed through us, since [`file_cache::now_of_files`] said `began`.
    fn changed_attributes(&self, _identity: &Identity, _began: Timestamp) {}
    /// When a file was last read, as far as that is noted and later than what the global copy says, which is `below`.
    fn accessed(&self, _identity: &Identity, below: Timestamp) -> Timestamp {
        below
    }
    /// Whether reads can be noted as a policy says; if not, why, and what to do.
    fn notes_reads(&self, atime: Atime) -> Result<(), String>;
    /// Moves whenever a global copy may have become the truth about its file.
    fn staged_count(&self) -> u64;
    /// `truncate(2)`; `EINTR` if `interrupted` says so while it waits. What it gives keeps the file in use: none
    /// takes its place.
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>>;
    /// `utimens` by somebody who may; `apply` does it as the caller, on this node.
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        times: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;
    /// After our own change of names or attributes.
    fn own_change(&self, anchor: &dyn Anchor);
    /// The last name is about to be taken away through us.
    fn removing(&self, identity: &Identity);
    /// The last name is gone through us.
    fn unlinked(&self, identity: &Identity);
    /// All that others have noted by their identities has been dealt with: files may take others' places.
    fn begin_publishing(&self) {}
    /// Whether files have taken others' places since it was opened.
    fn has_published(&self) -> bool {
        false
    }
    /// Of a file that has no name any more: whether that may be as another took it.
    fn replica_may_be_gone(&self, _identity: &Identity) -> bool {
        false
    }
    /// Held while names or attributes are changed below: no file takes another's place meanwhile. `wait` is run around the wait for
    /// one that does. Not while something is opened or staged out.
    fn steady_names<'a>(&'a self, _wait: &mut dyn FnMut(&mut dyn FnMut())) -> Option<RwLockReadGuard<'a, ()>> {
        None
    }
    /// Whether the replica holds what the global copy lacks; true where nobody can tell.
    fn is_dirty(&self, identity: &Identity) -> bool;
    /// Whether the replica held what the global copy lacks, and is gone; false where nobody can tell.
    fn is_lost(&self, _identity: &Identity) -> bool {
        false
    }
    /// Stages a file out now and waits.
    fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck>;
    /// Stages out every dirty file - with a server: that this agent opened for writing - and waits.
    fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck>;
    /// Returns when what was written to any file survives a crash of the machine: here, or with a server in the global store.
    fn sync_all(&self) -> io::Result<()> {
        let stuck = self.drain_all(&mut |_| {}, &|| false);
        stuck.first().map_or(Ok(()), |stuck| Err(io::Error::from_raw_os_error(stuck.errno)))
    }
    /// Copies a whole file up and waits.
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()>;
    /// Drops a clean replica.
    fn evict(&self, identity: &Identity) -> io::Result<()>;
    /// Drops clean replicas that nobody uses. `EOPNOTSUPP`: that is decided on the server.
    fn clean(&self, _which: &Which) -> io::Result<Cleaned> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Pins or unpins a replica.
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()>;
    /// Whether a replica is pinned; false where nobody can tell.
    fn is_pinned(&self, identity: &Identity) -> bool;
    /// Where a file's data is; absent where nobody can tell.
    fn state(&self, identity: &Identity) -> Residency;
    /// Ends a conflict, a failure or an orphan. `EOPNOTSUPP`: that is decided on the server.
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>>;
    /// Whether new writes go to the global store. `EOPNOTSUPP`: that is decided on the server.
    fn quiesce(&self, on: bool) -> io::Result<()>;
    /// Has `tell` called before each removal of a replica that the kernel may have; the first one stays.
    fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>);
    /// What this agent is to a server, of which it asks in its next life what others have changed since ([`BurstBuffer::changed_since`]);
    /// `None` without one.
    fn client(&self) -> Option<[u8; 16]> {
        None
    }
    /// Opens a file for the drain of its windows.
    fn open_for_windows(&self, anchor: Arc<dyn Anchor>, how: OpenHow) -> io::Result<Box<dyn OpenData>> {
        self.open_unless(anchor, how, &|| false)
    }
    /// The bytes of a file that others have changed since an agent with this name fell silent that had windows on it; none where nobody knows.
    fn changed_since(&self, _identity: &Identity, _client: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        Ok(Vec::new())
    }
    /// Of that agent nothing is asked any more.
    fn forget_client(&self, _client: &[u8; 16]) {}
    /// Counters; with a server: of all that it serves.
    fn status(&self) -> io::Result<Status>;
    /// The same without those that mean to read the whole catalogue.
    fn activity(&self) -> io::Result<Status>;
    /// The server in between.
    fn server(&self) -> Option<ServerState>;
    /// How this node's reads of files at a server fared, where they are read ahead.
    fn reads(&self) -> Option<Reads> {
        None
    }
    /// Lets it go; nothing may be used afterwards. False: calls to the global store have not come back, and it is kept until this
    /// process has ended.
    fn shutdown(&self) -> bool;
    /// Whether other nodes open the same files through the same burst buffer: the kernel must ask before it believes.
    fn is_shared(&self) -> bool;
    /// Drops what this node keeps ahead of the reads of a file: the next read sees what other nodes wrote before it.
    fn forget_read_ahead(&self, _identity: &Identity) {}
}

/// How it stands with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Where it listens.
    pub address: String,
    /// For how long it has not answered; `None`: it answers, as far as anybody has asked.
    pub away: Option<Duration>,
}

impl BurstBuffer for FileCache {
    fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(FileCache::open_unless(self, anchor, how, interrupted)?))
    }
    fn may_know(&self, start: &[u8]) -> bool {
        FileCache::may_know(self, start)
    }
    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        Ok(FileCache::overlay(self, identity, below))
    }
    fn saw(&self, identity: &Identity, found: &Fingerprint) {
        FileCache::saw(self, identity, found);
    }
    fn wants_look(&self, identity: &Identity) -> bool {
        FileCache::wants_look(self, identity)
    }
    fn changed_attributes(&self, identity: &Identity, began: Timestamp) {
        FileCache::changed_attributes(self, identity, began);
    }
    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        FileCache::accessed(self, identity, below)
    }
    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        if FileCache::notes_reads(self, atime) {
            return Ok(());
        }
        let option = if atime == Atime::Strict { "strictatime" } else { "relatime" };
        Err(format!(
            "the policy `atime` cannot be kept here: the burst buffer notes no reads; run the agent as root, or mount the burst buffer's file system with `{option}`"
        ))
    }
    fn staged_count(&self) -> u64 {
        FileCache::staged_count(self)
    }
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>> {
        Ok(Some(Box::new(FileCache::set_len(self, anchor, len, policy, interrupted)?)))
    }
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [_, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let sets = match mtime {
            None => SetMtime::Keep,
            Some(NewTime::Now) => SetMtime::Now,
            Some(NewTime::At(time)) => SetMtime::To(time),
        };
        FileCache::set_times(self, anchor, sets, apply)
    }
    fn own_change(&self, anchor: &dyn Anchor) {
        FileCache::own_change(self, anchor);
    }
    fn removing(&self, identity: &Identity) {
        FileCache::removing(self, identity);
    }
    fn unlinked(&self, identity: &Identity) {
        FileCache::unlinked(self, identity);
    }
    fn begin_publishing(&self) {
        FileCache::begin_publishing(self);
    }
    fn has_published(&self) -> bool {
        FileCache::has_published(self)
    }
    fn replica_may_be_gone(&self, identity: &Identity) -> bool {
        FileCache::replica_may_be_gone(self, identity)
    }
    fn steady_names<'a>(&'a self, wait: &mut dyn FnMut(&mut dyn FnMut())) -> Option<RwLockReadGuard<'a, ()>> {
        let mut names = self.try_steady_names();
        if names.is_none() {
            wait(&mut || names = Some(FileCache::steady_names(self)));
        }
        names
    }
    fn is_dirty(&self, identity: &Identity) -> bool {
        FileCache::is_dirty(self, identity)
    }
    fn is_lost(&self, identity: &Identity) -> bool {
        FileCache::is_lost(self, identity)
    }
    fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        FileCache::drain_file(self, identity, interrupted)
    }
    fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        FileCache::drain_all(self, progress, interrupted)
    }
    fn sync_all(&self) -> io::Result<()> {
        FileCache::sync_all(self)
    }
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        FileCache::stage_in(self, anchor, policy)
    }
    fn evict(&self, identity: &Identity) -> io::Result<()> {
        FileCache::evict(self, identity)
    }
    fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        FileCache::clean(self, which)
    }
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        FileCache::pin(self, identity, pinned)
    }
    fn is_pinned(&self, identity: &Identity) -> bool {
        FileCache::is_pinned(self, identity)
    }
    fn state(&self, identity: &Identity) -> Residency {
        FileCache::state(self, identity)
    }
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        FileCache::resolve(self, identity, keep)
    }
    fn quiesce(&self, on: bool) -> io::Result<()> {
        FileCache::quiesce(self, on);
        Ok(())
    }
    fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>) {
        FileCache::before_removals(self, tell);
    }
    fn status(&self) -> io::Result<Status> {
        Ok(FileCache::status(self))
    }
    fn activity(&self) -> io::Result<Status> {
        Ok(FileCache::activity(self))
    }
    fn server(&self) -> Option<ServerState> {
        None
    }
    fn shutdown(&self) -> bool {
        FileCache::shutdown(self)
    }
    fn is_shared(&self) -> bool {
        false
    }
}
