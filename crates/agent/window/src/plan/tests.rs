//! Batches against records applied one by one.

use proptest::prelude::*;
use types::Epoch;

use super::*;

fn record(sequence: u64, offset: u64, len: u64) -> Taken {
    let position = sequence * 64;
    Taken { position, end: position + 64, sequence, epoch: Epoch(0), range: ByteRange::at(offset, len) }
}

fn ranges(batch: &Batch) -> Vec<(u64, u64)> {
    batch.writes.iter().map(|write| (write.range.start, write.range.end)).collect()
}

#[test]
fn superseded_bytes_are_dropped_and_neighbours_travel_together() {
    let mut queue = Queue::new(0);
    let ring = RingSlot(0);
    queue.join(ring);
    for (sequence, offset, len) in [(0, 0, 100), (1, 100, 100), (2, 50, 100), (3, 500, 10)] {
        queue.offer(ring, record(sequence, offset, len));
    }
    let batch = queue.batch(true).unwrap();
    assert_eq!((ranges(&batch), batch.superseded, batch.below), (vec![(0, 200), (500, 510)], 100, 4));
    let pieces: Vec<_> = batch.writes[0].pieces.iter().map(|piece| (piece.record.sequence, piece.skip())).collect();
    assert_eq!(pieces, [(0, 0), (2, 0), (1, 50)]);
    assert_eq!(queue.done(&batch), [(ring, u64::MAX)]);
}

#[test]
fn nothing_small_travels_unless_somebody_waits() {
    let mut queue = Queue::new(0);
    for sequence in 0..256 {
        assert_eq!(queue.batch(false), None, "after {sequence} records");
        queue.offer(RingSlot(0), record(sequence, sequence * 4096, 4096));
    }
    assert_eq!(ranges(&queue.batch(false).unwrap()), [(0, MERGE_BYTES_MIN)]);
}

#[test]
fn a_missing_number_stops_the_drain_until_every_ring_has_passed_it() {
    let (a, b) = (RingSlot(0), RingSlot(1));
    let mut queue = Queue::new(0);
    queue.join(a);
    queue.join(b);
    queue.offer(a, record(0, 0, 10));
    queue.offer(a, record(2, 20, 10));
    let first = queue.batch(true).unwrap();
    assert_eq!((ranges(&first), first.below), (vec![(0, 10)], 1));
    // The room of the second is not given back.
    assert_eq!(queue.done(&first), [(a, 2 * 64)]);
    assert_eq!(queue.batch(true), None);
    queue.settle(a, 3);
    assert_eq!(queue.batch(true), None, "b may still bring it");
    queue.leave(b);
    assert_eq!(queue.batch(true).unwrap().below, 3);
}

#[test]
fn a_read_finds_the_newest_undrained_bytes() {
    let mut queue = Queue::new(0);
    queue.offer(RingSlot(0), record(0, 0, 100));
    queue.offer(RingSlot(1), record(5, 40, 20)); // not yet drainable, but acknowledged
    let found: Vec<_> = queue
        .undrained(ByteRange::new(30, 70))
        .iter()
        .map(|piece| (piece.range.start, piece.range.end, piece.record.sequence))
        .collect();
    assert_eq!(found, [(30, 40, 0), (40, 60, 5), (60, 70, 0)]);
}

#[test]
fn what_was_cut_off_never_travels() {
    let mut queue = Queue::new(0);
    let ring = RingSlot(0);
    queue.join(ring);
    for (sequence, offset, len) in [(0, 0, 100), (1, 80, 100), (2, 500, 10)] {
        queue.offer(ring, record(sequence, offset, len));
    }
    queue.leave(ring);
    assert_eq!(queue.end(), 510);
    queue.cut(1000);
    assert_eq!((queue.end(), queue.bytes()), (510, 210));
    queue.cut(150);
    assert_eq!((queue.end(), queue.bytes()), (150, 170));
    let batch = queue.batch(true).unwrap();
    assert_eq!((ranges(&batch), batch.superseded), (vec![(0, 150)], 20));
    assert_eq!(queue.done(&batch), [(ring, u64::MAX)]);
    queue.offer(ring, record(3, 10, 10));
    queue.cut(0);
    assert!(queue.is_empty() && queue.end() == 0 && queue.batch(true).is_none());
}

proptest! {
    /// Batches of any size leave what the records leave when they are applied one by one.
    #[test]
    fn draining_is_applying_in_order(
        records in proptest::collection::vec((0u64..300, 1u64..60, 0usize..3), 1..60),
        order in any::<u64>(),
        stops in proptest::collection::vec(0usize..20, 0..20),
    ) {
        let mut model = [u64::MAX; 400];
        for (sequence, (offset, len, _)) in records.iter().enumerate() {
            (*offset..offset + len).for_each(|at| model[at as usize] = sequence as u64);
        }
        // Offered in an order that mixes numbers, as threads do.
        let mut numbers: Vec<usize> = (0..records.len()).collect();
        numbers.sort_by_key(|number| (number / 4, (*number as u64).wrapping_mul(order | 1) >> 7));
        let mut queue = Queue::new(0);
        (0..3).for_each(|ring| queue.join(RingSlot(ring)));
        let (mut file, mut below) = ([u64::MAX; 400], 0);
        let mut drain = |queue: &mut Queue| {
            let Some(batch) = queue.batch(true) else { return };
            assert!(batch.below > below, "a prefix, and it grows");
            below = batch.below;
            for piece in batch.writes.iter().flat_map(|write| &write.pieces) {
                assert!(piece.record.sequence < below);
                (piece.range.start..piece.range.end).for_each(|at| file[at as usize] = piece.record.sequence);
            }
            queue.done(&batch);
        };
        for (count, number) in numbers.iter().enumerate() {
            let (offset, len, ring) = records[*number];
            queue.offer(RingSlot(ring), record(*number as u64, offset, len));
            if stops.contains(&(count % 20)) {
                drain(&mut queue);
            }
        }
        drain(&mut queue);
        prop_assert!(queue.is_empty());
        prop_assert_eq!(queue.bytes(), 0);
        prop_assert_eq!(file, model);
    }
}
