//! The store: what its owner calls, except for the steps that have files of their own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::Mutex;

use crate::append::Append;
use crate::error::{SegmentError, failed};
use crate::group::SyncGroup;
use crate::index::{Index, ObjectPlace};
use crate::key::ObjectKey;
use crate::layout::room;
use crate::limits::{LIVE_PERCENT, SEGMENT_BYTES};
use crate::medium::{SegmentDirectory, SystemDirectory};
use crate::object::Object;
use crate::opening::SegmentReport;
use crate::segment::{Phase, RemovalClaim, Segment, SegmentTable};

/// Settings of a store, which may differ from those of an earlier opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSettings {
    /// Size of a new segment file in bytes: from [`SEGMENT_BYTES_MIN`](crate::limits::SEGMENT_BYTES_MIN) to
    /// [`SEGMENT_BYTES_MAX`](crate::limits::SEGMENT_BYTES_MAX). An object that fits no segment is refused.
    pub segment_bytes: u64,
    /// Share of live bytes in percent, 0 to 100, below which a segment is rewritten.
    pub compact_below_percent: u8,
}

impl Default for SegmentSettings {
    fn default() -> SegmentSettings {
        SegmentSettings { segment_bytes: SEGMENT_BYTES, compact_below_percent: LIVE_PERCENT }
    }
}

/// Space and memory that a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentUsage {
    /// Bytes of all segment files, room that is reserved for later objects included.
    pub media_bytes: u64,
    /// Bytes of the live objects in these files, with their headers and alignment.
    pub live_bytes: u64,
    /// Number of segment files. Each keeps one descriptor open.
    pub segments: u64,
    /// Number of live objects.
    pub objects: u64,
    /// Live objects that failed their checksum when they should be copied. Their segments are kept.
    pub damaged_objects: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
}

/// A store of many small immutable objects in few files. Every method may be called from any thread.
///
/// Dropping a store writes nothing: what was put is there at the next opening unless the machine crashes.
pub struct SegmentStore {
    pub(crate) medium: Box<dyn SegmentDirectory>,
    pub(crate) settings: SegmentSettings,
    pub(crate) index: Index,
    pub(crate) segments: SegmentTable,
    pub(crate) append: Mutex<Append>,
    pub(crate) group: SyncGroup,
    /// Held by who seals or compacts.
    pub(crate) housekeeping: Mutex<()>,
    pub(crate) opening: SegmentReport,
    /// Number of the last sync that succeeded.
    pub(crate) durable: AtomicU64,
    /// Dead segments that wait for a sync.
    pub(crate) waiting: Mutex<Vec<Arc<Segment>>>,
}

impl SegmentStore {
    /// Opens the store in a directory, which is made if it is not there. The newest whole object of each key is there again, also
    /// some that were removed: see [`SegmentStore::retain`].
    ///
    /// O(objects) for segments with a footer, which are read without their data. O(bytes) for the others: the one that was
    /// being filled, and those that no [`compact_step`](SegmentStore::compact_step) has sealed.
    ///
    /// Errors: those of the system calls; `EWOULDBLOCK` if another store has the directory open; `EINVAL` for settings out of
    /// bounds; `Format` for a segment of another version. Damage is no error: [`SegmentStore::opening`] tells of it.
    pub fn open(directory: &Path, settings: SegmentSettings) -> Result<SegmentStore, SegmentError> {
        let medium = SystemDirectory::open(directory).map_err(failed("open the directory of segments", directory))?;
        SegmentStore::open_on(Box::new(medium), settings)
    }

    /// Returns what the opening found. O(1).
    pub fn opening(&self) -> &SegmentReport {
        &self.opening
    }

    /// Returns the newest object of a key; `None` if there is none. O(1), without a system call.
    pub fn get(&self, key: &ObjectKey) -> Option<Object> {
        let entry = self.index.lock(key);
        let place = entry.get()?;
        Some(Object::new(self.segments.get(place.slot()), *key, place))
    }

    /// Removes the object of a key at once, but not durably: the next opening may bring it back, in its last or an earlier version.
    /// Returns whether there was one. O(1). A segment that has no more live objects is deleted here, which is one system call.
    pub fn remove(&self, key: &ObjectKey) -> bool {
        let removed = {
            let mut entry = self.index.lock(key);
            entry.remove().map(|place| self.kill(place, 0))
        };
        let existed = removed.is_some();
        removed.flatten().iter().for_each(|dead| self.reap_quietly(dead));
        existed
    }

    /// Removes all objects whose keys `keep` refuses. For an owner that has opened the store and whose own log says what is alive.
    /// `keep` must not call the store. O(objects).
    pub fn retain(&self, keep: impl FnMut(&ObjectKey) -> bool) {
        let mut dead = Vec::new();
        self.index.retain(keep, |place| dead.extend(self.kill(place, 0)));
        dead.iter().for_each(|dead| self.reap_quietly(dead));
    }

    /// Returns what the store takes now. O(segments).
    pub fn usage(&self) -> SegmentUsage {
        let (objects, index_bytes) = self.index.size();
        let mut usage = SegmentUsage { objects, index_bytes, ..SegmentUsage::default() };
        let next = self.append.lock().next;
        for segment in self.segments.all() {
            let life = segment.life();
            let filled = if life.phase == Phase::Filling { next } else { 0 };
            usage.media_bytes += life.file_bytes.max(filled);
            usage.live_bytes += life.live_bytes;
            usage.segments += 1;
            usage.damaged_objects += life.damaged.min(life.live_objects);
        }
        usage
    }

    /// Counts the object at a place that the index has just given up as dead. Returns its segment if nothing alive is left there.
    /// The entry of the index must be locked.
    pub(crate) fn kill(&self, place: ObjectPlace, removable_after: u64) -> Option<Arc<Segment>> {
        let segment = self.segments.get(place.slot());
        segment.kill(room(u64::from(place.length())), removable_after).then_some(segment)
    }

    /// Deletes a segment's file if nothing alive is or will be there. Returns whether it did.
    pub(crate) fn reap(&self, segment: &Arc<Segment>) -> Result<bool, SegmentError> {
        match segment.claim_removal(self.durable.load(Ordering::Acquire)) {
            RemovalClaim::No => return Ok(false),
            RemovalClaim::Wait => {
                self.waiting.lock().push(segment.clone());
                return Ok(false);
            }
            RemovalClaim::Claimed => {}
        }
        match self.medium.remove(&segment.name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // A later step tries again.
                segment.change(|life| life.phase = Phase::Full);
                return Err(failed("delete the segment", &segment.path)(error));
            }
            _ => {}
        }
        self.segments.remove(segment);
        // Its blocks become free when its last user is gone.
        self.group.dirty.lock().retain(|dirty| !Arc::ptr_eq(dirty, segment));
        Ok(true)
    }

    /// Deletes a dead segment. One that cannot be deleted now is tried again by a compaction step, which tells the error.
    pub(crate) fn reap_quietly(&self, segment: &Arc<Segment>) {
        let _ = self.reap(segment);
    }
}
