//! Sealing full segments, and rewriting those with few live objects.
//!
//! A rewritten object keeps its sequence number. So it does not matter which of its copies an opening finds, and a copy never
//! hides a newer object of its key. A segment is deleted only after a sync that began when its last object had been copied or
//! superseded. So whatever a crash loses, one of the two is there.
//!
//! No room is kept for rewriting. A step that finds none copies what fits in the segment that is filled, fails with `ENOSPC`,
//! and loses nothing. Room then comes from removals that leave a segment without live objects, or from other parts of the
//! burst buffer.

use std::sync::Arc;

use crate::append::Dead;
use crate::error::{DamagedObject, SegmentError, failed};
use crate::fault;
use crate::footer;
use crate::index::ObjectPlace;
use crate::layout::{DATA_START, ObjectEntry};
use crate::limits::DAMAGED_NAMED_MAX;
use crate::object::Object;
use crate::scan::scan;
use crate::segment::{Life, Phase, Segment};
use crate::store::SegmentStore;

/// Outcome of a step of the compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionStep {
    /// Nothing is to be done until something is put or removed.
    Nothing,
    /// A full segment has got a footer.
    Sealed {
        /// Objects that are listed in the footer.
        objects: u64,
    },
    /// A full segment has got no footer: not all of its objects could be read back. It is scanned at each opening.
    NotSealed {
        /// Live objects that could not be read back, at most [`DAMAGED_NAMED_MAX`](crate::limits::DAMAGED_NAMED_MAX). None if only dead
        /// ones are damaged.
        damaged: Vec<DamagedObject>,
    },
    /// The live objects of a segment were copied, and the segment was deleted.
    Rewritten {
        /// Objects that were copied.
        objects: u64,
        /// Bytes that were copied, with headers and alignment.
        bytes: u64,
        /// Bytes of the file that was deleted; 0 if it is still needed.
        freed_bytes: u64,
        /// Objects that failed their checksum and stay where they are. At most
        /// [`DAMAGED_NAMED_MAX`](crate::limits::DAMAGED_NAMED_MAX).
        damaged: Vec<DamagedObject>,
    },
}

/// Objects of a segment that were copied, and those that were not.
#[derive(Default)]
pub(crate) struct Relocated {
    objects: u64,
    bytes: u64,
    pub(crate) damaged: Vec<DamagedObject>,
}

impl SegmentStore {
    /// Does one step of the work behind puts and removals: rewrites the segment with the least live share if that
    /// is below the bound of the settings, or else gives a full segment its footer. To be called again until it returns `Nothing`.
    ///
    /// O(segments), and O(bytes) of one segment. Other calls go on meanwhile. Syncs as [`sync`](SegmentStore::sync) does.
    ///
    /// Errors: those of [`put`](SegmentStore::put) and `sync`. Nothing is lost then; a later step goes on. An object that fails its
    /// checksum is no error: it is reported once, and its segment is kept.
    pub fn compact_step(&self) -> Result<CompactionStep, SegmentError> {
        let _alone = self.housekeeping.lock();
        let segments: Vec<_> = self.segments.all().into_iter().map(|segment| (segment.life(), segment)).collect();
        let share = |life: &Life| life.live_bytes * 100 / (life.end - DATA_START).max(1);
        let few = |life: &Life| share(life) < u64::from(self.settings.compact_below_percent) || life.live_objects == 0;
        let worth = |life: &Life| is_rewritable(life) && few(life);
        let least = segments.iter().filter(|(life, _)| worth(life)).min_by_key(|(life, _)| share(life));
        if let Some((life, segment)) = least {
            return self.rewrite(life, segment);
        }
        let full = segments.iter().find(|(life, _)| life.phase == Phase::Full && is_sealable(life));
        let Some((_, segment)) = full else { return Ok(CompactionStep::Nothing) };
        self.sync()?;
        Ok(self.seal(segment)?.unwrap_or(CompactionStep::Nothing))
    }

    /// Ends the filling of the newest segment, syncs, and gives all segments their footers, so that the next opening reads no data.
    /// The store can be used further. O(bytes) of the segments without a footer.
    ///
    /// Errors: those of [`sync`](SegmentStore::sync), and of writing a footer. The next opening then reads more, and finds everything.
    pub fn close(&self) -> Result<(), SegmentError> {
        let _alone = self.housekeeping.lock();
        let retired = {
            let mut append = self.append.lock();
            let retired = append.segment.clone();
            let dead = append.retire();
            append.resumable = retired.filter(|_| dead.is_none());
            dead
        };
        retired.iter().for_each(|dead| self.reap_quietly(dead));
        self.sync()?;
        self.segments.all().iter().try_for_each(|segment| self.seal(segment).map(drop))
    }

    /// Gives a segment its footer. `None` if that cannot be done now, or need not.
    fn seal(&self, segment: &Arc<Segment>) -> Result<Option<CompactionStep>, SegmentError> {
        let claimed = segment.change(|life| {
            let claimed = life.phase == Phase::Full && is_sealable(life) && !life.dirty;
            if claimed {
                life.phase = Phase::Sealing;
            }
            claimed.then(|| life.clone())
        });
        let Some(life) = claimed else { return Ok(None) };
        let found = scan(&*segment.file, segment.header.id, life.end);
        let outcome = if (found.objects.len() as u64) < life.whole {
            Ok(None)
        } else {
            footer::write(&*segment.file, &segment.header, found.end, &found.objects)
                .map(|file_bytes| Some((found.end, file_bytes)))
        };
        segment.change(|life| match outcome {
            Ok(Some((end, file_bytes))) => {
                (life.phase, life.end, life.file_bytes) = (Phase::Sealed, end, file_bytes);
            }
            _ => (life.phase, life.unsealable) = (Phase::Full, true),
        });
        self.reap_quietly(segment);
        let step = match outcome.map_err(failed("write the footer of", &segment.path))? {
            Some(_) => CompactionStep::Sealed { objects: found.objects.len() as u64 },
            None => CompactionStep::NotSealed { damaged: self.find_damage(segment) },
        };
        Ok(Some(step))
    }

    fn rewrite(&self, life: &Life, segment: &Arc<Segment>) -> Result<CompactionStep, SegmentError> {
        let mut dead = Dead::new();
        let outcome = self.relocate(segment, &mut dead);
        dead.iter().for_each(|dead| self.reap_quietly(dead));
        let relocated = outcome?;
        fault::point("compact.moved");
        self.sync()?;
        fault::point("compact.synced");
        // Usually the sync has deleted it.
        let removed = self.reap(segment)? || segment.life().phase == Phase::Removed;
        fault::point("compact.removed");
        let Relocated { objects, bytes, damaged } = relocated;
        Ok(CompactionStep::Rewritten {
            objects,
            bytes,
            freed_bytes: if removed { life.file_bytes } else { 0 },
            damaged,
        })
    }

    /// Copies the live objects of a segment to the one that is filled. Those that fail their checksum stay and are reported. After an
    /// error some are copied.
    pub(crate) fn relocate(&self, segment: &Arc<Segment>, dead: &mut Dead) -> Result<Relocated, SegmentError> {
        let mut relocated = Relocated::default();
        let mut bytes = Vec::new();
        let entries = if segment.life().live_objects > 0 { entries(segment) } else { Vec::new() };
        for entry in entries {
            let place = ObjectPlace::new(entry.sequence, segment.slot, entry.offset, entry.length);
            if self.index.lock(&entry.key).get() != Some(place) {
                continue;
            }
            if Object::new(segment.clone(), entry.key, place).read_into(&mut bytes).is_err() {
                continue;
            }
            let copy = self.append_object(&entry.key, &bytes, Some(entry.sequence), dead)?;
            fault::point("compact.copied");
            if self.exchange(&mut self.index.lock(&entry.key), place, copy, dead) {
                relocated.objects += 1;
                relocated.bytes += entry.end() - entry.offset;
            }
        }
        if segment.life().live_objects > 0 {
            relocated.damaged = self.find_damage(segment);
            segment.change(|life| life.left = life.live_objects);
        }
        Ok(relocated)
    }

    /// Reads all live objects of a segment and returns those that cannot be read back. O(objects of the store).
    fn find_damage(&self, segment: &Arc<Segment>) -> Vec<DamagedObject> {
        let (mut count, mut named) = (0, Vec::new());
        let mut bytes = Vec::new();
        for (key, place) in self.index.places_in(segment.slot) {
            let Err(error) = Object::new(segment.clone(), key, place).read_into(&mut bytes) else { continue };
            count += 1;
            let unreadable = || {
                let (path, offset) = (segment.path.clone(), place.offset());
                DamagedObject { key, path, offset, reason: "it cannot be read" }
            };
            if named.len() < DAMAGED_NAMED_MAX {
                named.push(if let SegmentError::Damaged(object) = error { object } else { unreadable() });
            }
        }
        segment.change(|life| life.damaged = count);
        named
    }
}

/// Whether a footer can be written once everything is on the medium.
fn is_sealable(life: &Life) -> bool {
    life.is_quiet() && !life.suspect && !life.unsealable
}

/// Whether copying may empty the segment. A suspect one is emptied by the next sync.
fn is_rewritable(life: &Life) -> bool {
    life.is_quiet() && !life.suspect && (life.live_objects == 0 || life.live_objects != life.left)
}

/// Returns all whole objects of a segment, from its footer or by a scan.
fn entries(segment: &Segment) -> Vec<ObjectEntry> {
    let life = segment.life();
    let footer = (life.phase == Phase::Sealed).then(|| footer::read(&*segment.file, life.file_bytes)).flatten();
    match footer {
        Some(footer) => footer.entries,
        None => scan(&*segment.file, segment.header.id, life.file_bytes).objects,
    }
}
