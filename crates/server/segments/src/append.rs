//! Appending: room is reserved under a short lock, and objects are summed and written outside of it.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{SegmentError, errno, failed};
use crate::fault;
use crate::index::{Locked, ObjectPlace, Offered};
use crate::key::ObjectKey;
use crate::layout::{DATA_START, HEADER_BYTES, ObjectEntry, SegmentHeader, footer_bytes, room};
use crate::limits::{OBJECT_BYTES_MAX, SEQUENCE_END};
use crate::segment::{Life, Phase, Segment};
use crate::store::SegmentStore;

thread_local! {
    /// Bytes of the last object that the thread read from a file, for the next one.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The end of the newest segment, where the next object begins.
pub(crate) struct Append {
    /// Segment that is filled.
    pub(crate) segment: Option<Arc<Segment>>,
    /// Segment that may be filled further if there is none.
    pub(crate) resumable: Option<Arc<Segment>>,
    /// Offset of the next object, in bytes.
    pub(crate) next: u64,
    /// Objects in the segment for which there is room in its footer.
    pub(crate) objects: u64,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
}

/// Room for one object.
struct Reservation {
    segment: Arc<Segment>,
    offset: u64,
    /// Sequence number for a new object.
    sequence: u64,
}

/// An object that lies in its segment and not yet in the index. The segment counts a writer until it does.
pub(crate) struct WrittenObject {
    segment: Arc<Segment>,
    place: ObjectPlace,
}

/// Segments of whose death somebody must see once no entry of the index is locked.
pub(crate) type Dead = Vec<Arc<Segment>>;

impl SegmentStore {
    /// Puts an object, which becomes the newest of its key. It survives the death of the process once this has returned, and a crash
    /// of the machine after a [`sync`](SegmentStore::sync).
    ///
    /// O(length): one system call, and some more for the first object of a segment. Threads write beside each other.
    ///
    /// Errors: `TooLarge` (`EFBIG`) above [`OBJECT_BYTES_MAX`] or what fits a segment; `ENOSPC` or `EDQUOT` if the burst buffer is
    /// full; others of the system calls. After an error the former object of the key is there, and nothing of the new one.
    pub fn put(&self, key: ObjectKey, bytes: &[u8]) -> Result<(), SegmentError> {
        self.check_length(bytes.len() as u64)?;
        let mut dead = Dead::new();
        let outcome = self.put_object(&key, bytes, &mut dead);
        dead.iter().for_each(|dead| self.reap_quietly(dead));
        outcome
    }

    /// Puts the first `length` bytes of a file. The position of the descriptor is neither used nor changed. Each thread has a buffer
    /// that it uses again, as long as its longest object. Otherwise as [`put`](SegmentStore::put).
    ///
    /// Errors: also those of reading the file, and `ENODATA` if it is shorter.
    pub fn put_file(&self, key: ObjectKey, file: BorrowedFd<'_>, length: u64) -> Result<(), SegmentError> {
        self.check_length(length)?;
        let mut buffer = BUFFER.take();
        buffer.resize((length as usize).max(buffer.len()), 0);
        let bytes = &mut buffer[..length as usize];
        let read = read_start(file, bytes).map_err(failed("read a file for", self.medium.path()));
        let outcome = read.and_then(|()| self.put(key, bytes));
        BUFFER.set(buffer);
        outcome
    }

    fn check_length(&self, bytes: u64) -> Result<(), SegmentError> {
        let fits_segment = self.settings.segment_bytes - DATA_START - footer_bytes(1) - HEADER_BYTES as u64 - 8;
        let most = OBJECT_BYTES_MAX.min(fits_segment);
        if bytes > most { Err(SegmentError::TooLarge { bytes, most }) } else { Ok(()) }
    }

    fn put_object(&self, key: &ObjectKey, bytes: &[u8], dead: &mut Dead) -> Result<(), SegmentError> {
        let written = self.append_object(key, bytes, None, dead)?;
        fault::point("put.written");
        if self.enter(&mut self.index.lock(key), written, dead) != Offered::Unknown {
            return Ok(());
        }
        // An object with a higher sequence number was removed while this one was written. If it had the same key and came back
        // after a crash, it would hide this one. So this one is put again, while nobody can remove another.
        let mut entry = self.index.lock(key);
        let written = self.append_object(key, bytes, None, dead)?;
        self.enter(&mut entry, written, dead);
        Ok(())
    }

    /// Writes an object, with a new sequence number unless there is one.
    pub(crate) fn append_object(
        &self,
        key: &ObjectKey,
        bytes: &[u8],
        sequence: Option<u64>,
        dead: &mut Dead,
    ) -> Result<WrittenObject, SegmentError> {
        let reserved = self.reserve(bytes.len() as u64, dead)?;
        fault::point("put.reserved");
        let segment = reserved.segment.clone();
        let sequence = sequence.unwrap_or(reserved.sequence);
        let header = ObjectEntry::header(segment.header.id, key, sequence, bytes);
        if let Err(error) = segment.file.write_at(&header, bytes, reserved.offset) {
            self.give_back(&reserved, bytes.len() as u64, &error, dead);
            return Err(failed("write an object to", &segment.path)(error));
        }
        let place = ObjectPlace::new(sequence, segment.slot, reserved.offset, bytes.len() as u32);
        Ok(WrittenObject { segment, place })
    }

    /// Enters a written object in the index, if it is the newest of its key.
    fn enter(&self, entry: &mut Locked<'_>, written: WrittenObject, dead: &mut Dead) -> Offered {
        let offered = entry.offer(written.place);
        let former = if let Offered::Newest(former) = offered { former } else { None };
        self.end_write(written, matches!(offered, Offered::Newest(_)), dead);
        // After the new object's segment is listed as dirty: a sync that begins later makes the new object durable.
        dead.extend(former.and_then(|former| self.kill(former, self.group.next())));
        fault::point("put.placed");
        offered
    }

    /// Enters the copy of an object in place of its original. Returns whether the original was still the newest.
    pub(crate) fn exchange(
        &self,
        entry: &mut Locked<'_>,
        original: ObjectPlace,
        copy: WrittenObject,
        dead: &mut Dead,
    ) -> bool {
        let moved = entry.exchange(original, copy.place);
        self.end_write(copy, moved, dead);
        if moved {
            dead.extend(self.kill(original, self.group.next()));
        }
        moved
    }

    fn end_write(&self, written: WrittenObject, live: bool, dead: &mut Dead) {
        let WrittenObject { segment, place } = written;
        if live {
            segment.add_live(room(u64::from(place.length())));
        }
        if segment.end_write(true, &self.group.dirty) {
            dead.push(segment);
        }
    }

    /// Reserves room for an object, in a new segment if need be. Counts a writer of the segment.
    fn reserve(&self, length: u64, dead: &mut Dead) -> Result<Reservation, SegmentError> {
        let mut append = self.append.lock();
        let bytes = room(length);
        if append.next_sequence >= SEQUENCE_END {
            return Err(failed("number one more object in", self.medium.path())(errno(Errno::OVERFLOW)));
        }
        if append.segment.is_none() {
            self.resume(&mut append);
        }
        let end = append.next + bytes + footer_bytes(append.objects + 1);
        if append.segment.is_none() || end > self.settings.segment_bytes {
            dead.extend(append.retire());
            self.begin_segment(&mut append)?;
        }
        let Some(segment) = append.segment.clone() else { return Err(no_segment(self)) };
        let reserved = Reservation { segment, offset: append.next, sequence: append.next_sequence };
        append.next += bytes;
        append.objects += 1;
        append.next_sequence += 1;
        reserved.segment.change(|life| life.writers += 1);
        Ok(reserved)
    }

    /// Gives back the room of a failed write. A hole stays if others have reserved room behind it, or if the medium is bad there: then
    /// later objects go to another segment.
    fn give_back(&self, reserved: &Reservation, length: u64, error: &io::Error, dead: &mut Dead) {
        let segment = &reserved.segment;
        // What was written may be whole all the same. Where even this fails, the next object in the place overwrites it.
        let _ = segment.file.write_at(&[0; HEADER_BYTES], &[], reserved.offset);
        let mut append = self.append.lock();
        if append.segment.as_ref().is_some_and(|filled| Arc::ptr_eq(filled, segment)) {
            let is_full = matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT));
            if !is_full {
                append.retire();
            } else if append.next == reserved.offset + room(length) {
                append.next = reserved.offset;
                append.objects -= 1;
            }
        }
        drop(append);
        if segment.end_write(false, &self.group.dirty) {
            dead.push(segment.clone());
        }
    }

    /// Creates a segment with all its room, so that a full burst buffer shows here rather than amid an object.
    fn begin_segment(&self, append: &mut Append) -> Result<(), SegmentError> {
        let name = segment_name(append.next_number);
        let path = self.medium.path().join(&name);
        let mut id = [0; 8];
        concurrency::random_bytes(&mut id).map_err(failed("choose an id for", &path))?;
        let header = SegmentHeader { id: u64::from_le_bytes(id), first_sequence: append.next_sequence };
        let file = self.medium.create(&name).map_err(failed("create the segment", &path))?;
        append.next_number += 1;
        fault::point("segment.created");
        let made = file.allocate(self.settings.segment_bytes).and_then(|allocated| {
            fault::point("segment.allocated");
            file.write_at(&header.encode(), &[], 0)?;
            Ok(if allocated { self.settings.segment_bytes } else { DATA_START })
        });
        let inserted = made.map_err(failed("find room for the segment", &path)).and_then(|file_bytes| {
            self.segments.insert((name.clone(), path), header, file, Life::new(Phase::Filling, 0, file_bytes, 0))
        });
        let segment = inserted.inspect_err(|_| drop(self.medium.remove(&name)))?;
        fault::point("segment.headed");
        self.group.name_is_new();
        *append = Append { segment: Some(segment), resumable: None, next: DATA_START, objects: 0, ..*append };
        Ok(())
    }

    /// Goes on with the newest segment of an earlier opening, if it has room. What lies behind its objects is cut off.
    fn resume(&self, append: &mut Append) {
        let Some(segment) = append.resumable.take() else { return };
        let claimed = segment.change(|life| {
            let fits = life.end + room(0) + footer_bytes(life.whole + 1) <= self.settings.segment_bytes;
            let claimed = fits && life.is_quiet() && !life.suspect && !life.unsealable;
            if claimed {
                life.phase = Phase::Filling;
            }
            claimed.then_some((life.end, life.whole))
        });
        let Some((end, whole)) = claimed else { return };
        let made = segment.file.truncate(end).and_then(|()| segment.file.allocate(self.settings.segment_bytes));
        let Ok(allocated) = made else {
            // Objects go to a new segment, or meet the error there.
            segment.change(|life| (life.phase, life.file_bytes) = (Phase::Full, end));
            return;
        };
        segment.change(|life| life.file_bytes = if allocated { self.settings.segment_bytes } else { end });
        (append.segment, append.next, append.objects) = (Some(segment), end, whole);
    }
}

impl Append {
    /// Ends the filling of the segment. Returns it if nothing alive is there.
    pub(crate) fn retire(&mut self) -> Option<Arc<Segment>> {
        let segment = self.segment.take()?;
        let is_dead = segment.change(|life| {
            (life.phase, life.end) = (Phase::Full, self.next);
            life.file_bytes = life.file_bytes.max(self.next);
            life.is_quiet() && life.live_objects == 0
        });
        is_dead.then_some(segment)
    }
}

/// Returns the name of the file of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:016x}.segment")
}

fn no_segment(store: &SegmentStore) -> SegmentError {
    failed("find a segment in", store.medium.path())(errno(Errno::IO))
}

/// Fills the buffer with the first bytes of a file.
fn read_start(file: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let mut read = 0;
    while read < buffer.len() {
        match rustix::io::pread(file, &mut buffer[read..], read as u64) {
            Ok(0) => return Err(errno(Errno::NODATA)),
            Ok(count) => read += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
