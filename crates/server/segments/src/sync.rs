//! Making puts durable.
//!
//! A file whose sync failed once is never synced again: the kernel then takes pages for clean that are not on the medium, and a
//! second sync would succeed and mean nothing. Such a segment is *suspect*. Its live objects are copied to another segment,
//! verified as ever, and until that has succeeded no sync does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::append::Dead;
use crate::error::{SegmentError, failed};
use crate::fault;
use crate::segment::{Phase, Segment};
use crate::store::SegmentStore;

impl SegmentStore {
    /// Makes all puts that have returned before the call survive a crash of the machine. Callers that come while a sync runs
    /// share the next one. O(dirty segments) system calls.
    ///
    /// Errors: those of fdatasync(2) and fsync(2). The next call then copies the live objects of the file that failed, and its
    /// success means what it always means. It fails with `Damaged` while such a file has a live object that cannot be read back.
    pub fn sync(&self) -> Result<(), SegmentError> {
        self.group.share(|number| {
            self.sync_once()?;
            self.durable.fetch_max(number, Ordering::AcqRel);
            Ok(())
        })?;
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for segment in waiting {
            segment.change(|life| life.waiting = false);
            self.reap_quietly(&segment);
        }
        Ok(())
    }

    fn sync_once(&self) -> Result<(), SegmentError> {
        let mut outcome = Ok(());
        let mut segments = self.take_dirty();
        for suspect in segments.iter().filter(|segment| segment.life().suspect) {
            // The others are synced all the same.
            outcome = outcome.and(self.evacuate(suspect));
        }
        // The copies' segments.
        segments.append(&mut self.take_dirty());
        for segment in segments {
            // The list is taken and the mark removed before the sync, so that a put meanwhile makes the segment dirty again.
            let life = segment.change(|life| {
                life.dirty = false;
                life.clone()
            });
            if life.suspect && life.phase != Phase::Removed && !(life.is_quiet() && life.live_objects == 0) {
                // Puts that had room reserved may have ended meanwhile, or may yet.
                self.note_dirty(&segment);
            }
            if life.suspect {
                self.reap_quietly(&segment);
            }
            if life.suspect || life.phase == Phase::Removed {
                continue;
            }
            if let Err(error) = segment.file.sync() {
                self.suspect(&segment);
                outcome = Err(failed("sync the segment", &segment.path)(error));
            }
            fault::point("sync.segment");
        }
        if self.group.take_names()
            && let Err(error) = self.medium.sync()
        {
            self.group.name_is_new();
            outcome = Err(failed("sync the directory", self.medium.path())(error));
        }
        fault::point("sync.directory");
        outcome
    }

    fn take_dirty(&self) -> Vec<Arc<Segment>> {
        std::mem::take(&mut *self.group.dirty.lock())
    }

    fn note_dirty(&self, segment: &Arc<Segment>) {
        segment.change(|life| {
            life.dirty = true;
            let mut dirty = self.group.dirty.lock();
            if !dirty.iter().any(|listed| Arc::ptr_eq(listed, segment)) {
                dirty.push(segment.clone());
            }
        });
    }

    /// Notes that nobody knows what the medium has of a segment. No more objects go there.
    fn suspect(&self, segment: &Arc<Segment>) {
        segment.change(|life| life.suspect = true);
        let mut append = self.append.lock();
        if append.segment.as_ref().is_some_and(|filled| Arc::ptr_eq(filled, segment)) {
            append.retire();
        }
        drop(append);
        self.note_dirty(segment);
    }

    /// Copies all live objects of a suspect segment to another one.
    fn evacuate(&self, segment: &Arc<Segment>) -> Result<(), SegmentError> {
        let mut dead = Dead::new();
        let outcome = self.relocate(segment, &mut dead);
        dead.iter().for_each(|dead| self.reap_quietly(dead));
        match outcome?.damaged.into_iter().next() {
            Some(object) => Err(SegmentError::Damaged(object)),
            None => Ok(()),
        }
    }
}
