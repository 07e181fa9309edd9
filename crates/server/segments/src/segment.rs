//! One segment file, and what is known of its life.

use std::path::PathBuf;
use std::sync::Arc;

use concurrency::{Mutex, RwLock};

use crate::error::{SegmentError, errno, failed};
use crate::layout::SegmentHeader;
use crate::limits::SEGMENTS_MAX;
use crate::medium::SegmentFile;

/// A segment file that is open. Whoever holds it can read it, also after its name is removed.
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    /// Place in the table of segments.
    pub(crate) slot: u32,
    pub(crate) file: Arc<dyn SegmentFile>,
    life: Mutex<Life>,
}

/// Segments with something that may not be on the medium, each once.
pub(crate) type DirtySegments = Mutex<Vec<Arc<Segment>>>;

/// Stage of a segment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Objects are appended.
    Filling,
    /// No more objects are appended. Some may still be written to room that was reserved.
    Full,
    /// The footer is being written.
    Sealing,
    /// The footer is there.
    Sealed,
    /// The file is removed, or is about to be.
    Removed,
}

/// Everything about a segment that changes.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) phase: Phase,
    /// Puts that have reserved room and are not done.
    pub(crate) writers: u32,
    /// Objects that were written whole.
    pub(crate) whole: u64,
    pub(crate) live_objects: u64,
    /// Bytes that the live objects take, with headers and alignment.
    pub(crate) live_bytes: u64,
    /// Live objects that could not be read back when that was tried last.
    pub(crate) damaged: u64,
    /// Live objects that were left when all others had been copied. Copying is tried again when one of them has died.
    pub(crate) left: u64,
    /// Offset of the end of all objects, in bytes. 0 while the segment is filled.
    pub(crate) end: u64,
    pub(crate) file_bytes: u64,
    /// Whether something may not be on the medium. The segment is then in the list of dirty ones.
    pub(crate) dirty: bool,
    /// Whether a sync failed, so that nobody knows what is on the medium. All live objects must be copied from here.
    pub(crate) suspect: bool,
    /// Whether it was found that no footer can be written.
    pub(crate) unsealable: bool,
    /// Number of the sync that must have succeeded before the file is removed: it makes durable what superseded objects here.
    pub(crate) removable_after: u64,
    /// Whether the segment is in the list of those that wait for that sync.
    pub(crate) waiting: bool,
}

/// Answer to who wants to remove a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalClaim {
    /// The caller removes it.
    Claimed,
    /// The caller puts it in the list of those that wait for a sync.
    Wait,
    /// Somebody may need it, or somebody else sees to it.
    No,
}

impl Life {
    pub(crate) fn new(phase: Phase, end: u64, file_bytes: u64, whole: u64) -> Life {
        Life {
            phase,
            writers: 0,
            whole,
            live_objects: 0,
            live_bytes: 0,
            damaged: 0,
            left: 0,
            end,
            file_bytes,
            dirty: false,
            suspect: false,
            unsealable: false,
            removable_after: 0,
            waiting: false,
        }
    }

    /// Whether no object is or will be alive here.
    fn is_dead(&self) -> bool {
        matches!(self.phase, Phase::Full | Phase::Sealed) && self.writers == 0 && self.live_objects == 0
    }

    /// Whether the segment is complete and nobody writes to it.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.phase, Phase::Full | Phase::Sealed) && self.writers == 0
    }
}

impl Segment {
    /// Returns a copy of what is known now.
    pub(crate) fn life(&self) -> Life {
        self.life.lock().clone()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Life) -> T) -> T {
        change(&mut self.life.lock())
    }

    /// Counts an object of `bytes`, header and alignment included, as alive.
    pub(crate) fn add_live(&self, bytes: u64) {
        self.change(|life| {
            life.live_objects += 1;
            life.live_bytes += bytes;
        });
    }

    /// Counts an object of `bytes` as dead. The segment stays until the sync `removable_after` has succeeded. Returns
    /// whether nothing alive is left.
    pub(crate) fn kill(&self, bytes: u64, removable_after: u64) -> bool {
        self.change(|life| {
            life.live_objects -= 1;
            life.live_bytes -= bytes;
            life.removable_after = life.removable_after.max(removable_after);
            life.is_dead()
        })
    }

    /// Ends a write. After a `whole` one the segment is in the list of dirty ones. Returns whether nothing alive is or comes here.
    pub(crate) fn end_write(self: &Arc<Segment>, whole: bool, dirty: &DirtySegments) -> bool {
        self.change(|life| {
            life.writers -= 1;
            life.whole += u64::from(whole);
            if whole && !life.dirty {
                // Under the lock: another writer that finds the mark must find the segment in the list too.
                life.dirty = true;
                dirty.lock().push(self.clone());
            }
            life.is_dead()
        })
    }

    /// Claims the removal of a dead segment, if the sync that it waits for is among those up to `durable`.
    pub(crate) fn claim_removal(&self, durable: u64) -> RemovalClaim {
        self.change(|life| {
            if !life.is_dead() {
                return RemovalClaim::No;
            }
            if life.removable_after > durable {
                return if std::mem::replace(&mut life.waiting, true) { RemovalClaim::No } else { RemovalClaim::Wait };
            }
            life.phase = Phase::Removed;
            RemovalClaim::Claimed
        })
    }
}

/// All segments, by their places.
#[derive(Default)]
pub(crate) struct SegmentTable {
    slots: RwLock<Slots>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Option<Arc<Segment>>>,
    free: Vec<u32>,
}

impl SegmentTable {
    /// Enters a segment. Errors: `EMFILE` if there are too many.
    pub(crate) fn insert(
        &self,
        (name, path): (String, PathBuf),
        header: SegmentHeader,
        file: Arc<dyn SegmentFile>,
        life: Life,
    ) -> Result<Arc<Segment>, SegmentError> {
        let mut slots = self.slots.write();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None if slots.all.len() < SEGMENTS_MAX => {
                slots.all.push(None);
                slots.all.len() as u32 - 1
            }
            None => return Err(failed("keep one more segment than", &path)(errno(rustix::io::Errno::MFILE))),
        };
        let segment = Arc::new(Segment { name, path, header, slot, file, life: Mutex::new(life) });
        slots.all[slot as usize] = Some(segment.clone());
        Ok(segment)
    }

    /// Returns the segment at a place that the index names. The index's entry must be locked, so that the place is in use.
    pub(crate) fn get(&self, slot: u32) -> Arc<Segment> {
        self.slots.read().all[slot as usize].clone().expect("the index names segments that are there")
    }

    pub(crate) fn remove(&self, segment: &Segment) {
        let mut slots = self.slots.write();
        slots.all[segment.slot as usize] = None;
        slots.free.push(segment.slot);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.slots.read().all.iter().flatten().cloned().collect()
    }
}
