//! What was acknowledged before somebody asked is brought to the burst buffer.

use std::io;

use concurrency::Instant;
use types::ByteRange;
use window::plan::RingSlot;

use super::super::fault;
use super::{Drain, Ring};
use crate::limits;

impl Drain {
    /// Everything that was acknowledged before this call is in the burst buffer when it returns. A writer in the midst of an
    /// append may stand before acknowledged records of others: it is waited for, then its ring ends. Errors are those of
    /// writing the replica.
    pub fn apply(&mut self) -> io::Result<()> {
        self.apply_within(ByteRange::new(0, u64::MAX))
    }

    /// The same of what was acknowledged of `range`; of the rest it may be.
    pub fn apply_within(&mut self, range: ByteRange) -> io::Result<()> {
        let goals: Vec<_> = self.rings.iter().map(|(slot, ring)| (*slot, ring.reader.head())).collect();
        let capacity: u64 = self.rings.values().map(|ring| ring.reader.grant().capacity).sum();
        let (mut patience, mut rushed) = (Instant::now() + limits::WINDOW_HOLE_WAIT, false);
        // Of a program that never ends what it writes: twice what its rings hold, of which each turn counts for something.
        let (mut left, turn) = (2 * capacity, capacity / limits::WINDOW_SETTLE_TURNS);
        let mut last = None;
        loop {
            let (began, before) = (Instant::now(), self.looked_at());
            let took = self.take();
            if last.is_none() && self.late(&goals).next().is_none() {
                // What comes after, and may for ever, need not be waited for.
                let newest = self.queue.last_waiting();
                // Nor what lies elsewhere, but where a truncation is to be made again when it is replayed.
                if self.takes_rings() && !self.queue.touches(newest, range) {
                    break;
                }
                last = Some(newest);
            }
            // Perhaps nothing need be brought there.
            while last.is_some() || !took {
                let batch = self.queue.batch_to(last.unwrap_or(u64::MAX));
                if !self.bring(batch)? {
                    break;
                }
            }
            // What the drain takes is not the writer's delay.
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
                // A number that no ring has: some ring lies.
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

    /// Ends the rings in which a writer has stood for long in the midst of an append, before records of others: a handler of signals may have
    /// left it for good, or wait for room itself.
    pub fn end_unfinished(&mut self) {
        let still = |ring: &Ring| ring.moved.elapsed() > limits::WINDOW_STUCK_WAIT;
        let rings = self.rings.iter().filter(|(_, ring)| still(ring));
        let heads: Vec<_> = rings.map(|(slot, ring)| (*slot, ring.reader.head())).collect();
        let late: Vec<_> = self.late(&heads).collect();
        late.into_iter().for_each(|slot| self.end_ring(slot, false));
    }

    /// The rings of which not all is taken that had been reserved when they were at `goals`.
    fn late<'a>(&'a self, goals: &'a [(RingSlot, u64)]) -> impl Iterator<Item = RingSlot> + 'a {
        let write_back = |(slot, goal): &&(RingSlot, u64)| {
            self.rings.get(slot).is_some_and(|ring| !ring.ended && ring.reader.is_behind(*goal))
        };
        goals.iter().filter(write_back).map(|(slot, _)| *slot)
    }

    /// Bytes of rings that were looked at, of those that have not ended.
    fn looked_at(&self) -> u64 {
        self.rings.values().filter(|ring| !ring.ended).map(|ring| ring.reader.cursor()).sum()
    }
}
