//! The index at the end of a sealed segment, in its file.

use std::io;

use crate::fault;
use crate::layout::{ObjectEntry, SegmentHeader, TRAILER_BYTES, Trailer, encode_footer};
use crate::limits::SEGMENT_BYTES_MAX;
use crate::medium::SegmentFile;

/// A footer whose checksum is right.
pub(crate) struct Footer {
    pub(crate) segment: SegmentHeader,
    /// All objects of the segment, by their offsets.
    pub(crate) entries: Vec<ObjectEntry>,
    /// Offset of the end of all objects, in bytes.
    pub(crate) end: u64,
}

/// Reads the footer of a file of `file_bytes`. `None` if there is none, or if it is damaged. O(entries).
pub(crate) fn read(file: &dyn SegmentFile, file_bytes: u64) -> Option<Footer> {
    (file_bytes <= SEGMENT_BYTES_MAX).then_some(())?;
    let mut trailer = [0; TRAILER_BYTES];
    let at = file_bytes.checked_sub(TRAILER_BYTES as u64)?;
    (file.read_at(&mut trailer, at).ok()? == TRAILER_BYTES).then_some(())?;
    let trailer = Trailer::decode(&trailer, file_bytes).ok()?;
    let mut bytes = vec![0; (file_bytes - trailer.end) as usize];
    (file.read_at(&mut bytes, trailer.end).ok()? == bytes.len()).then_some(())?;
    let entries = trailer.entries(&bytes).ok()?;
    Some(Footer { segment: trailer.segment, entries, end: trailer.end })
}

/// Writes a footer behind the objects and ends the file there. Returns the file's length. The objects must be durable, because
/// nobody verifies them again when the footer is found. After an error there is no footer.
pub(crate) fn write(
    file: &dyn SegmentFile,
    segment: &SegmentHeader,
    end: u64,
    entries: &[ObjectEntry],
) -> io::Result<u64> {
    let bytes = encode_footer(segment, end, entries);
    let file_bytes = end + bytes.len() as u64;
    file.truncate(file_bytes)?;
    fault::point("seal.cut");
    let (first, second) = bytes.split_at(bytes.len() / 2);
    file.write_at(first, &[], end)?;
    fault::point("seal.half");
    file.write_at(second, &[], end + first.len() as u64)?;
    fault::point("seal.written");
    Ok(file_bytes)
}
