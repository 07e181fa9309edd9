//! The search for objects in a segment without a footer.

use crate::layout::{ALIGNMENT, DATA_START, Defect, HEADER_BYTES, OBJECT_MAGIC, ObjectEntry};
use crate::limits::{OBJECT_BYTES_MAX, SCAN_BYTES, SCAN_BYTES_DAMAGED};
use crate::medium::SegmentFile;

const _: () = assert!(SCAN_BYTES as u64 >= OBJECT_BYTES_MAX + HEADER_BYTES as u64);

/// Everything that a scan found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// All whole objects, by their offsets.
    pub(crate) objects: Vec<ObjectEntry>,
    /// Objects with a whole header whose bytes are not those that were put, or not all of them.
    pub(crate) damaged: Vec<(ObjectEntry, Defect)>,
    /// Offset of the end of the last whole object, in bytes.
    pub(crate) end: u64,
    /// Bytes before `end` that belong to no object.
    pub(crate) skipped_bytes: u64,
    /// Bytes behind `end` up to the last that is not zero.
    pub(crate) torn_bytes: u64,
    /// Bytes that the medium refused to read. They count as zeros.
    pub(crate) unreadable_bytes: u64,
}

/// Reads all of a segment and verifies each object. O(file), whatever the bytes are: a length is believed only if its
/// checksum, which nobody can guess, is right.
pub(crate) fn scan(file: &dyn SegmentFile, id: u64, file_bytes: u64) -> Scan {
    let mut window = Window { file, file_bytes, bytes: Vec::new(), start: 0, unreadable: 0 };
    let mut found = Scan { end: DATA_START, ..Scan::default() };
    let mut at = DATA_START;
    let (mut last_byte, mut covered) = (DATA_START, DATA_START);
    while at + HEADER_BYTES as u64 <= file_bytes {
        let header = ObjectEntry::decode(id, at, window.at(at, HEADER_BYTES));
        let Ok(entry) = header.and_then(|entry| fits(&entry, file_bytes)) else {
            at = window.next_header(at, &mut last_byte);
            continue;
        };
        let object = window.at(at, HEADER_BYTES + entry.length as usize);
        at = entry.end();
        last_byte = at;
        if entry.is_of(id, &object[HEADER_BYTES..]) {
            found.skipped_bytes += entry.offset - covered;
            (found.end, covered) = (at, at);
            found.objects.push(entry);
        } else {
            found.damaged.push((entry, "its bytes have a wrong checksum"));
        }
    }
    found.torn_bytes = last_byte.saturating_sub(found.end);
    found.unreadable_bytes = window.unreadable;
    found
}

fn fits(entry: &ObjectEntry, file_bytes: u64) -> Result<ObjectEntry, Defect> {
    let end = entry.offset + HEADER_BYTES as u64 + u64::from(entry.length);
    if end <= file_bytes { Ok(*entry) } else { Err("its bytes are cut off") }
}

/// A part of the file in memory.
struct Window<'a> {
    file: &'a dyn SegmentFile,
    file_bytes: u64,
    bytes: Vec<u8>,
    /// Offset of the first byte.
    start: u64,
    unreadable: u64,
}

impl Window<'_> {
    /// Returns so many bytes from `at` on, at most [`SCAN_BYTES`] and all within the file.
    fn at(&mut self, at: u64, count: usize) -> &[u8] {
        if at < self.start || at + count as u64 > self.start + self.bytes.len() as u64 {
            self.fill(at);
        }
        let from = (at - self.start) as usize;
        &self.bytes[from..from + count]
    }

    fn fill(&mut self, at: u64) {
        let count = (self.file_bytes - at).min(SCAN_BYTES as u64) as usize;
        self.bytes.clear();
        self.bytes.resize(count, 0);
        self.start = at;
        if self.file.read_at(&mut self.bytes, at).is_ok() {
            return;
        }
        self.bytes.fill(0);
        for (number, piece) in self.bytes.chunks_mut(SCAN_BYTES_DAMAGED).enumerate() {
            if self.file.read_at(piece, at + (number * SCAN_BYTES_DAMAGED) as u64).is_err() {
                piece.fill(0);
                self.unreadable += piece.len() as u64;
            }
        }
    }

    /// Returns the next offset behind `at` where a header may begin, or the end of the file. Sets `last_byte` to the end of the
    /// last word on the way that is not zero.
    fn next_header(&mut self, at: u64, last_byte: &mut u64) -> u64 {
        const WORD: usize = ALIGNMENT as usize;
        let mut at = at;
        let mut is_first = true;
        while at + WORD as u64 <= self.file_bytes {
            // Makes sure that one word is there, and then takes all that is.
            self.at(at, WORD);
            let from = (at - self.start) as usize;
            for word in self.bytes[from..].chunks_exact(WORD) {
                if *word != [0; WORD] {
                    if word.starts_with(&OBJECT_MAGIC) && !is_first {
                        return at;
                    }
                    *last_byte = at + WORD as u64;
                }
                is_first = false;
                at += WORD as u64;
            }
        }
        self.file_bytes
    }
}
