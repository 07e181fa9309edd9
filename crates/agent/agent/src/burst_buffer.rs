//! The seam between an agent and the data of its files: a file cache in this process, or one at a server.

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

/// Holder of the data of files. The methods mean what those of [`FileCache`] mean. With a server in between, they may
/// also fail because the server is unreachable.
pub trait BurstBuffer: Send + Sync {
    /// Opens a file. `EINTR` if `interrupted` returns true while the open waits.
    fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>>;
    /// Whether data of a file whose identity begins with `start` may be here. True if unknown.
    fn may_know(&self, _start: &[u8]) -> bool {
        true
    }
    /// Returns the attributes that `stat` must report instead of the global copy's. `below`: the global copy's
    /// attributes, if they are not older than our last change.
    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>>;
    /// Notes the fingerprint that a global copy had when it was looked at.
    fn saw(&self, _identity: &Identity, _found: &Fingerprint) {}
    /// Whether the global copy should be looked at before a change of the file's attributes or names.
    fn wants_look(&self, _identity: &Identity) -> bool {
        false
    }
    /// Notes that attributes or names of a file were changed through us since `began`, a time of
    /// [`file_cache::now_of_files`].
    fn changed_attributes(&self, _identity: &Identity, _began: Timestamp) {}
    /// Returns the time of last access: `below`, the global copy's, or a later one that is noted here.
    fn accessed(&self, _identity: &Identity, below: Timestamp) -> Timestamp {
        below
    }
    /// Checks that access times can be kept as a policy says. Errors: the reason, and what to do.
    fn notes_reads(&self, atime: Atime) -> Result<(), String>;
    /// Counter of stage-outs. Changes whenever a global copy may have become the newest data of its file.
    fn staged_count(&self) -> u64;
    /// `truncate(2)`. Returns a handle that keeps the file in use, so that no other file takes its place. `EINTR` if
    /// `interrupted` returns true while the call waits.
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>>;
    /// `utimens` by a caller with permission. `apply` sets the times as the caller, on this node.
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        times: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;
    /// Notes our own change of names or attributes. Call this after the change.
    fn own_change(&self, anchor: &dyn Anchor);
    /// Notes that the last name is about to be removed through us.
    fn removing(&self, identity: &Identity);
    /// Notes that the last name was removed through us.
    fn unlinked(&self, identity: &Identity);
    /// Allows files to take the place of others. Call this once everything that was noted by the identities of files
    /// has been handled.
    fn begin_publishing(&self) {}
    /// Whether files have taken the place of others since the burst buffer was opened.
    fn has_published(&self) -> bool {
        false
    }
    /// Whether a file without a name may have lost it because another file took its place.
    fn replica_may_be_gone(&self, _identity: &Identity) -> bool {
        false
    }
    /// Blocks files from taking the place of others while the guard lives. Held during changes of names or attributes
    /// in the global store. `wait` is called around the wait for a replacement that is under way. Must not be called
    /// during an open or a stage-out.
    fn steady_names<'a>(&'a self, _wait: &mut dyn FnMut(&mut dyn FnMut())) -> Option<RwLockReadGuard<'a, ()>> {
        None
    }
    /// Whether the replica holds data that the global copy lacks. True if unknown.
    fn is_dirty(&self, identity: &Identity) -> bool;
    /// Whether the replica held data that the global copy lacks, and is gone. False if unknown.
    fn is_lost(&self, _identity: &Identity) -> bool {
        false
    }
    /// Stages a file out now and waits.
    fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck>;
    /// Stages out every dirty file and waits. With a server: every file that this agent opened for writing.
    fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck>;
    /// Returns when all writes would survive a crash of the machine: in the burst buffer or, with a server, in the
    /// global store.
    fn sync_all(&self) -> io::Result<()> {
        let stuck = self.drain_all(&mut |_| {}, &|| false);
        stuck.first().map_or(Ok(()), |stuck| Err(io::Error::from_raw_os_error(stuck.errno)))
    }
    /// Copies a whole file into the burst buffer and waits.
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()>;
    /// Drops a clean replica.
    fn evict(&self, identity: &Identity) -> io::Result<()>;
    /// Drops clean replicas that are not in use. `EOPNOTSUPP`: only the server can do that.
    fn clean(&self, _which: &Which) -> io::Result<Cleaned> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Pins or unpins a replica.
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()>;
    /// Whether a replica is pinned. False if unknown.
    fn is_pinned(&self, identity: &Identity) -> bool;
    /// Returns the state of a file's replica. `Absent` if unknown.
    fn state(&self, identity: &Identity) -> Residency;
    /// Ends a conflict, a failure or an orphan. `EOPNOTSUPP`: only the server can do that.
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>>;
    /// Turns quiescing on or off: while on, new writes go to the global store. `EOPNOTSUPP`: only the server can do
    /// that.
    fn quiesce(&self, on: bool) -> io::Result<()>;
    /// Registers `tell`, called before each removal of a replica that the kernel may have open. Only the first
    /// registration counts.
    fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>);
    /// This agent's name at a server; `None` without a server. After a restart, the agent asks by this name for changes
    /// by others ([`BurstBuffer::changed_since`]).
    fn client(&self) -> Option<[u8; 16]> {
        None
    }
    /// Opens a file to apply the records of its windows.
    fn open_for_windows(&self, anchor: Arc<dyn Anchor>, how: OpenHow) -> io::Result<Box<dyn OpenData>> {
        self.open_unless(anchor, how, &|| false)
    }
    /// Returns the byte ranges of a file that others have changed since the agent `client`, which had windows on it,
    /// fell silent. Empty if unknown.
    fn changed_since(&self, _identity: &Identity, _client: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        Ok(Vec::new())
    }
    /// Tells the server that nothing more will be asked about the agent `client`.
    fn forget_client(&self, _client: &[u8; 16]) {}
    /// Returns counters. With a server: those of all that it serves.
    fn status(&self) -> io::Result<Status>;
    /// Returns the counters that do not require reading the whole catalogue.
    fn activity(&self) -> io::Result<Status>;
    /// The state of the server in between; `None` without one.
    fn server(&self) -> Option<ServerState>;
    /// Counters of this node's reads from a server; `None` where nothing is read ahead.
    fn reads(&self) -> Option<Reads> {
        None
    }
    /// Closes the burst buffer, which must not be used afterwards. False: calls to the global store have not returned.
    /// Then this process must end, and keeps the burst buffer until it does.
    fn shutdown(&self) -> bool;
    /// Whether other nodes open the same files through this burst buffer. If so, the kernel must revalidate before it
    /// uses its caches.
    fn is_shared(&self) -> bool;
    /// Drops what this node has read ahead of a file, so that the next read sees earlier writes of other nodes.
    fn forget_read_ahead(&self, _identity: &Identity) {}
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Address at which the server listens.
    pub address: String,
    /// Time for which the server has not answered. `None`: the last request was answered, or none was sent.
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
