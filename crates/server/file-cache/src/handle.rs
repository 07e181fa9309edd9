//! One open file description.

mod allocate;
mod append;
mod backdate;
mod backing;
mod behind;
mod route;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use catalogue::{Durability, Record};
use config::Policy;
use global_store::calls::still_wanted;
use rustix::fs::SeekFrom;
use types::{ByteRange, Version};

use crate::api::{OpenHow, SeekFor, WriteResult};
use crate::cache::Inner;
use crate::file::{Body, File};
use crate::lease::{self, Nobody};
use crate::open::is_full;
use crate::read_partial::Foresee;
use crate::replica::{self, How};
pub use backdate::Backdating;
pub use behind::WriteBehind;
use route::Route;

/// One open file description. Dropping it is its release.
pub struct FileHandle {
    inner: Arc<Inner>,
    file: Arc<File>,
    policy: Arc<Policy>,
    write: bool,
    appends: bool,
    /// Version of the replica that was complete when the file was opened.
    whole: Option<Version>,
    passthrough: AtomicBool,
    /// Mark of the client that uses this handle, reported with changes.
    mark: u64,
    /// Whether reads leave the access time unchanged, whatever the policy says.
    unnoted: AtomicBool,
    /// Number of the last failed stage-out that this handle reported, or after which it was opened.
    seen: AtomicU64,
}

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

/// Whether the burst buffer's file system has no files of that size: the global store may.
fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFBIG)
}

impl FileHandle {
    pub(crate) fn new(
        inner: &Arc<Inner>,
        file: &Arc<File>,
        how: &OpenHow,
        whole: Option<Version>,
        seen: u64,
    ) -> FileHandle {
        FileHandle {
            inner: Arc::clone(inner),
            file: Arc::clone(file),
            policy: Arc::clone(&how.policy),
            write: how.write,
            appends: how.appends,
            whole,
            mark: 0,
            passthrough: AtomicBool::new(false),
            unnoted: AtomicBool::new(false),
            seen: AtomicU64::new(seen),
        }
    }

    /// Marks what is changed through it ([`FileCache::on_changes`](crate::FileCache::on_changes)).
    pub fn mark(&mut self, mark: u64) {
        self.mark = mark;
    }

    pub(crate) fn tell_change(&self, range: ByteRange) {
        if let Some(tell) = self.inner.on_change.get() {
            tell(&self.file.identity, range, self.mark);
        }
    }

    /// The version of the data that is open; compare with `Arc::ptr_eq`.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The number of the complete replica that was opened; no other file or content ever has it. `None` for every other route.
    pub fn version(&self) -> Option<Version> {
        self.whole
    }

    /// Reads; fewer bytes than asked only at the end of the file. `EIO` and others as the global store gives them for
    /// bytes that are not in the burst buffer.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.route(false)? {
                Route::Replica(fd) => return replica::read_full(&fd, buffer, offset),
                Route::Global(global) => {
                    let read = global.read_at(buffer, offset)?;
                    self.note_read();
                    return Ok(read);
                }
                Route::Partial => {
                    if let Some(read) = self.inner.read_partial(&self.file, buffer, offset)? {
                        self.note_read();
                        return Ok(read);
                    }
                }
            }
        }
    }

    /// Where the bytes that a read of `len` bytes finds lie as they are: the file, and how many. `None`: only [`FileHandle::read_at`] finds
    /// them. They may become fewer, as with any read beside a truncation.
    pub fn lies_in(&self, offset: u64, len: usize) -> io::Result<Option<(Arc<OwnedFd>, usize)>> {
        let Route::Replica(fd) = self.route(false)? else { return Ok(None) };
        let size = rustix::fs::fstat(&fd)?.st_size as u64;
        let bytes = size.saturating_sub(offset).min(len as u64) as usize;
        Ok(Some((fd, bytes)))
    }

    /// Before a read of `range`: `foresee` is asked what will be read next, if the file is being staged in. It is called under the
    /// file's lock and must not wait.
    pub fn read_ahead(&self, range: ByteRange, foresee: Foresee<'_>) {
        if self.whole.is_none() {
            self.inner.read_ahead(&self.file, range, foresee);
        }
    }

    /// Writes all of `data` at `offset`, or at the end if `append`, where no other append comes between. A full burst buffer moves the
    /// file to the global store; `ENOSPC` comes only if that is full as well, or if the kernel writes the replica past us. An append of
    /// which a part stands then says how much. Tells a failed stage-out once.
    pub fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult> {
        self.tell()?;
        if append {
            return self.append(data);
        }
        self.strays();
        let written = self.write_with_room(data.len(), &mut |to| still_wanted().and_then(|()| to.write(data, offset)));
        // A part may stand.
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        written.map(|()| WriteResult { written: data.len(), offset })
    }

    /// Has `write` write some of `bytes` to where the file is, and again when room was made for what found none.
    fn write_with_room(&self, bytes: usize, write: &mut dyn FnMut(&Route) -> io::Result<()>) -> io::Result<()> {
        self.write_late_with_room(bytes, &mut |to| {
            let written = write(to);
            self.changed_now();
            written
        })
    }

    /// A write or an allocation comes that may be anywhere, also through who said that he appends.
    fn strays(&self) {
        if self.appends {
            self.file.live.lock().untouched.wild();
        }
    }

    /// `io` of the file is held: it has the time at which it was changed.
    fn changed_now(&self) {
        self.file.changes_now.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes like `write_with_room`, for bytes that were written earlier: the file's count of present changes stays.
    fn write_late_with_room(&self, bytes: usize, write: &mut dyn FnMut(&Route) -> io::Result<()>) -> io::Result<()> {
        let mut evicted = false;
        loop {
            let outcome = {
                let _io = self.file.io.read();
                let to = self.route(true)?;
                let outcome = write(&to);
                if !matches!(to, Route::Replica(_)) {
                    return outcome;
                }
                outcome
            };
            match outcome {
                Err(error) if is_full(&error) && !evicted => {
                    evicted = true;
                    self.inner.make_room(bytes as u64);
                }
                Err(error) if (is_full(&error) || is_too_large(&error)) && self.inner.spill(&self.file)? => {}
                Err(error) if self.inner.refuses(&error) => return Err(self.inner.refused(&self.file, error)),
                outcome => return outcome,
            }
        }
    }

    /// Writes what was acknowledged before, by a window: like `write_at`, but an earlier failure of a stage-out, which is to be
    /// told to the program, does not stand in the way, nor that who waits for this was given up.
    pub fn write_acknowledged(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let seen = self.file.live.lock().error.0;
        self.seen.store(seen, Ordering::Relaxed);
        self.strays();
        let written = self.write_late_with_room(data.len(), &mut |to| to.write(data, offset));
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        written
    }

    /// Writes acknowledged data by calling `write` on the replica's descriptor, without an extra copy. Returns whether
    /// it did. If not, for whatever reason, or because the file goes elsewhere, the caller must write all of the data
    /// by [`FileHandle::write_acknowledged`].
    pub fn write_straight(&self, write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        self.strays();
        let _io = self.file.io.read();
        matches!(self.route(true), Ok(Route::Replica(fd)) if write(fd.as_fd()))
    }

    /// Whether nobody but this handle has anything of the replica: no other handle, no mapping that outlived its
    /// descriptor. False also when that cannot be told.
    pub fn is_unshared(&self) -> bool {
        let Some(version) = self.whole else { return false };
        {
            let mut live = self.file.live.lock();
            if live.handles != 1 || live.version != Some(version) {
                return false;
            }
            // Our own would be in the way.
            (live.fds.read, live.fds.noted, live.fds.write) = (None, None, None);
        }
        let alone = |fd: OwnedFd| lease::probe(fd.as_fd(), Nobody::Uses).unwrap_or(false);
        self.inner.replicas.open_as(version, How::Read).is_ok_and(alone)
    }

    /// Whether the file has lost its last name and nobody but this handle has it open: with the handle goes the data.
    pub fn is_last_of_removed(&self) -> bool {
        let live = self.file.live.lock();
        live.unlinked && live.handles == 1
    }

    /// `ftruncate`
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let mut done = self.set_len_where_it_is(len);
        if done.as_ref().is_err_and(is_too_large) && self.inner.spill(&self.file)? {
            done = self.set_len_where_it_is(len);
        }
        self.tell_change(ByteRange::new(len, u64::MAX));
        done
    }

    fn set_len_where_it_is(&self, len: u64) -> io::Result<()> {
        let _io = self.file.io.read();
        let to = self.route(true)?;
        // Who waited for one of the two may have been answered.
        still_wanted()?;
        match to {
            Route::Global(global) => global.set_len(len),
            Route::Replica(fd) => {
                let noted = self.file.live.lock().record.as_ref().is_some_and(|record| record.synced_len > len);
                let _gate = noted.then(|| self.file.gate.lock());
                if noted {
                    still_wanted()?;
                    self.inner.lower_length(&self.file, len)?;
                }
                rustix::fs::ftruncate(&fd, len)?;
                self.changed_now();
                let mut live = self.file.live.lock();
                live.changes += 1;
                live.untouched.touch(len);
                Ok(())
            }
            Route::Partial => errno(libc::EIO),
        }
    }

    /// Bytes of the file as this handle reads it.
    pub fn size(&self) -> io::Result<u64> {
        match self.route(false)? {
            Route::Replica(fd) => Ok(rustix::fs::fstat(&fd)?.st_size as u64),
            Route::Global(global) => Ok(global.attributes()?.fingerprint.size),
            Route::Partial => {
                let base = match &self.file.live.lock().body {
                    Body::Partial(fetch) => Some(fetch.base.size),
                    _ => None,
                };
                base.map_or_else(|| self.size(), Ok)
            }
        }
    }

    /// `SEEK_DATA`, `SEEK_HOLE`. `ENXIO` past the end, or no more data.
    pub fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        let global = match self.route(false)? {
            Route::Replica(fd) => {
                let from = match what {
                    SeekFor::Data => SeekFrom::Data(offset),
                    SeekFor::Hole => SeekFrom::Hole(offset),
                };
                return Ok(rustix::fs::seek(&fd, from)?);
            }
            Route::Global(global) => global,
            Route::Partial => match self.inner.source_of(&self.file) {
                Some(source) => source,
                None => return self.seek(offset, what),
            },
        };
        let size = global.attributes()?.fingerprint.size;
        if offset >= size {
            return errno(libc::ENXIO);
        }
        match (what, global.next_data(offset)?) {
            (SeekFor::Data, None) => errno(libc::ENXIO),
            (SeekFor::Data, Some(range)) => Ok(range.start.max(offset)),
            (SeekFor::Hole, Some(range)) if range.start <= offset => Ok(range.end.min(size)),
            (SeekFor::Hole, _) => Ok(offset),
        }
    }

    /// `fsync`, or `fdatasync` if `data_only`: returns when what was written survives a crash of the machine. Under
    /// `fsync = global` it stages out instead. Tells a failed stage-out once.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        self.tell()?;
        if self.policy.fsync_global && matches!(self.route(false)?, Route::Replica(_)) {
            return self.inner.drain_for(&self.file, &|| false).map_err(|stuck| {
                self.seen.store(self.file.live.lock().error.0, Ordering::Relaxed);
                io::Error::from_raw_os_error(stuck.errno)
            });
        }
        self.sync_acknowledged(data_only)
    }

    /// Returns when what was written survives a crash of the machine in the burst buffer, or below where it went there. The
    /// errors of stage-outs are not told: those that wait for it did not ask for one.
    pub fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        match self.route(false)? {
            Route::Global(global) => global.sync(),
            Route::Partial => Ok(()),
            Route::Replica(fd) => {
                // First: data on the medium of a file that a crash took below would be an orphan.
                self.file.sync_name()?;
                self.inner.sync_replica_asked(&self.file, fd.as_fd(), data_only)?;
                self.inner.sync_record(&self.file)?;
                self.inner.note_length(&self.file, &*fd);
                Ok(())
            }
        }
    }

    /// Syncs a file whose writes all survive a crash of the machine already: only reports a failed stage-out, once.
    /// Returns `None` if `sync` has more to do or to report: under `fsync = global`, if the name or the record is not
    /// durable yet, or if the medium lacks something after all.
    pub fn sync_kept(&self) -> Option<io::Result<()>> {
        let live = self.file.live.lock();
        let more = live.medium.lacks_some() || (live.name_unsynced && !live.unlinked) || live.is_intent_unsynced();
        drop(live);
        (!self.policy.fsync_global && !more).then(|| self.tell())
    }

    /// One `close` of a descriptor. Makes the data durable under `durable_at = close`. Tells a writer of a
    /// failed stage-out once.
    pub fn flush(&self) -> io::Result<()> {
        if self.write && self.policy.durable_at_close {
            return self.sync(false);
        }
        if self.write { self.tell() } else { Ok(()) }
    }

    /// The bytes that lie in the burst buffer of a file that is being fetched; empty on every other route.
    pub fn present(&self) -> Vec<ByteRange> {
        match &self.file.live.lock().body {
            Body::Partial(fetch) => fetch.present.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Fails once for each failed stage-out since the last time.
    fn tell(&self) -> io::Result<()> {
        let (number, code) = self.file.live.lock().error;
        if self.seen.swap(number, Ordering::Relaxed) == number { Ok(()) } else { errno(code) }
    }
}

impl Inner {
    /// The record says that what was written has been synced.
    pub(crate) fn sync_record(&self, file: &File) -> io::Result<()> {
        if file.live.lock().is_intent_unsynced() {
            let _gate = file.gate.lock();
            let Some(record) = file.live.lock().record.clone() else { return Ok(()) };
            let synced_len = record.synced_len.max(self.replica_size(file));
            self.put(file, Record { synced: true, synced_len, ..record }, Durability::Machine)?;
            file.live.lock().intent_synced = true;
        }
        Ok(())
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.inner.release(&self.file, self.write, self.passthrough.load(Ordering::Acquire));
    }
}
