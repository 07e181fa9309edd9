//! An open file whose data is at the server.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use concurrency::{Instant, Mutex};
use file_cache::{Anchor, Foresee, OpenHow, SeekFor, WriteResult};
use transport::{CallError, Data};
use types::{ByteRange, Timestamp, Version};
use window::Gather;
use window::read_queue::Part;
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, open, seek};

use super::ahead::{self, Ahead, Reading};
use super::asked::{InRings, PendingRequest, age_ns};
use super::earned::Earned;
use super::opened::RemoteFile;
use super::opening::Opening;
use super::pace::ReadPace;
use super::scatter::at_once;
use super::{Inner, fault, unexpected};
use crate::burst_buffer::{DataVersion, OpenData};
use crate::limits::{SERVER_AHEAD_FILE_BYTES, SERVER_WANTED_MAX};
use crate::reader;

/// A handle of an open file at the server.
pub(super) struct RemoteHandle {
    pub(super) opened: Arc<RemoteFile>,
    pub(super) patience: Duration,
    /// Of an appender: a lower bound of the end of the file. No byte from here on was written by an append that was not
    /// answered.
    end: AtomicU64,
    end_is_known: AtomicBool,
    /// Turn, among all readers, of the last read.
    turn: AtomicU64,
    pace: Mutex<ReadPace>,
    /// Ranges expected to be read after the reads under way.
    wanted: Mutex<Vec<ByteRange>>,
    /// Read-ahead bytes to keep, and how long they may be used.
    keep: (u64, Duration),
    /// Whether the server syncs the file at each close of a descriptor.
    durable_at_close: bool,
    /// Number of losses, by crashes of the server's machine, that a sync has reported.
    pub(super) told: AtomicU64,
    /// Number of losses for which a write was refused.
    pub(super) refused: AtomicU64,
    /// Whether writes through this handle are kept here until they are synced.
    pub(super) retained: AtomicBool,
}

impl RemoteHandle {
    /// Opens a file at the server. `windows`: records of windows will be applied through the handle.
    pub(super) fn open(
        inner: &Arc<Inner>,
        anchor: &dyn Anchor,
        how: &OpenHow,
        windows: bool,
    ) -> io::Result<RemoteHandle> {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = bit(how.read, open::READ)
            | bit(how.write || how.truncate, open::WRITE)
            | bit(how.sync, open::SYNC)
            | bit(windows, open::WINDOWS);
        let policy = inner.policy(&how.policy);
        let handle = RemoteHandle {
            opened: Arc::new(RemoteFile::new(inner, anchor.identity(), anchor.path_hint(), flags, policy)),
            patience: how.policy.io_timeout,
            end: AtomicU64::new(0),
            end_is_known: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            pace: Mutex::new(ReadPace::new(Instant::now(), how.policy.revalidate)),
            wanted: Mutex::default(),
            keep: (reader::budget(&how.policy), how.policy.revalidate),
            durable_at_close: how.policy.durable_at_close,
            told: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            retained: AtomicBool::new(false),
        };
        let _opening = handle.writes().then(|| {
            inner.begin_write(&handle.opened.identity, &handle.opened.hint);
            Opening::begin(inner)
        });
        // The open may have to wait for another node's dirty mark, or for the stage-in of a whole file.
        let within = (!handle.writes()).then(|| how.policy.io_timeout + how.policy.remote_wait);
        let first = bit(how.truncate, open::TRUNCATE) | bit(how.created, open::CREATED);
        match handle.opened.open_as(first, within) {
            // The file exists now, whatever the lost server did, and is as empty as it should be.
            Err(CallError::Lost) => handle.opened.open_as(bit(how.truncate, open::TRUNCATE), within)?,
            other => other?,
        }
        handle.opened.join(handle.patience);
        let before = handle.opened.mates().unsynced.losses();
        [&handle.told, &handle.refused].into_iter().for_each(|mark| mark.store(before, Ordering::Release));
        if how.truncate {
            handle.made(Some(handle.opened.boot_verifier()));
        }
        fault::point("remote.opened");
        Ok(handle)
    }

    pub(super) fn writes(&self) -> bool {
        self.opened.flags & open::WRITE != 0
    }

    /// Drops the read-ahead data of `range` after a change has been answered, even if its outcome is unknown.
    fn changed<T>(&self, range: ByteRange, done: T) -> T {
        self.opened.inner.ahead.changed(&self.opened.identity, range);
        done
    }

    /// Writes acknowledged bytes by `write`.
    fn bring(&self, range: ByteRange, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let write = || self.changed(range, write());
        match write() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EFAULT)) => Err(error),
            // The error may be that of an earlier stage-out, which is reported once. So the write is repeated.
            Err(_) => write(),
            Ok(()) => Ok(()),
        }
    }

    fn ahead(&self) -> Option<Arc<Ahead>> {
        self.opened.ahead.lock().as_ref().map(|reading| Arc::clone(reading.ahead()))
    }

    /// Fetches the ranges expected to be read next. At the end of the file there are none.
    fn fetch_wanted(&self, ahead: &Arc<Ahead>, goes_on: bool) {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        if goes_on {
            self.opened.inner.fetch(ahead, self.opened.number, &wanted);
        }
    }

    fn read_there(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let part = (buffer.len() - done).min(DATA_BYTES_MAX as usize);
            let message = Message::Read { handle: self.opened.number, offset: offset + done as u64, len: part as u32 };
            let into = &mut buffer[done..done + part];
            match self.ask(PendingRequest { into, ..PendingRequest::new(message, false) })? {
                (Message::Bytes {}, got, _) if got == part => done += got,
                (Message::Bytes {}, got, _) => return Ok(done + got),
                (other, ..) => return Err(unexpected(&other)),
            }
        }
        Ok(done)
    }

    fn write_there(
        &self,
        data: &[u8],
        offset: u64,
        append: bool,
        drained: Option<Timestamp>,
    ) -> io::Result<WriteResult> {
        let mut first = None;
        let mut at = offset;
        for part in data.chunks(DATA_BYTES_MAX as usize) {
            let began = if append {
                self.append(part)?
            } else {
                let message = self.write_message(at, drained);
                self.written(PendingRequest {
                    data: part.into(),
                    drains: drained.is_some(),
                    ..PendingRequest::new(message, true)
                })?
            };
            fault::point("remote.written");
            first.get_or_insert(began);
            at += part.len() as u64;
        }
        Ok(WriteResult { written: data.len(), offset: first.unwrap_or(offset) })
    }

    fn write_message(&self, offset: u64, drained: Option<Timestamp>) -> Message {
        let handle = self.opened.number;
        match drained {
            Some(at) => Message::WriteBackdated { handle, offset, age_ns: age_ns(at) },
            None => Message::Write { handle, offset },
        }
    }

    fn append(&self, data: &[u8]) -> io::Result<u64> {
        if !self.end_is_known.load(Ordering::Acquire) {
            self.end.fetch_max(self.position(Message::End { handle: self.opened.number }, true)?, Ordering::AcqRel);
            self.end_is_known.store(true, Ordering::Release);
        }
        // The bound is that of the time when the append was first sent.
        let end = self.end.load(Ordering::Acquire);
        let mut again = false;
        loop {
            let message = Message::Append { handle: self.opened.number, end, again };
            match self.written(PendingRequest { data: data.into(), once: true, ..PendingRequest::new(message, true) }) {
                Err(CallError::Lost) => again = true,
                Err(error) => return Err(error.into()),
                Ok(offset) => {
                    self.end.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
                    return Ok(offset);
                }
            }
        }
    }
}

impl OpenData for RemoteHandle {
    fn data(&self) -> DataVersion {
        DataVersion::There(self.opened.mates())
    }

    fn version(&self) -> Option<Version> {
        None
    }

    fn backing(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    fn use_passthrough(&self) -> bool {
        false
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(ahead) = self.ahead() else { return self.read_there(buffer, offset) };
        let (len, ask) = (buffer.len(), |buffer: &mut [u8], offset| self.read_there(buffer, offset));
        let sooner = |range, long| self.opened.inner.sooner(&ahead, range, self.patience, long);
        let read = ahead.read(buffer, offset, self.patience, &sooner, &ask)?;
        self.fetch_wanted(&ahead, read == len);
        Ok(read)
    }

    fn read_in_place(&self, range: ByteRange, parts_max: usize) -> Option<Vec<Part>> {
        let ahead = self.ahead()?;
        let parts = ahead.parts(range).filter(|parts| parts.len() <= parts_max)?;
        let bytes: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        self.fetch_wanted(&ahead, bytes as u64 == range.len());
        Some(parts)
    }

    fn ahead_share(&self, bytes: u64) -> u64 {
        let room = self.pace.lock().read(Instant::now(), bytes);
        self.opened.inner.ahead.kept().share(&self.turn).min(room)
    }

    fn ahead_earned(&self, bytes: u64) -> u64 {
        self.ahead().map_or_else(|| Earned::default().window(bytes), |ahead| ahead.earned(bytes))
    }

    fn spent(&self, range: ByteRange) {
        if let Some(ahead) = self.ahead() {
            ahead.spent(range);
        }
    }

    fn read_ahead(&self, range: ByteRange, foresee: Foresee<'_>) {
        let (bytes, fresh) = self.keep;
        if fresh.is_zero() {
            return;
        }
        let (opened, bytes_max) = (&self.opened, bytes.max(SERVER_AHEAD_FILE_BYTES));
        let make = || Reading::of(opened.inner.ahead.of(&opened.identity, opened.version(), bytes_max, fresh));
        let ahead = Arc::clone(self.opened.ahead.lock().get_or_insert_with(make).ahead());
        let following = ahead.meet(range, foresee);
        if !following.is_empty() {
            let mut wanted = self.wanted.lock();
            wanted.extend(following);
            wanted.truncate(SERVER_WANTED_MAX);
        }
    }

    fn fetch(&self) {
        self.ahead().iter().for_each(|ahead| self.fetch_wanted(ahead, true));
    }

    fn write_at(&self, data: &[u8], offset: u64, append: bool) -> io::Result<WriteResult> {
        let range = if append { ahead::ALL } else { ByteRange::at(offset, data.len() as u64) };
        self.changed(range, self.write_there(data, offset, append, None))
    }

    fn write_acknowledged(&self, data: &[u8], offset: u64, at: Timestamp) -> io::Result<()> {
        self.bring(ByteRange::at(offset, data.len() as u64), || {
            self.write_there(data, offset, false, Some(at)).map(|_| ())
        })
    }

    fn write_gathered(&self, parts: &[(u64, Gather<'_>)], at: Timestamp) -> io::Result<bool> {
        let gone = AtomicBool::new(false);
        at_once(parts.len(), &|number| {
            let (offset, bytes) = &parts[number];
            let brought = self.bring(ByteRange::at(*offset, bytes.bytes() as u64), || {
                let (message, data) = (self.write_message(*offset, Some(at)), InRings(bytes));
                self.written(PendingRequest {
                    data: Data::Gathered(&data),
                    drains: true,
                    ..PendingRequest::new(message, true)
                })?;
                fault::point("remote.written");
                Ok(())
            });
            match brought {
                // The other writes finish first: a request sent and given up could be executed later, over newer data.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => gone.store(true, Ordering::Release),
                brought => brought?,
            }
            Ok(())
        })?;
        Ok(!gone.into_inner())
    }

    fn write_scattered(&self, parts: &[(u64, &[u8])], at: Timestamp) -> io::Result<()> {
        let pieces: Vec<(u64, &[u8])> = parts
            .iter()
            .flat_map(|(offset, data)| {
                let places = (*offset..).step_by(DATA_BYTES_MAX as usize);
                places.zip(data.chunks(DATA_BYTES_MAX as usize))
            })
            .collect();
        at_once(pieces.len(), &|number| {
            let (offset, data) = pieces[number];
            self.write_acknowledged(data, offset, at)
        })
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// Whether the server has reported this. A restarted server does not find a file without a name.
    fn is_last_of_removed(&self) -> bool {
        self.opened.gone.load(Ordering::Acquire)
    }

    fn was_removed_elsewhere(&self) -> bool {
        self.opened.gone.load(Ordering::Acquire) && self.opened.inner.written.knows(&self.opened.identity)
    }

    /// Always false: other nodes may have the file open.
    fn is_unshared(&self) -> bool {
        false
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.end_is_known.store(false, Ordering::Release);
        self.end.store(0, Ordering::Release);
        let done = self.changes(Message::SetLen { handle: self.opened.number, len });
        fault::point("remote.cut");
        self.changed(ahead::ALL, done)
    }

    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        self.changed(ahead::ALL, self.changes(Message::Allocate { handle: self.opened.number, mode, offset, len }))
    }

    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        let target = match what {
            SeekFor::Data => seek::DATA,
            SeekFor::Hole => seek::HOLE,
        };
        self.position(Message::Seek { handle: self.opened.number, offset, target }, false)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.sync_there(data_only, false).and_then(|()| self.tell_losses())
    }

    fn sync_written(&self) -> io::Result<()> {
        self.sync_there(true, false).and_then(|()| self.refuse_once())
    }

    fn sync_acknowledged(&self, data_only: bool) -> io::Result<()> {
        self.sync_there(data_only, true)
    }

    fn retains(&self) {
        self.retained.store(true, Ordering::Release);
    }

    fn boot_verifier(&self) -> u64 {
        self.opened.boot_verifier()
    }

    fn report_error_to_writer(&self) -> io::Result<()> {
        self.refuse_once()
    }

    fn flush(&self) -> io::Result<()> {
        // Errors are reported to writers only.
        if !self.writes() {
            return Ok(());
        }
        let unsynced = &self.opened.mates().unsynced;
        let changes = unsynced.changes();
        let boot_verifier = self.done(Message::Flush { handle: self.opened.number })?;
        if self.durable_at_close && boot_verifier.is_some() {
            unsynced.synced(changes);
        }
        // The result of a close may be ignored, as at an exec in a child. So the loss stays unreported until a sync.
        self.lost()
    }
}

impl Drop for RemoteHandle {
    fn drop(&mut self) {
        self.opened.inner.fetches.close(self.opened.number);
        self.opened.close();
        fault::point("remote.closed");
        if self.writes() {
            self.opened.inner.written.end(&self.opened.identity);
        }
    }
}
