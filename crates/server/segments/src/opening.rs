//! The recovery of a store from its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use concurrency::Mutex;
use rustix::io::Errno;

use crate::append::Append;
use crate::error::{DamagedObject, SegmentError, errno, failed};
use crate::footer;
use crate::group::SyncGroup;
use crate::index::{Index, ObjectPlace, Offered};
use crate::layout::{DATA_START, FORMAT, HEADER_BYTES, Headed, ObjectEntry, SegmentHeader, room};
use crate::limits::{DAMAGED_NAMED_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::medium::{SegmentDirectory, SegmentFile};
use crate::scan::{Scan, scan};
use crate::segment::{Life, Phase, Segment, SegmentTable};
use crate::store::{SegmentSettings, SegmentStore};

const SUFFIX: &str = ".segment";
/// Appended to the name of a segment that cannot be used.
const ASIDE: &str = ".unreadable";

/// Findings of an opening. Whatever is counted here as damaged or skipped was read and is not in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentReport {
    /// Segments that were read by their footers.
    pub by_footer: u64,
    /// Segments that were read as a whole, because they had no valid footer.
    pub scanned: u64,
    /// Objects whose header is whole and whose bytes are not those that were put: damaged, or never acknowledged.
    pub damaged_objects: u64,
    /// The first of these, at most [`DAMAGED_NAMED_MAX`](crate::limits::DAMAGED_NAMED_MAX).
    pub damaged: Vec<DamagedObject>,
    /// Bytes between whole objects that belong to none: unfinished writes, or damaged objects.
    pub skipped_bytes: u64,
    /// Bytes behind the last whole object of a segment, up to the last that is not zero: unfinished writes, or damaged objects.
    pub torn_bytes: u64,
    /// Bytes that the medium refused to read.
    pub unreadable_bytes: u64,
    /// Files of segments whose header is damaged and that have no footer. A file with readable bytes is renamed, to be looked at by
    /// a person.
    pub unreadable: Vec<PathBuf>,
}

impl SegmentStore {
    pub(crate) fn open_on(
        medium: Box<dyn SegmentDirectory>,
        settings: SegmentSettings,
    ) -> Result<SegmentStore, SegmentError> {
        let wrong = !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&settings.segment_bytes)
            || settings.compact_below_percent > 100;
        if wrong {
            return Err(failed("use these settings for the segments of", medium.path())(errno(Errno::INVAL)));
        }
        let mut opening = Opening::new(&*medium)?;
        for (number, name) in opening.listed()? {
            opening.next_number = opening.next_number.max(number + 1);
            opening.read(name)?;
        }
        // Objects that were damaged may have had sequence numbers behind the last: one segment full of them at most.
        let next_sequence = opening.last_sequence + 1 + settings.segment_bytes / HEADER_BYTES as u64;
        let Opening { index, segments, report, next_number, newest, .. } = opening;
        let group = SyncGroup::new();
        // Nobody knows whether what was read is on the medium, unless there is a footer. Until the first sync no segment is deleted:
        // what superseded its objects may not be there either.
        let dirty: Vec<_> = segments.all().into_iter().filter(|segment| segment.life().phase == Phase::Full).collect();
        if !dirty.is_empty() {
            segments.all().iter().for_each(|segment| segment.change(|life| life.removable_after = 1));
        }
        dirty.iter().for_each(|segment| segment.change(|life| life.dirty = true));
        *group.dirty.lock() = dirty;
        let append =
            Append { segment: None, resumable: newest, next: DATA_START, objects: 0, next_number, next_sequence };
        let (durable, waiting, housekeeping) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let (append, opening) = (Mutex::new(append), report);
        Ok(SegmentStore { medium, settings, index, segments, append, group, housekeeping, opening, durable, waiting })
    }
}

/// The state of an opening.
struct Opening<'a> {
    medium: &'a dyn SegmentDirectory,
    index: Index,
    segments: SegmentTable,
    report: SegmentReport,
    next_number: u64,
    last_sequence: u64,
    /// The usable segment with the highest number.
    newest: Option<Arc<Segment>>,
}

impl Opening<'_> {
    fn new(medium: &dyn SegmentDirectory) -> Result<Opening<'_>, SegmentError> {
        let index = Index::new().map_err(failed("make an index of", medium.path()))?;
        let (segments, report) = (SegmentTable::default(), SegmentReport::default());
        Ok(Opening { medium, index, segments, report, next_number: 0, last_sequence: 0, newest: None })
    }

    /// Returns number and name of each segment's file, by their numbers.
    fn listed(&self) -> Result<Vec<(u64, String)>, SegmentError> {
        let names = self.medium.names().map_err(failed("list the segments in", self.medium.path()))?;
        let number = |name: &str| {
            let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)?;
            u64::from_str_radix(digits, 16).ok().filter(|number| *number < u64::MAX)
        };
        let mut found: Vec<_> = names.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
        found.sort();
        Ok(found)
    }

    fn read(&mut self, name: String) -> Result<(), SegmentError> {
        let path = self.medium.path().join(&name);
        let file = self.medium.open(&name).map_err(failed("open the segment", &path))?;
        let file_bytes = file.len().map_err(failed("look at the segment", &path))?;
        let mut start = vec![0; DATA_START as usize];
        let read = file.read_at(&mut start, 0);
        let found = footer::read(&*file, file_bytes);
        let header = match SegmentHeader::decode(&start) {
            Headed::Header(header) => header,
            Headed::OtherFormat(found) => return Err(SegmentError::Format { path, found, known: FORMAT }),
            Headed::Damaged => match &found {
                Some(footer) => footer.segment,
                None => {
                    self.set_aside(&name, &*file, file_bytes, read.is_ok());
                    return Ok(());
                }
            },
        };
        self.last_sequence = self.last_sequence.max(header.first_sequence.saturating_sub(1));
        let (phase, end, objects, damaged) = match found.filter(|footer| footer.segment.id == header.id) {
            Some(footer) => {
                self.report.by_footer += 1;
                (Phase::Sealed, footer.end, footer.entries, false)
            }
            None => {
                let found = scan(&*file, header.id, file_bytes.min(SEGMENT_BYTES_MAX));
                let damaged = self.tell(&path, &found);
                (Phase::Full, found.end, found.objects, damaged)
            }
        };
        let life = Life { unsealable: damaged, ..Life::new(phase, end, file_bytes, objects.len() as u64) };
        let segment = self.segments.insert((name, path), header, file, life)?;
        objects.iter().for_each(|entry| self.offer(segment.slot, entry));
        self.newest = Some(segment);
        Ok(())
    }

    /// Enters an object in the index if it is the newest of its key up to now.
    fn offer(&mut self, slot: u32, entry: &ObjectEntry) {
        self.last_sequence = self.last_sequence.max(entry.sequence);
        let place = ObjectPlace::new(entry.sequence, slot, entry.offset, entry.length);
        let Offered::Newest(former) = self.index.lock(&entry.key).offer(place) else { return };
        self.segments.get(slot).add_live(room(u64::from(entry.length)));
        if let Some(former) = former {
            self.segments.get(former.slot()).kill(room(u64::from(former.length())), 0);
        }
    }

    /// Adds what a scan found to the report. Returns whether something was damaged.
    fn tell(&mut self, path: &Path, found: &Scan) -> bool {
        let report = &mut self.report;
        report.scanned += 1;
        report.damaged_objects += found.damaged.len() as u64;
        report.skipped_bytes += found.skipped_bytes;
        report.torn_bytes += found.torn_bytes;
        report.unreadable_bytes += found.unreadable_bytes;
        let named = DAMAGED_NAMED_MAX.saturating_sub(report.damaged.len());
        report.damaged.extend(found.damaged.iter().take(named).map(|(entry, reason)| {
            let (key, offset) = (entry.key, entry.offset);
            DamagedObject { key, path: path.to_owned(), offset, reason }
        }));
        !found.damaged.is_empty() || found.unreadable_bytes > 0
    }

    /// Deletes a file in which nothing was written, and renames another that cannot be used. One that the medium refuses to read
    /// stays as it is. Later segments have other names.
    fn set_aside(&mut self, name: &str, file: &dyn SegmentFile, file_bytes: u64, readable: bool) {
        let found = scan(file, 0, file_bytes.min(SEGMENT_BYTES_MAX));
        let readable = readable && found.unreadable_bytes == 0;
        let mut start = vec![0; DATA_START as usize];
        let is_empty = readable
            && found.torn_bytes == 0
            && file.read_at(&mut start, 0).is_ok()
            && start.iter().all(|byte| *byte == 0);
        if is_empty {
            // A crash came before the header was written, or lost it with all else.
            let _ = self.medium.remove(name);
            return;
        }
        let aside = format!("{name}{ASIDE}");
        let renamed = readable && self.medium.rename(name, &aside).is_ok();
        self.report.unreadable.push(self.medium.path().join(if renamed { &aside } else { name }));
    }
}
