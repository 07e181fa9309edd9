//! The name log: transactions in files of one directory, appended by one writer and made durable on demand.
//!
//! A transaction is acknowledged once the kernel has it, so it survives the death of programs and of the agent.
//! [`NameLog::sync`] makes it survive a crash of the machine. Files are removed in the order of their numbers alone: a tombstone is
//! needed only while an older file has a record of its node.

mod files;
mod reading;
mod syncing;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::Mutex;
use rustix::io::Errno;
use types::{HasErrno, Step};

pub use files::{LogDirectory, LogFile, MountedLogDirectory};
pub use reading::{LogContent, LogDamage, ReadFile, read_log};

use crate::fault::point;
use crate::layout::{self, FRAME_BYTES, FileHeader, HEADER_BYTES};
use crate::limits;
use syncing::Syncing;

/// A log that is open for appending.
pub struct NameLog {
    directory: Box<dyn LogDirectory>,
    id: [u8; 16],
    opening: u32,
    file_bytes: u64,
    writer: Mutex<Writer>,
    syncing: Syncing,
    /// Sequence up to which everything is durable.
    durable: AtomicU64,
}

/// A log file that is not removed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUse {
    /// Number of the file.
    pub number: u32,
    /// States and tombstones in it, superseded ones included.
    pub records: u64,
    /// Bytes of its header and its transactions.
    pub bytes: u64,
}

struct Writer {
    current: CurrentFile,
    /// All files, the oldest first; the last is the current one.
    files: VecDeque<FileUse>,
    /// Former current files that are not synced yet, the oldest first.
    unsynced: Vec<Arc<dyn LogFile>>,
    /// Whether a file was made whose name is not synced yet.
    has_new_name: bool,
    next_sequence: u64,
}

struct CurrentFile {
    file: Arc<dyn LogFile>,
    id: [u8; 16],
    offset: u64,
}

impl NameLog {
    /// Continues a log whose content was read, or begins one if there is none. What was not used is cut off and removed, and a
    /// copy is kept of files with damage. A new file is made durably: node numbers of its opening were never given before.
    ///
    /// `file_bytes`: size of a log file. Errors: those of the directory; `EOVERFLOW` after too many openings.
    pub fn open(directory: Box<dyn LogDirectory>, content: &LogContent, file_bytes: u64) -> io::Result<NameLog> {
        if content.opening >= limits::OPENINGS_MAX - 1 {
            return Err(Errno::OVERFLOW.into());
        }
        let opening = content.opening + 1;
        // Numbers have no gaps: those of removed files come again.
        let last = content.files.last().map_or(0, |file| file.number);
        let number = last.checked_add(1).ok_or(Errno::OVERFLOW)?;
        settle(&*directory, content)?;
        let mut id = content.log.unwrap_or_default();
        if content.log.is_none() {
            concurrency::random_bytes(&mut id)?;
        }
        let first = content.states.last + 1;
        let header = FileHeader { log: id, file: [0; 16], number, opening, first };
        let current = match new_file(&*directory, header, file_bytes) {
            // A tree must open on a full burst buffer, so that its changes can leave.
            Err(error) if error.errno() == Some(libc::ENOSPC) => new_file(&*directory, header, HEADER_BYTES as u64)?,
            made => made?,
        };
        current.file.sync()?;
        directory.sync()?;
        let mut files: VecDeque<FileUse> = content.files.iter().map(FileUse::of).collect();
        files.push_back(FileUse { number, records: 0, bytes: HEADER_BYTES as u64 });
        let (unsynced, has_new_name) = (Vec::new(), false);
        Ok(NameLog {
            directory,
            id,
            opening,
            file_bytes,
            writer: Mutex::new(Writer { current, files, unsynced, has_new_name, next_sequence: first }),
            syncing: Syncing::new(first - 1),
            durable: AtomicU64::new(first - 1),
        })
    }

    /// Returns the random id of the log.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Returns the number of this opening, from 1.
    pub fn opening(&self) -> u32 {
        self.opening
    }

    /// Returns the sequence that the next transaction will have, if nobody else appends before.
    pub fn next_sequence(&self) -> u64 {
        self.writer.lock().next_sequence
    }

    /// Appends a transaction. `frame` was begun by [`layout::begin_frame`], and the transaction encoded behind it; `records` is
    /// their number. Returns its sequence and the number of the file that has it.
    ///
    /// Errors: `ENOSPC` and the like; `E2BIG` for a transaction that is too long; `EIO` after a failed sync. Then the log is as it
    /// was.
    pub fn append(&self, frame: &mut Vec<u8>, records: usize) -> io::Result<(u64, u32)> {
        if frame.len() - FRAME_BYTES > limits::TRANSACTION_BYTES_MAX || records > limits::TRANSACTION_RECORDS_MAX {
            return Err(Errno::TOOBIG.into());
        }
        let mut writer = self.writer.lock();
        self.syncing.check()?;
        let length = frame.len().next_multiple_of(layout::FRAME_ALIGN) as u64;
        if writer.current.offset + length > self.file_bytes && writer.current.offset > HEADER_BYTES as u64 {
            self.rotate(&mut writer, length)?;
        }
        let (sequence, offset) = (writer.next_sequence, writer.current.offset);
        layout::end_frame(frame, &writer.current.id, sequence, self.durable.load(Ordering::Acquire));
        if let Err(error) = writer.current.file.write_at(frame, offset) {
            // Part of the frame, or all of it, may be there. Nobody must find it, even if the agent dies now.
            let _ = writer.current.file.write_at(&[0; FRAME_BYTES], offset);
            return Err(error);
        }
        point("names.appended");
        writer.current.offset += length;
        writer.next_sequence += 1;
        let file = writer.files.back_mut().expect("the current file");
        file.records += records as u64;
        file.bytes += length;
        Ok((sequence, file.number))
    }

    /// Begins a new file with room for a frame of `length` bytes.
    fn rotate(&self, writer: &mut Writer, length: u64) -> io::Result<()> {
        let last = writer.files.back().expect("the current file").number;
        let number = last.checked_add(1).ok_or(Errno::OVERFLOW)?;
        let (opening, first) = (self.opening, writer.next_sequence);
        let header = FileHeader { log: self.id, file: [0; 16], number, opening, first };
        let bytes = self.file_bytes.max(HEADER_BYTES as u64 + length);
        let former = std::mem::replace(&mut writer.current, new_file(&*self.directory, header, bytes)?);
        writer.unsynced.push(former.file);
        writer.files.push_back(FileUse { number, records: 0, bytes: HEADER_BYTES as u64 });
        writer.has_new_name = true;
        Ok(())
    }

    /// Returns all files, the oldest first. The last is the current one.
    pub fn files(&self) -> Vec<FileUse> {
        self.writer.lock().files.iter().copied().collect()
    }

    /// Removes the oldest file, durably. Nothing must need a record of it, and all that was appended must be durable.
    ///
    /// Errors: those of the directory; `EINVAL` if `number` is not the oldest file, or the current one.
    pub fn remove_oldest(&self, number: u32) -> io::Result<()> {
        {
            let writer = self.writer.lock();
            if writer.files.len() < 2 || writer.files.front().is_none_or(|oldest| oldest.number != number) {
                return Err(Errno::INVAL.into());
            }
        }
        match self.directory.remove(number) {
            // An earlier removal may have failed after this.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        point("names.deleted");
        // The next file is removed after this name is gone for good: a log begins with one file, without a gap behind it.
        self.directory.sync()?;
        self.writer.lock().files.pop_front();
        point("names.cleaned");
        Ok(())
    }
}

impl FileUse {
    fn of(read: &ReadFile) -> FileUse {
        FileUse { number: read.number, records: read.records, bytes: read.bytes }
    }
}

/// Cuts off and removes what was not used of a log.
fn settle(directory: &dyn LogDirectory, content: &LogContent) -> io::Result<()> {
    let torn = content.files.last().filter(|file| file.is_torn);
    if content.damage.is_some() {
        for number in torn.iter().map(|file| file.number).chain(content.unused.iter().copied()) {
            directory.keep_damaged(number)?;
        }
    }
    // From the last on: a crash meanwhile leaves no gap before files that are there.
    for number in content.unused.iter().rev() {
        directory.remove(*number)?;
    }
    // Files that are not torn are synced by it: an agent that died may not have done so.
    for file in &content.files {
        directory.cut(file.number, file.bytes)?;
    }
    point("names.cut");
    directory.sync()
}

/// Makes a log file. `header.file` is chosen here.
fn new_file(directory: &dyn LogDirectory, mut header: FileHeader, bytes: u64) -> io::Result<CurrentFile> {
    concurrency::random_bytes(&mut header.file)?;
    let file = directory.create(header.number, bytes)?;
    if let Err(error) = file.write_at(&header.encode(), 0).step("begin a file of the name log") {
        // The error of the write is the one to tell; without a header the file counts for nothing.
        let _ = directory.remove(header.number);
        return Err(error);
    }
    point("names.created");
    Ok(CurrentFile { file, id: header.file, offset: HEADER_BYTES as u64 })
}
