//! Ring left by an earlier agent.

use super::{Damage, Reason, RingGrant, RingItem, RingReader, Slot};
use crate::drained::AppliedProgress;
use crate::layout::{self, NotThisRing, RECORD_BYTES, RecordHeader, RecordState, at};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::sync::Ordering::Acquire;

impl<M: Memory> RingReader<M> {
    /// Makes the reader of a ring that an earlier agent left. Only [`RingReader::take_left`] makes sense next. Errors:
    /// [`NotThisRing`].
    pub fn left_behind(memory: M, grant: RingGrant) -> Result<RingReader<M>, NotThisRing> {
        let ring = Ring::identified(memory, grant.ring, grant.capacity)?;
        Ok(RingReader { ring, grant, cursor: 0, tail: 0, mark: None, known_below: 0, revoked: false, left: true })
    }

    /// Takes every published record of the ring that is not completely `drained`, in no order.
    ///
    /// Neither head nor tail is used, because both may be lost, old or forged. A commit word gives the position of its
    /// record, and `drained` tells which records have been applied.
    pub fn take_left(&mut self, drained: AppliedProgress, found: &mut dyn FnMut(RingItem)) {
        self.revoke();
        let tail = self.ring.word(at::RELEASED).load(Acquire);
        let mut place = 0;
        while place < self.ring.capacity {
            let here = place;
            place += RECORD_BYTES;
            let word = self.ring.commit(here).load(Acquire);
            let position = layout::position_of(self.grant.ring, word);
            let state = self.ring.state(position);
            let placed = position & (self.ring.capacity - 1) == here && position < u64::MAX / 2;
            if !placed || !matches!(state, Some(RecordState::Published | RecordState::Taken)) {
                continue;
            }
            let slot = self.slot(position);
            if matches!(&slot, Slot::Record(header) | Slot::Skip(_, header) if is_drained(header, drained)) {
                continue;
            }
            if state == Some(RecordState::Published)
                && !self.ring.swap_state(position, RecordState::Published, RecordState::Taken)
            {
                continue; // its writer goes to the kernel
            }
            match slot {
                Slot::Record(header) => {
                    found(self.sum(position, &header));
                    place = here + header.footprint(); // may be past the end: it wraps
                }
                Slot::Skip(damage, _) => found(RingItem::Damage(damage)),
                // A commit word of a former lap can outlive its header. Also, one in 65,536 payload words looks like a
                // commit word of some lap. Neither is a loss. But no payload can contain a position of this lap.
                Slot::Broken if position.wrapping_sub(tail) < self.ring.capacity => {
                    found(RingItem::Damage(Damage { position, range: None, reason: Reason::Header }));
                }
                Slot::Broken => {}
            }
        }
        self.cursor = u64::MAX;
        self.known_below = u64::MAX;
    }
}

/// Returns whether a record has been applied. Such a record may look damaged, because later records overwrote part of
/// it.
fn is_drained(header: &RecordHeader, drained: AppliedProgress) -> bool {
    drained.rest(header.sequence, header.range()).is_empty()
}
