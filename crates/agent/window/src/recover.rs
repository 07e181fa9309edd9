//! Recovery: brings the records that a dead agent left in the rings of one file to the burst buffer.
//!
//! Programs may live on, so each ring is revoked before it is read: a write that recovery does not take was not
//! acknowledged. All complete records that are not marked as applied are replayed, in the order of the file. An
//! incomplete record was never acknowledged and is dropped. Bytes on which a newer epoch was granted meanwhile are not
//! changed. A published record that cannot be replayed is reported by byte range.

use std::io;

use types::{ByteRange, Epoch, RangeSet};

use crate::drained::{AppliedProgress, Drained};
use crate::layout::RingId;
use crate::memory::Memory;
use crate::plan::{ApplyQueue, RingSlot, Write};
use crate::ring::{Reason, RingItem, RingReader, Taken};

/// Bytes that other writers may have changed since. Records of an older epoch are not replayed over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Protected bytes of the file.
    pub range: ByteRange,
    /// Newest epoch granted on these bytes.
    pub epoch: Epoch,
}

/// Limits of a replay: later changes of the file that old records must not overwrite.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// Bytes that other writers may have changed.
    pub fences: &'a [Fence],
    /// Size in bytes to which the file was truncated after all writes in the rings. Bytes behind it are dropped and do
    /// not count as lost. `u64::MAX`: not truncated.
    pub cut: u64,
}

impl Bounds<'_> {
    /// No limits.
    pub const NONE: Bounds<'static> = Bounds { fences: &[], cut: u64::MAX };
}

/// Target of recovery: the file's replica.
pub trait Replay {
    /// Writes all of `bytes` at `offset`. The programs wrote these bytes until `written_ns` by their clocks (ns since
    /// 1970). May be called again with the same bytes after a crash.
    fn write(&mut self, offset: u64, bytes: &[u8], written_ns: u64) -> io::Result<()>;

    /// Makes the written bytes as durable as the rings.
    fn sync(&mut self) -> io::Result<()>;

    /// Reports replayed and lost bytes, before they are marked. After a crash the report comes again; it is never
    /// omitted.
    fn tell(&mut self, _report: &RecoveryReport) {}
}

/// Reason why bytes could not be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The record is damaged or not allowed.
    Damaged(Reason),
    /// A newer epoch was granted on the bytes.
    NewerEpoch,
}

/// Loss of a write that was acknowledged, as far as one can tell, and is not in the burst buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Ring that held the record.
    pub ring: RingId,
    /// Lost bytes of the file; `None` if not even the record's header is readable.
    pub range: Option<ByteRange>,
    /// Reason for the loss.
    pub why: Why,
}

/// Result of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of records replayed, completely or in part.
    pub records: u64,
    /// Bytes of the file that were written.
    pub replayed: RangeSet,
    /// Writes that were lost.
    pub lost: Vec<Loss>,
}

/// Replays the rings of one file. Afterwards `drained` says that these rings hold nothing more, so a second recovery
/// does nothing. The caller then removes the rings, and after them the file's counters.
///
/// Errors: those of `to`, after which nothing is marked and the call can be repeated. `InvalidData` if the mark in
/// `drained` is damaged; nothing was changed then.
pub fn recover<M: Memory, D: Memory>(
    rings: &mut [RingReader<M>],
    drained: &Drained<D>,
    bounds: Bounds<'_>,
    to: &mut dyn Replay,
) -> io::Result<RecoveryReport> {
    let done = drained
        .progress()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the mark of what is drained already is damaged"))?;
    let mut report = RecoveryReport::default();
    let mut queue = ApplyQueue::default();
    for (number, ring) in rings.iter_mut().enumerate() {
        let id = ring.grant().ring;
        ring.take_left(done, &mut |found| match found {
            RingItem::Damage(damage) => {
                report.lost.push(Loss { ring: id, range: damage.range, why: Why::Damaged(damage.reason) });
            }
            RingItem::Record(record) => offer(&mut queue, RingSlot(number), id, (record, done), bounds, &mut report),
        });
        if ring.memory().is_cut() {
            // A living program has truncated the ring: its other content is unknown.
            report.lost.push(Loss { ring: id, range: None, why: Why::Damaged(Reason::Header) });
        }
        queue.leave(RingSlot(number));
    }
    queue.cut(bounds.cut);
    while let Some(batch) = queue.batch(true) {
        for write in &batch.writes {
            copy(rings, write, to, &mut report)?;
        }
        queue.done(&batch);
    }
    to.sync()?;
    to.tell(&report);
    drained.advance(AppliedProgress::all_below(u64::MAX));
    Ok(report)
}

fn offer(
    queue: &mut ApplyQueue,
    slot: RingSlot,
    id: RingId,
    (record, done): (Taken, AppliedProgress),
    bounds: Bounds<'_>,
    report: &mut RecoveryReport,
) {
    let rest = done.rest(record.sequence, record.range);
    let mut fenced = RangeSet::new();
    for fence in bounds.fences.iter().filter(|fence| fence.epoch > record.epoch) {
        fenced.insert(fence.range.intersection(&rest));
    }
    for range in fenced.iter() {
        report.lost.push(Loss { ring: id, range: Some(range), why: Why::NewerEpoch });
    }
    let parts = fenced.missing(rest);
    report.records += u64::from(!parts.is_empty());
    parts.into_iter().for_each(|part| queue.offer_part(slot, record, part));
}

fn copy<M: Memory>(
    rings: &[RingReader<M>],
    write: &Write,
    to: &mut dyn Replay,
    report: &mut RecoveryReport,
) -> io::Result<()> {
    // At most `BATCH_BYTES_MAX`, or one record.
    let (mut bytes, mut start) = (Vec::with_capacity(write.range.len() as usize), write.range.start);
    let mut send = |bytes: &[u8], start: u64, report: &mut RecoveryReport| {
        if !bytes.is_empty() {
            to.write(start, bytes, write.written_ns())?;
            report.replayed.insert(ByteRange::at(start, bytes.len() as u64));
        }
        io::Result::Ok(())
    };
    for piece in &write.pieces {
        let (ring, filled) = (&rings[piece.ring.0], bytes.len());
        bytes.resize(filled + piece.range.len() as usize, 0);
        if !ring.copy(&piece.record, piece.skip(), &mut bytes[filled..]) {
            return Err(io::Error::other("a record left the ring while it was replayed"));
        }
        if ring.memory().is_cut() {
            send(&bytes[..filled], start, report)?;
            let (ring, why) = (ring.grant().ring, Why::Damaged(Reason::Payload));
            report.lost.push(Loss { ring, range: Some(piece.range), why });
            bytes.clear();
            start = piece.range.end;
        }
    }
    send(&bytes, start, report)
}
