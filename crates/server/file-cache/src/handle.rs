//! One open file description.

mod allocate;
mod append;
mod backdate;
mod backing;
mod route;
#[cfg(test)]
mod tests;
mod window;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use config::Policy;
use global_store::calls::still_wanted;
use rustix::fs::SeekFrom;
use types::{ByteRange, HasErrno, Step, Timestamp, Version, reported};

use crate::burst_buffer::replica;
use crate::cache::Inner;
use crate::clock::wall;
use crate::errors::{is_full, os};
use crate::limits::BACKDATE_AFTER;
use crate::residency::File;
use allocate::{KEEPS, MOVES};
use data_store::{
    DataVersion, Foresee, InPlace, InPlaceAs, OpenData, OpenHow, Passthrough, SeekFor, SyncScope, WriteResult,
    WriteWhere,
};
use route::Route;

/// One open file description. Dropping it releases the file.
pub(crate) struct FileHandle {
    inner: Arc<Inner>,
    pub(crate) file: Arc<File>,
    policy: Arc<Policy>,
    write: bool,
    appends: bool,
    /// Version of the replica that was complete when the file was opened; `None` for every other route.
    whole: Option<Version>,
    passthrough: AtomicBool,
    /// Mark of the client that uses this handle, reported with changes.
    mark: u64,
    /// Whether reads leave the access time unchanged, whatever the policy says.
    unnoted: bool,
    /// Number of the last failed stage-out that this handle reported, or after which it was opened.
    seen: AtomicU64,
}

/// Returns whether the burst buffer's file system cannot hold a file of that size. The global store may be able to.
fn is_too_large(error: &io::Error) -> bool {
    error.errno() == Some(libc::EFBIG)
}

/// Returns whether bytes written at this time arrive so late that their file gets the time at which they were written.
fn is_late(at: Timestamp) -> bool {
    at.age(wall()) > BACKDATE_AFTER
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

    fn write(&self, data: &[u8], offset: u64) -> io::Result<WriteResult> {
        self.tell()?;
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
            Route::Partial => os(libc::EIO),
        }
    }

    /// Returns the size in bytes of the file as this handle reads it.
    fn size(&self) -> io::Result<u64> {
        match self.route(false)? {
            Route::Replica(fd) => Ok(rustix::fs::fstat(&fd)?.st_size as u64),
            Route::Global(global) => Ok(global.attributes()?.fingerprint.size),
            Route::Partial => {
                let base = self.file.live.lock().fetch().map(|fetch| fetch.base.size);
                base.map_or_else(|| self.size(), Ok)
            }
        }
    }

    /// Returns when written bytes survive a crash of the machine, in the burst buffer or in the global store if they
    /// went there. Failed stage-outs are not reported: the callers that wait for this did not ask for one.
    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
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

    /// Reports a failed stage-out: returns an error once for each failure since the last call.
    fn tell(&self) -> io::Result<()> {
        let (number, code) = self.file.live.lock().told.error;
        if self.seen.swap(number, Ordering::Relaxed) == number {
            Ok(())
        } else {
            os(code).step("stage out what was written before")
        }
    }
}

impl OpenData for FileHandle {
    fn data(&self) -> DataVersion {
        let is_current = !self.file.live.lock().is_retired();
        DataVersion { content: Arc::clone(&self.file) as _, is_current, replica: self.whole, steady: None }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
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

    fn read_in_place(&self, range: ByteRange, wanted: InPlaceAs) -> Option<InPlace> {
        if wanted != InPlaceAs::File {
            return None;
        }
        // Errors are reported by an ordinary read.
        let Ok(Route::Replica(fd)) = self.route(false) else { return None };
        let size = rustix::fs::fstat(&fd).ok()?.st_size as u64;
        Some(InPlace::File(fd, size.saturating_sub(range.start).min(range.len()) as usize))
    }

    fn read_ahead(&self, range: ByteRange, wanted: Option<u64>, foresee: Foresee<'_>) -> bool {
        if wanted.is_none() && self.whole.is_none() {
            self.inner.read_ahead(&self.file, range, foresee);
        }
        wanted.is_none()
    }

    /// Writes. If the burst buffer is full, the file moves to the global store. Errors: also `ENOSPC` if the kernel
    /// writes the replica without the agent.
    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        match place {
            WriteWhere::Backdated(offset, at) if is_late(at) => self.write_backdated(data, offset, at),
            WriteWhere::At(offset) | WriteWhere::Backdated(offset, _) => self.write(data, offset),
            WriteWhere::End => self.append(data),
            WriteWhere::EndAgain(end) => self.append_again(data, end),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut done = self.set_len_where_it_is(len);
        if done.as_ref().is_err_and(is_too_large) && self.inner.spill(&self.file)? {
            done = self.set_len_where_it_is(len);
        }
        self.tell_change(ByteRange::new(len, u64::MAX));
        done
    }

    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        let done = self.allocate(mode, offset, len);
        if mode & !KEEPS != 0 {
            let end = if mode & MOVES != 0 { u64::MAX } else { offset.saturating_add(len) };
            self.tell_change(ByteRange::new(offset, end));
        }
        done
    }

    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
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
            return os(libc::ENXIO);
        }
        match (what, global.next_data(offset)?) {
            (SeekFor::Data, None) => os(libc::ENXIO),
            (SeekFor::Data, Some(range)) => Ok(range.start.max(offset)),
            (_, Some(range)) if range.start <= offset => Ok(range.end.min(size)),
            (_, _) => Ok(offset),
        }
    }

    /// Syncs. Under `fsync = global` it stages out instead. Reports a failed stage-out once.
    fn sync(&self, scope: SyncScope) -> io::Result<bool> {
        let data_only = match scope {
            SyncScope::All => false,
            SyncScope::Data | SyncScope::OfWrite => true,
            SyncScope::Acknowledged(data_only) => return self.sync_acknowledged(data_only).map(|()| true),
            SyncScope::IfKept => {
                let live = self.file.live.lock();
                let more = live.medium.lacks_some() || live.is_name_unsynced() || live.is_intent_unsynced();
                drop(live);
                return if self.policy.fsync_global || more { Ok(false) } else { self.tell().map(|()| true) };
            }
            SyncScope::LossOnly => return Ok(true),
        };
        self.tell()?;
        if self.policy.fsync_global && matches!(self.route(false)?, Route::Replica(_)) {
            self.inner.drain_for(&self.file, &|| false).map_err(|stuck| {
                self.seen.store(self.file.live.lock().told.error.0, Ordering::Relaxed);
                reported(stuck.errno, &format!("stage out: {}", stuck.reason))
            })?;
        } else {
            self.sync_acknowledged(data_only)?;
        }
        Ok(true)
    }

    /// Handles one `close`. Makes the data durable under `durable_at = close`. Reports a failed stage-out to a writer
    /// once.
    fn flush(&self) -> io::Result<()> {
        match self.write {
            true if self.policy.durable_at_close => self.sync(SyncScope::All).map(|_| ()),
            true => self.tell(),
            false => Ok(()),
        }
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        self.whole.map(|_| self as &dyn Passthrough)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.inner.release(&self.file, self.write, self.passthrough.load(Ordering::Acquire));
    }
}
