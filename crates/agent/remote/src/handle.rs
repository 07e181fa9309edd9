//! An open file whose data is at the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::HasErrno;

use concurrency::{Instant, Mutex};
use data_store::{
    AcknowledgedBytes, DataVersion, Foresee, InPlace, InPlaceAs, OpenData, OpenHow, Passthrough, Removed, SeekFor,
    SyncScope, WindowTarget, WindowUsage, WriteResult, WriteWhere, read_ahead_bytes,
};
use global_store::Anchor;
use peer::{LossReports, TellWith};
use transport::{CallError, Data};
use types::{ByteRange, Gathered, Timestamp};
use wire::limits::DATA_BYTES_MAX;
use wire::{Message, open, seek};

use crate::ahead::{self, Ahead, Reading};
use crate::asked::{PendingRequest, age_ns};
use crate::convert::unexpected;
use crate::earned::Earned;
use crate::fault;
use crate::limits::{SERVER_AHEAD_FILE_BYTES, SERVER_WANTED_MAX};
use crate::opened::RemoteFile;
use crate::pace::ReadPace;
use crate::scatter::at_once;
use crate::shared::RemoteShared;

/// A handle of an open file at the server.
pub(crate) struct RemoteHandle {
    pub(crate) opened: Arc<RemoteFile>,
    pub(crate) patience: Duration,
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
    /// Losses, by crashes of the server's machine, that the program was told of.
    pub(crate) told: Mutex<LossReports>,
    /// Whether writes through this handle are kept here until they are synced.
    pub(crate) retained: bool,
}

impl RemoteHandle {
    /// Opens a file at the server. `windows`: whose records will be applied through the handle.
    pub(crate) fn open(
        inner: &Arc<RemoteShared>,
        anchor: &dyn Anchor,
        how: &OpenHow,
        windows: Option<WindowUsage>,
    ) -> io::Result<RemoteHandle> {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = bit(how.read, open::READ)
            | bit(how.write || how.truncate, open::WRITE)
            | bit(how.sync, open::SYNC)
            | bit(matches!(windows, Some(WindowUsage::Serve(_))), open::WINDOWS);
        let policy = inner.policy(&how.policy);
        let handle = RemoteHandle {
            opened: Arc::new(RemoteFile::new(inner, anchor.identity(), anchor.path_hint(), flags, policy)),
            patience: how.policy.io_timeout,
            end: AtomicU64::new(0),
            end_is_known: AtomicBool::new(false),
            turn: AtomicU64::new(0),
            pace: Mutex::new(ReadPace::new(Instant::now(), how.policy.revalidate)),
            wanted: Mutex::default(),
            keep: (read_ahead_bytes(&how.policy), how.policy.revalidate),
            durable_at_close: how.policy.durable_at_close,
            told: Mutex::new(LossReports::after(0)),
            retained: windows == Some(WindowUsage::Serve(true)),
        };
        let _opening = handle.writes().then(|| {
            inner.begin_write(&handle.opened.identity, &handle.opened.hint);
            inner.opening.begin(&inner.client)
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
        let before = handle.opened.mates().state.lock().unsynced.losses();
        *handle.told.lock() = LossReports::after(before);
        if how.truncate {
            handle.made(Some(handle.opened.boot_verifier()));
        }
        fault::point("remote.opened");
        Ok(handle)
    }

    pub(crate) fn writes(&self) -> bool {
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
            Err(error) if matches!(error.errno(), Some(libc::EINTR | libc::EFAULT)) => Err(error),
            // The error may be that of an earlier stage-out, which is reported once. So the write is repeated.
            Err(_) => write(),
            Ok(()) => Ok(()),
        }
    }

    /// Returns the share of the memory for read-ahead that a read of `bytes` bytes may use.
    fn ahead_share(&self, bytes: u64) -> u64 {
        let room = self.pace.lock().read(Instant::now(), bytes);
        self.opened.inner.ahead.kept().share(&self.turn).min(room)
    }

    /// Returns how many bytes may be read ahead of a read, judged by how much of earlier read-ahead was used.
    fn ahead_earned(&self, bytes: u64) -> u64 {
        self.ahead().map_or_else(|| Earned::default().window(bytes), |ahead| ahead.earned(bytes))
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

    /// Writes at the server. `drains`: the bytes are those of windows.
    fn write_there(&self, data: &[u8], place: WriteWhere, drains: bool) -> io::Result<WriteResult> {
        let (handle, mut first, mut done) = (self.opened.number, None, 0);
        for part in data.chunks(DATA_BYTES_MAX as usize) {
            let message = match place {
                WriteWhere::At(offset) => Some(Message::Write { handle, offset: offset + done }),
                WriteWhere::Backdated(offset, at) => {
                    Some(Message::WriteBackdated { handle, offset: offset + done, age_ns: age_ns(at) })
                }
                WriteWhere::End | WriteWhere::EndAgain(_) => None,
            };
            let began = match message {
                Some(message) => {
                    self.written(PendingRequest { data: part.into(), drains, ..PendingRequest::new(message, true) })?
                }
                None => self.append(part)?,
            };
            fault::point("remote.written");
            first.get_or_insert(began);
            done += part.len() as u64;
        }
        let offset = first.unwrap_or_else(|| range_of(place, 0).start);
        Ok(WriteResult { written: data.len(), offset })
    }

    /// Writes bytes of windows, sent from where they lie; no more than one request takes.
    fn write_gathered(&self, offset: u64, data: &dyn Gathered, at: Timestamp) -> io::Result<()> {
        let message = Message::WriteBackdated { handle: self.opened.number, offset, age_ns: age_ns(at) };
        self.written(PendingRequest {
            data: Data::Gathered(data),
            drains: true,
            ..PendingRequest::new(message, true)
        })?;
        fault::point("remote.written");
        Ok(())
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

/// Returns the range that an append may have changed.
fn range_of(place: WriteWhere, bytes: usize) -> ByteRange {
    match place {
        WriteWhere::At(offset) | WriteWhere::Backdated(offset, _) => ByteRange::at(offset, bytes as u64),
        WriteWhere::End | WriteWhere::EndAgain(_) => ahead::ALL,
    }
}

impl OpenData for RemoteHandle {
    fn data(&self) -> DataVersion {
        DataVersion { content: self.opened.mates(), is_current: true, replica: None, steady: None }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(ahead) = self.ahead() else { return self.read_there(buffer, offset) };
        let (len, ask) = (buffer.len(), |buffer: &mut [u8], offset| self.read_there(buffer, offset));
        let sooner = |range, long| self.opened.inner.sooner(&ahead, range, self.patience, long);
        let read = ahead.read(buffer, offset, self.patience, &sooner, &ask)?;
        self.fetch_wanted(&ahead, read == len);
        Ok(read)
    }

    fn read_in_place(&self, range: ByteRange, wanted: InPlaceAs) -> Option<InPlace> {
        let (InPlaceAs::Memory(parts_max), Some(ahead)) = (wanted, self.ahead()) else { return None };
        let parts = ahead.parts(range).filter(|parts| parts.len() <= parts_max)?;
        let bytes: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        self.fetch_wanted(&ahead, bytes as u64 == range.len());
        Some(InPlace::Memory(parts.into_iter().map(|part| Box::new(part) as _).collect()))
    }

    fn read_ahead(&self, range: ByteRange, wanted: Option<u64>, foresee: Foresee<'_>) -> bool {
        let share = match wanted {
            Some(bytes) => self.ahead_share(bytes),
            None => self.ahead_share(range.len()).min(self.ahead_earned(range.len())),
        };
        let (bytes, fresh) = self.keep;
        if fresh.is_zero() {
            return true;
        }
        let (opened, bytes_max) = (&self.opened, bytes.max(SERVER_AHEAD_FILE_BYTES));
        let make = || Reading::of(opened.inner.ahead.of(&opened.identity, opened.version(), bytes_max, fresh));
        let ahead = Arc::clone(self.opened.ahead.lock().get_or_insert_with(make).ahead());
        let mut spent = None;
        let following = ahead.meet(range, &mut |size, fared, absent| {
            let notice = foresee(size, fared, share, absent);
            spent = notice.spent;
            notice.following
        });
        if !following.is_empty() {
            let mut wanted = self.wanted.lock();
            wanted.extend(following);
            wanted.truncate(SERVER_WANTED_MAX);
        }
        spent.into_iter().for_each(|spent| ahead.spent(spent));
        if wanted.is_some() {
            self.fetch_wanted(&ahead, true);
        }
        true
    }

    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        self.changed(range_of(place, data.len()), self.write_there(data, place, false))
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
            SeekFor::End => return self.position(Message::End { handle: self.opened.number }, false),
        };
        self.position(Message::Seek { handle: self.opened.number, offset, target }, false)
    }

    fn sync(&self, scope: SyncScope) -> io::Result<bool> {
        match scope {
            SyncScope::All => self.sync_there(false, false).and_then(|()| self.refuse_for_loss(TellWith::Sync))?,
            SyncScope::Data => self.sync_there(true, false).and_then(|()| self.refuse_for_loss(TellWith::Sync))?,
            SyncScope::OfWrite => self.sync_there(true, false).and_then(|()| self.refuse_for_loss(TellWith::Write))?,
            SyncScope::Acknowledged(data_only) => self.sync_there(data_only, true)?,
            SyncScope::LossOnly => self.refuse_for_loss(TellWith::Write)?,
            SyncScope::IfKept => return Ok(false),
        }
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        // Errors are reported to writers only.
        if !self.writes() {
            return Ok(());
        }
        let mates = self.opened.mates();
        let changes = mates.state.lock().unsynced.changes();
        let boot_verifier = self.done(Message::Flush { handle: self.opened.number })?;
        if self.durable_at_close && boot_verifier.is_some() {
            mates.state.lock().unsynced.synced(changes);
        }
        // The result of a close may be ignored, as at an exec in a child. So the loss stays unreported until a sync.
        self.refuse_for_loss(TellWith::Close)
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        None
    }
}

impl WindowTarget for RemoteHandle {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>> {
        // After a change of the boot verifier, the sync does not cover bytes written before the crash.
        let boot_verifier = self.opened.boot_verifier();
        let gone = AtomicBool::new(false);
        at_once(parts.len(), &|number| {
            let (offset, bytes) = &parts[number];
            let written = match bytes {
                AcknowledgedBytes::Copied(data) => {
                    let place = WriteWhere::Backdated(*offset, at);
                    let write = || self.write_there(data, place, true).map(|_| ());
                    self.bring(range_of(place, data.len()), write)
                }
                AcknowledgedBytes::Gathered(data) => {
                    let range = ByteRange::at(*offset, data.bytes() as u64);
                    self.bring(range, || self.write_gathered(*offset, *data, at))
                }
            };
            match written {
                // The other writes finish first: a request sent and given up could be executed later, over newer data.
                Err(error) if error.errno() == Some(libc::EFAULT) => gone.store(true, Ordering::Release),
                written => written?,
            }
            Ok(())
        })?;
        Ok((!gone.into_inner()).then_some(boot_verifier))
    }

    fn sync(&self) -> io::Result<u64> {
        self.sync_there(false, true).map(|()| self.opened.boot_verifier())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        OpenData::set_len(self, len)
    }

    /// A restarted server does not find a file without a name.
    fn removed(&self) -> Removed {
        match self.opened.is_gone() {
            false => Removed::No,
            true if self.opened.inner.written.knows(&self.opened.identity) => Removed::Elsewhere,
            true => Removed::Here,
        }
    }

    fn report_loss(&self) -> io::Result<()> {
        self.refuse_for_loss(TellWith::Write)
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
