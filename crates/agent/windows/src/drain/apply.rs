//! Applying all records that were acknowledged before a request.

use std::io;

use concurrency::Instant;
use types::ByteRange;
use window::plan::RingSlot;

use super::{Drain, Ring};
use crate::fault;
use crate::limits;

impl Drain {
    /// Applies everything that was acknowledged before this call. A writer in the middle of an append may stand before
    /// acknowledged records of others; it is waited for, and then its ring ends. Errors: those of writing the replica.
    pub fn apply(&mut self) -> io::Result<()> {
        self.apply_within(ByteRange::new(0, u64::MAX))
    }

    /// Applies everything acknowledged before this call in `range`, and perhaps more.
    pub fn apply_within(&mut self, range: ByteRange) -> io::Result<()> {
        let goals: Vec<_> = self.rings.iter().map(|(slot, ring)| (*slot, ring.reader.head())).collect();
        let capacity: u64 = self.rings.values().map(|ring| ring.reader.grant().capacity).sum();
        let (mut patience, mut rushed) = (Instant::now() + limits::WINDOW_HOLE_WAIT, false);
        // Bounds the work for a program that never stops writing: twice the capacity of its rings. Each turn counts for
        // a minimum.
        let (mut left, turn) = (2 * capacity, capacity / limits::WINDOW_SETTLE_TURNS);
        let mut last = None;
        loop {
            let (began, before) = (Instant::now(), self.looked_at());
            let took = self.take();
            if last.is_none() && self.late(&goals).next().is_none() {
                // Later records are not waited for; they may never end.
                let newest = self.queue.last_waiting();
                // Nor are records outside `range`, unless a truncation must be repeated at a replay.
                if self.takes_rings() && !self.queue.touches(newest, range) {
                    break;
                }
                last = Some(newest);
            }
            // Perhaps all records are superseded.
            while last.is_some() || !took {
                let batch = self.queue.batch_to(last.unwrap_or(u64::MAX));
                if !self.bring(batch)? {
                    break;
                }
            }
            // Time spent on applying is not the writer's delay.
            patience += began.elapsed();
            let advanced = self.looked_at().saturating_sub(before);
            left = left.saturating_sub(if advanced > 0 { advanced.max(turn) } else { 0 });
            if last.is_some_and(|last| self.queue.is_drained_to(last)) {
                break;
            }
            if left > 0 && Instant::now() < patience {
                concurrency::yield_now();
                continue;
            }
            let late: Vec<_> = self.late(&goals).collect();
            match (late.is_empty(), rushed) {
                (false, _) => late.into_iter().for_each(|slot| self.end_ring(slot, false)),
                // A sequence number is in no ring, so some ring is inconsistent.
                (true, false) => {
                    self.end(None);
                    rushed = true;
                }
                (true, true) => return Err(io::Error::other("the rings of a file do not drain")),
            }
            patience = Instant::now() + limits::WINDOW_HOLE_WAIT;
        }
        fault::point("window.drained");
        self.sweep();
        Ok(())
    }

    /// Ends rings in which a writer has long been in the middle of an append, before records of others. A signal
    /// handler may have left the append for good, or may itself wait for room.
    pub fn end_unfinished(&mut self) {
        let still = |ring: &Ring| ring.moved.elapsed() > limits::WINDOW_STUCK_WAIT;
        let rings = self.rings.iter().filter(|(_, ring)| still(ring));
        let heads: Vec<_> = rings.map(|(slot, ring)| (*slot, ring.reader.head())).collect();
        let late: Vec<_> = self.late(&heads).collect();
        late.into_iter().for_each(|slot| self.end_ring(slot, false));
    }

    /// Returns the rings of which records reserved before the positions `goals` are not all taken.
    fn late<'a>(&'a self, goals: &'a [(RingSlot, u64)]) -> impl Iterator<Item = RingSlot> + 'a {
        let write_back = |(slot, goal): &&(RingSlot, u64)| {
            self.rings.get(slot).is_some_and(|ring| !ring.ended && ring.reader.is_behind(*goal))
        };
        goals.iter().filter(write_back).map(|(slot, _)| *slot)
    }

    /// Returns the number of bytes examined in rings that have not ended.
    fn looked_at(&self) -> u64 {
        self.rings.values().filter(|ring| !ring.ended).map(|ring| ring.reader.cursor()).sum()
    }
}
