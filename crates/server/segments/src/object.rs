//! An object that was found in the index.

use std::io;
use std::sync::Arc;

use crate::error::{DamagedObject, SegmentError, errno, failed};
use crate::index::ObjectPlace;
use crate::key::ObjectKey;
use crate::layout::{HEADER_BYTES, ObjectEntry};
use crate::segment::Segment;

/// One version of an object, for as long as the handle lives. Later puts, removals and compactions change nothing that is
/// read here. The space of a segment that is removed meanwhile becomes free when its last handle is dropped.
#[derive(Clone)]
pub struct Object {
    segment: Arc<Segment>,
    key: ObjectKey,
    place: ObjectPlace,
}

impl Object {
    pub(crate) fn new(segment: Arc<Segment>, key: ObjectKey, place: ObjectPlace) -> Object {
        Object { segment, key, place }
    }

    /// Returns the length of the object in bytes. O(1), without a system call.
    #[expect(clippy::len_without_is_empty, reason = "a length of bytes, as of a file; nothing is a collection here")]
    pub fn len(&self) -> u64 {
        u64::from(self.place.length())
    }

    /// Reads bytes from `offset` of the object on, as many as there are and as `buffer` takes. Returns how many; 0 at the end. The
    /// checksum is not looked at. O(bytes read): one system call.
    ///
    /// Errors: those of pread(2), and `EIO` if the segment's file is cut off.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, SegmentError> {
        let left = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if left > 0 {
            self.read(&mut buffer[..left], HEADER_BYTES as u64 + offset)?;
        }
        Ok(left)
    }

    /// Reads the whole object and compares it with its checksum. O(length): one system call.
    ///
    /// Errors: those of pread(2); `Damaged`, with the object and its place, if the bytes are not those that were put.
    pub fn read_verified(&self) -> Result<Vec<u8>, SegmentError> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the content of `bytes` by the whole object. Errors as of [`Object::read_verified`].
    pub(crate) fn read_into(&self, bytes: &mut Vec<u8>) -> Result<(), SegmentError> {
        bytes.resize(HEADER_BYTES + self.place.length() as usize, 0);
        self.read(bytes, 0)?;
        let id = self.segment.header.id;
        let entry = ObjectEntry::decode(id, self.place.offset(), bytes).map_err(|defect| self.damaged(defect))?;
        if (entry.key, entry.sequence, entry.length) != (self.key, self.place.sequence(), self.place.length()) {
            return Err(self.damaged("another object is in its place"));
        }
        bytes.drain(..HEADER_BYTES);
        if entry.is_of(id, bytes) { Ok(()) } else { Err(self.damaged("its bytes have a wrong checksum")) }
    }

    /// Fills the buffer from `at` bytes behind the begin of the header on.
    fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), SegmentError> {
        let read = self.segment.file.read_at(buffer, self.place.offset() + at);
        let whole = read.and_then(|count| if count == buffer.len() { Ok(()) } else { Err(cut_off()) });
        whole.map_err(failed("read an object of", &self.segment.path))
    }

    fn damaged(&self, reason: &'static str) -> SegmentError {
        let (path, offset) = (self.segment.path.clone(), self.place.offset());
        SegmentError::Damaged(DamagedObject { key: self.key, path, offset, reason })
    }
}

fn cut_off() -> io::Error {
    errno(rustix::io::Errno::IO)
}
