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
use types::{ByteRange, HasErrno, Step, Version, reported};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::{self, How};
use crate::cache::Inner;
use crate::errors::is_full;
use crate::residency::File;
use data_store::{Foresee, OpenHow, SeekFor, WriteResult};
use route::Route;

/// One open file description. Dropping it releases the file.
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
    unnoted: bool,
    /// Number of the last failed stage-out that this handle reported, or after which it was opened.
    seen: AtomicU64,
}

fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

/// Returns whether the burst buffer's file system cannot hold a file of that size. The global store may be able to.
fn is_too_large(error: &io::Error) -> bool {
    error.errno() == Some(libc::EFBIG)
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
            mark: how.mark,
            passthrough: AtomicBool::new(false),
            unnoted: how.noatime,
            seen: AtomicU64::new(seen),
        }
    }

    pub(crate) fn tell_change(&self, range: ByteRange) {
        if let Some(tell) = self.inner.on_change.get() {
            tell(&self.file.identity, range, self.mark);
        }
    }

    /// Returns the version of the data that is open. Compare versions by `Arc::ptr_eq`.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the number of the complete replica that was opened. No other file or content ever has it. Returns
    /// `None` for every other route.
    pub fn version(&self) -> Option<Version> {
        self.whole
    }

    /// Reads; returns fewer bytes than requested only at the end of the file. Errors: those of the global store, such
    /// as `EIO`, for bytes that are not in the burst buffer.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.route(false)? {
                Route::Replica(fd) => return replica::read_full(&fd, buffer, offset).step("read the replica"),
                Route::Global(global) => {
                    let read = global.read_at(buffer, offset).step("read from the global store")?;
                    self.note_read();
                    return Ok(read);
                }
                Route::Partial => {
                    if let Some(read) = self.inner.read_partial(&self.file, buffer, offset).step("stage in")? {
                        self.note_read();
                        return Ok(read);
                    }
                }
            }
        }
    }

    /// Returns the file that holds the bytes of a read of `len` bytes, at the same offset, and how many there are.
    /// Returns `None` if only [`FileHandle::read_at`] finds them. The number may shrink, as with any read beside a
    /// truncation.
    pub fn lies_in(&self, offset: u64, len: usize) -> io::Result<Option<(Arc<OwnedFd>, usize)>> {
        let Route::Replica(fd) = self.route(false)? else { return Ok(None) };
        let size = rustix::fs::fstat(&fd)?.st_size as u64;
        let bytes = size.saturating_sub(offset).min(len as u64) as usize;
        Ok(Some((fd, bytes)))
    }

    /// Announces a read of `range`. If the file is being staged in, `foresee` is asked which ranges will be read next.
    /// It is called under the file's lock and must not wait.
    pub fn read_ahead(&self, range: ByteRange, foresee: Foresee<'_>) {
        if self.whole.is_none() {
            self.inner.read_ahead(&self.file, range, foresee);
        }
    }

    /// Writes all of `data` at `offset`, or at the end if `append`; no other append comes in between. If the burst
    /// buffer is full, the file moves to the global store. Reports a failed stage-out once.
    ///
    /// Errors: `ENOSPC` if the global store is full as well, or if the kernel writes the replica without the agent. An
    /// append of which a part was written returns how much.
    pub fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult> {
        self.tell()?;
        if append {
            return self.append(data);
        }
        self.strays();
        let written = self.write_with_room(data.len(), &mut |to| still_wanted().and_then(|()| to.write(data, offset)));
        // A part may have been written.
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        written.map(|()| WriteResult { written: data.len(), offset })
    }

    /// Calls `write` with the place of the file's data, and again after making room for what found none.
    fn write_with_room(&self, bytes: usize, write: &mut dyn FnMut(&Route) -> io::Result<()>) -> io::Result<()> {
        self.write_late_with_room(bytes, &mut |to| {
            let written = write(to);
            self.changed_now();
            written
        })
    }

    /// Notes a write or an allocation that may be anywhere, even if the program opened the file for appending.
    fn strays(&self) {
        if self.appends {
            self.file.live.lock().copies.untouched.wild();
        }
    }

    /// Notes a change with the present time. The file's `io` lock is held.
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

    /// Writes bytes of a window that were acknowledged earlier. Differs from `write_at` in two ways: a failed
    /// stage-out, which the program must still be told, does not prevent the write, and neither does a caller that has
    /// given up waiting.
    pub fn write_acknowledged(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let seen = self.file.live.lock().told.error.0;
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

    /// Returns whether nobody but this handle uses the replica: no other handle, and no mapping that outlived its
    /// descriptor. Returns false also if that is unknown.
    pub fn is_unshared(&self) -> bool {
        let Some(version) = self.whole else { return false };
        {
            let mut live = self.file.live.lock();
            if live.users.handles() != 1 || live.version() != Some(version) {
                return false;
            }
            // Our own descriptors would refuse the lease.
            (live.fds.read, live.fds.noted, live.fds.write) = (None, None, None);
        }
        let alone = |fd: OwnedFd| lease::probe(fd.as_fd(), Nobody::Uses).unwrap_or(false);
        self.inner.replicas.open_as(version, How::Read).is_ok_and(alone)
    }

    /// Returns whether the file has lost its last name and only this handle has it open. Closing it then discards the
    /// data.
    pub fn is_last_of_removed(&self) -> bool {
        let live = self.file.live.lock();
        live.is_unlinked() && live.users.handles() == 1
    }

    /// Sets the length (`ftruncate`).
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
        // A caller that waited for one of the two locks may have been answered.
        still_wanted()?;
        match to {
            Route::Global(global) => global.set_len(len).step("truncate in the global store"),
            Route::Replica(fd) => {
                let noted = self.file.live.lock().record().is_some_and(|record| record.synced_len > len);
                let _gate = noted.then(|| self.file.gate());
                if noted {
                    still_wanted()?;
                    self.inner.lower_length(&self.file, len)?;
                }
                rustix::fs::ftruncate(&fd, len).map_err(io::Error::from).step("truncate the replica")?;
                self.changed_now();
                let mut live = self.file.live.lock();
                live.changes += 1;
                live.copies.untouched.touch(len);
                Ok(())
            }
            Route::Partial => errno(libc::EIO),
        }
    }

    /// Returns the size in bytes of the file as this handle reads it.
    pub fn size(&self) -> io::Result<u64> {
        match self.route(false)? {
            Route::Replica(fd) => Ok(rustix::fs::fstat(&fd)?.st_size as u64),
            Route::Global(global) => Ok(global.attributes()?.fingerprint.size),
            Route::Partial => {
                let base = self.file.live.lock().fetch().map(|fetch| fetch.base.size);
                base.map_or_else(|| self.size(), Ok)
            }
        }
    }

    /// Finds the next data or hole (`SEEK_DATA`, `SEEK_HOLE`). Errors: `ENXIO` past the end, or if there is no more
    /// data.
    pub fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        if what == SeekFor::End {
            return self.size();
        }
        let global = match self.route(false)? {
            Route::Replica(fd) => {
                let from = match what {
                    SeekFor::Data => SeekFrom::Data(offset),
                    _ => SeekFrom::Hole(offset),
                };
                return Ok(rustix::fs::seek(&fd, from)?);
            }
            Route::Global(global) => global,
            Route::Partial => match self.file.peek(|live| live.fetch().map(|fetch| Arc::clone(&fetch.source))) {
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
            (_, Some(range)) if range.start <= offset => Ok(range.end.min(size)),
            (_, _) => Ok(offset),
        }
    }

    /// Syncs (`fsync`, or `fdatasync` if `data_only`): returns when written bytes survive a crash of the machine.
    /// Under `fsync = global` it stages out instead. Reports a failed stage-out once.
    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        self.tell()?;
        if self.policy.fsync_global && matches!(self.route(false)?, Route::Replica(_)) {
            return self.inner.drain_for(&self.file, &|| false).map_err(|stuck| {
                self.seen.store(self.file.live.lock().told.error.0, Ordering::Relaxed);
                reported(stuck.errno, &format!("stage out: {}", stuck.reason))
            });
        }
        self.sync_acknowledged(data_only)
    }

    /// Returns when written bytes survive a crash of the machine, in the burst buffer or in the global store if they
    /// went there. Failed stage-outs are not reported: the callers that wait for this did not ask for one.
    pub fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        match self.route(false)? {
            Route::Global(global) => global.sync().step("sync in the global store"),
            Route::Partial => Ok(()),
            Route::Replica(fd) => {
                // The name comes first. Otherwise a crash of the global store could lose the name of a file whose data
                // is on the medium, which makes it an orphan.
                self.file.sync_name().step("make the name durable in the global store")?;
                self.inner.sync_replica_as(&self.file, fd.as_fd(), data_only, true).step("sync the replica")?;
                self.inner.sync_record(&self.file).step("record that the replica is synced")?;
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
        let more = live.medium.lacks_some() || live.is_name_unsynced() || live.is_intent_unsynced();
        drop(live);
        (!self.policy.fsync_global && !more).then(|| self.tell())
    }

    /// Handles one `close` of a descriptor. Makes the data durable under `durable_at = close`. Reports a failed
    /// stage-out to a writer once.
    pub fn flush(&self) -> io::Result<()> {
        if self.write && self.policy.durable_at_close {
            return self.sync(false);
        }
        if self.write { self.tell() } else { Ok(()) }
    }

    /// Returns the ranges of a file being staged in that are in the burst buffer. Returns an empty list on every other
    /// route.
    pub fn present(&self) -> Vec<ByteRange> {
        self.file.live.lock().fetch().map_or_else(Vec::new, |fetch| fetch.present.iter().collect())
    }

    /// Reports a failed stage-out: returns an error once for each failure since the last call.
    fn tell(&self) -> io::Result<()> {
        let (number, code) = self.file.live.lock().told.error;
        if self.seen.swap(number, Ordering::Relaxed) == number {
            Ok(())
        } else {
            errno(code).step("stage out what was written before")
        }
    }
}

impl Inner {
    /// Makes the record durable, and lets it say that written bytes were synced.
    pub(crate) fn sync_record(&self, file: &File) -> io::Result<()> {
        if file.live.lock().is_intent_unsynced() {
            let _gate = file.gate();
            let Some(record) = file.live.lock().record().cloned() else { return Ok(()) };
            let synced_len = record.synced_len.max(self.replica_size(file));
            self.put(file, Record { synced: true, synced_len, ..record }, Durability::Machine)?;
            file.live.lock().synced.intent = true;
        }
        Ok(())
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.inner.release(&self.file, self.write, self.passthrough.load(Ordering::Acquire));
    }
}
