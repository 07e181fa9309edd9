//! What a dead agent left in the rings of one file, brought to the burst buffer.
//!
//! Programs may live on, so each ring is revoked before it is read: a write that recovery does not take was not
//! acknowledged. What is replayed is every whole record that the mark of the drained does not cover, in the order of the
//! file; a torn one was never acknowledged and is dropped; bytes on which a newer epoch was granted meanwhile are not
//! touched. What was published and cannot be replayed is reported by byte range.

use std::io;

use types::{ByteRange, Epoch, RangeSet};

use crate::drained::{AppliedProgress, Drained};
use crate::layout::RingId;
use crate::memory::Memory;
use crate::plan::{ApplyQueue, RingSlot, Write};
use crate::ring::{Reason, RingItem, RingReader, Taken};

/// Bytes that somebody else may have changed since: records of an older epoch are not replayed over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The bytes.
    pub range: ByteRange,
    /// The newest epoch granted on them.
    pub epoch: Epoch,
}

/// What must not come back over what happened since.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// Bytes that somebody else may have changed.
    pub fences: &'a [Fence],
    /// The file was cut to so many bytes after everything in the rings was written: what lies behind is dropped, and no loss.
    /// `u64::MAX`: it was not.
    pub cut: u64,
}

impl Bounds<'_> {
    /// None.
    pub const NONE: Bounds<'static> = Bounds { fences: &[], cut: u64::MAX };
}

/// Where recovery writes: the file's replica.
pub trait Replay {
    /// Writes all of `bytes` at `offset`, as programs did until `written_ns`, as they say (ns since 1970). It may be asked again after a
    /// crash, with the same bytes.
    fn write(&mut self, offset: u64, bytes: &[u8], written_ns: u64) -> io::Result<()>;

    /// Makes what was written as durable as the rings are.
    fn sync(&mut self) -> io::Result<()>;

    /// What was done and lost, before it is marked: after a crash it is told again, and never not at all.
    fn tell(&mut self, _report: &RecoveryReport) {}
}

/// Why bytes could not be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The record is not what was written, or not allowed.
    Damaged(Reason),
    /// A newer epoch was granted on the bytes.
    NewerEpoch,
}

/// Something that was acknowledged, as far as one can tell, and is not in the burst buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The ring that held it.
    pub ring: RingId,
    /// The bytes of the file; `None` when not even the record's header tells.
    pub range: Option<ByteRange>,
    /// Why.
    pub why: Why,
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records replayed, wholly or in part.
    pub records: u64,
    /// The bytes of the file that were written.
    pub replayed: RangeSet,
    /// What was lost.
    pub lost: Vec<Loss>,
}

/// Replays the rings of one file. Afterwards `drained` says that these rings hold nothing more, so a second recovery does
/// nothing; the caller then removes the rings, and after them the file's counters.
///
/// On an error of `to` nothing is marked: the same call can be made again. `InvalidData`: the mark in `drained` is damaged, and
/// nothing was touched.
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
            // Its program lives and has cut it: nobody can tell what else it held.
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
