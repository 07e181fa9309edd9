//! Batches compared with records applied one by one.

use proptest::prelude::*;
use types::Epoch;

use super::*;
use crate::limits::DRAIN_ALIGN;

fn record(sequence: u64, offset: u64, len: u64) -> Taken {
    let position = sequence * 64;
    Taken { position, end: position + 64, sequence, epoch: Epoch(0), range: ByteRange::at(offset, len), written_ns: 0 }
}

fn ranges(batch: &Batch) -> Vec<(u64, u64)> {
    batch.writes.iter().map(|write| (write.range.start, write.range.end)).collect()
}

#[test]
fn superseded_bytes_are_dropped_and_neighbours_travel_together() {
    let mut queue = ApplyQueue::default();
    let ring = RingSlot(0);
    queue.join(ring);
    for (sequence, offset, len) in [(0, 0, 100), (1, 100, 100), (2, 50, 100), (3, 500, 10)] {
        queue.offer(ring, record(sequence, offset, len));
    }
    let batch = queue.batch(true).unwrap();
    assert_eq!(
        (ranges(&batch), batch.superseded, batch.progress),
        (vec![(0, 200), (500, 510)], 100, AppliedProgress::all_below(4))
    );
    let pieces: Vec<_> = batch.writes[0].pieces.iter().map(|piece| (piece.record.sequence, piece.skip())).collect();
    assert_eq!(pieces, [(0, 0), (2, 0), (1, 50)]);
    assert_eq!(queue.done(&batch), [(ring, u64::MAX)]);
}

#[test]
fn nothing_small_travels_unless_somebody_waits() {
    let mut queue = ApplyQueue::default();
    for sequence in 0..256 {
        assert_eq!(queue.batch(false), None, "after {sequence} records");
        queue.offer(RingSlot(0), record(sequence, sequence * 4096, 4096));
    }
    assert_eq!(ranges(&queue.batch(false).unwrap()), [(0, MERGE_BYTES_MIN)]);
}

#[test]
fn a_missing_number_stops_the_drain_until_every_ring_has_passed_it() {
    let (a, b) = (RingSlot(0), RingSlot(1));
    let mut queue = ApplyQueue::default();
    queue.join(a);
    queue.join(b);
    queue.offer(a, record(0, 0, 10));
    queue.offer(a, record(2, 20, 10));
    let first = queue.batch(true).unwrap();
    assert_eq!((ranges(&first), first.progress), (vec![(0, 10)], AppliedProgress::all_below(1)));
    // The room of the second record is not given back.
    assert_eq!(queue.done(&first), [(a, 2 * 64)]);
    assert_eq!(queue.batch(true), None);
    queue.advance_known(a, 3);
    assert_eq!(queue.batch(true), None, "b may still bring it");
    queue.leave(b);
    assert_eq!(queue.batch(true).unwrap().progress, AppliedProgress::all_below(3));
}

#[test]
fn a_read_finds_the_newest_undrained_bytes() {
    let mut queue = ApplyQueue::default();
    queue.offer(RingSlot(0), record(0, 0, 100));
    queue.offer(RingSlot(1), record(5, 40, 20)); // may not be applied yet, but is acknowledged
    let found: Vec<_> = queue
        .undrained(ByteRange::new(30, 70))
        .iter()
        .map(|piece| (piece.range.start, piece.range.end, piece.record.sequence))
        .collect();
    assert_eq!(found, [(30, 40, 0), (40, 60, 5), (60, 70, 0)]);
}

#[test]
fn what_was_cut_off_never_travels() {
    let mut queue = ApplyQueue::default();
    let ring = RingSlot(0);
    queue.join(ring);
    for (sequence, offset, len) in [(0, 0, 100), (1, 80, 100), (2, 500, 10)] {
        queue.offer(ring, record(sequence, offset, len));
    }
    queue.leave(ring);
    assert_eq!(queue.end(), 510);
    assert_eq!(queue.cut(1000), 0);
    assert_eq!((queue.end(), queue.bytes()), (510, 210));
    assert_eq!(queue.cut(150), 40);
    assert_eq!((queue.end(), queue.bytes()), (150, 170));
    let batch = queue.batch(true).unwrap();
    assert_eq!((ranges(&batch), batch.superseded), (vec![(0, 150)], 20));
    assert_eq!(queue.done(&batch), [(ring, u64::MAX)]);
    queue.offer(ring, record(3, 10, 10));
    assert_eq!(queue.cut(0), 10);
    assert!(queue.is_empty() && queue.end() == 0 && queue.batch(true).is_none());
}

#[test]
fn programs_apart_by_what_their_rings_hold_travel_together() {
    let (ahead, behind) = (RingSlot(0), RingSlot(1));
    let mut queue = ApplyQueue::default();
    [ahead, behind].into_iter().for_each(|ring| queue.join(ring));
    let (bytes, records) = (DRAIN_ALIGN / 4, 3 * MERGE_BYTES_MIN / DRAIN_ALIGN * 4);
    let offer = |queue: &mut ApplyQueue, ring: RingSlot, sequence, number: u64| {
        queue.offer(ring, record(sequence, (2 * number + ring.0 as u64) * bytes, bytes));
        [ahead, behind].into_iter().for_each(|ring| queue.advance_known(ring, sequence + 1));
    };
    (0..records).for_each(|number| offer(&mut queue, ahead, number, number));
    assert_eq!(queue.batch(false), None, "its neighbours are to come");
    let third = records / 3;
    (0..third).for_each(|number| offer(&mut queue, behind, records + number, number));
    let first = queue.batch(false).unwrap();
    let end = 2 * third * bytes;
    assert_eq!(ranges(&first), [(0, end)], "what has no neighbours yet stays");
    assert_eq!(first.progress, AppliedProgress { below: 0, joined: records + third, swept: end });
    assert_eq!(queue.done(&first), [(ahead, third * 64), (behind, u64::MAX)]);
    (third..records).for_each(|number| offer(&mut queue, behind, records + number, number));
    let rest = queue.batch(false).unwrap();
    assert_eq!((ranges(&rest), rest.progress), (vec![(end, 3 * end)], AppliedProgress::all_below(2 * records)));
    assert_eq!(queue.done(&rest), [(ahead, u64::MAX), (behind, u64::MAX)]);
    assert!(queue.is_empty());
}

#[test]
fn what_the_sweep_has_passed_waits_for_the_next_with_all_that_came_after_it() {
    let ring = RingSlot(0);
    let mut queue = ApplyQueue::with_batches_of(100, 100);
    for (sequence, offset) in [(0, 0), (1, 100), (2, 200)] {
        queue.offer(ring, record(sequence, offset, 100));
    }
    let first = queue.batch(true).unwrap();
    assert_eq!((ranges(&first), first.progress), (vec![(0, 100)], AppliedProgress { below: 0, joined: 3, swept: 100 }));
    queue.done(&first);
    for (sequence, offset) in [(3, 250), (4, 50), (5, 300)] {
        queue.offer(ring, record(sequence, offset, 10));
    }
    let mut went = Vec::new();
    while let Some(batch) = queue.batch(true) {
        went.push((ranges(&batch), batch.superseded, batch.progress));
        queue.done(&batch);
    }
    let sweep = |joined, swept| AppliedProgress { below: 0, joined, swept };
    let all = vec![
        (vec![(100, 200)], 10, sweep(4, 200)),
        (vec![(200, 300)], 0, AppliedProgress::all_below(4)),
        (vec![(50, 60), (300, 310)], 0, AppliedProgress::all_below(6)),
    ];
    assert_eq!(went, all);
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn a_sweep_that_nothing_can_join_any_more_ends_though_little_is_left_of_it() {
    let ring = RingSlot(0);
    let mut queue = ApplyQueue::default();
    queue.join(ring);
    let end = MERGE_BYTES_MIN + 100;
    queue.offer(ring, record(0, 0, end));
    queue.advance_known(ring, 1);
    let first = queue.batch(false).unwrap();
    assert_eq!(ranges(&first), [(0, MERGE_BYTES_MIN)]);
    assert!(queue.done(&first).is_empty(), "the record goes on");
    for (sequence, offset) in [(1, end), (2, 0)] {
        queue.offer(ring, record(sequence, offset, MERGE_BYTES_MIN / 2));
    }
    queue.advance_known(ring, 3);
    let rest = queue.batch(false).unwrap();
    assert_eq!((ranges(&rest), rest.progress.below), (vec![(MERGE_BYTES_MIN, end + MERGE_BYTES_MIN / 2)], 2));
}

#[test]
fn each_byte_is_counted_once_as_drained_superseded_or_cut_off() {
    let ring = RingSlot(0);
    let mut queue = ApplyQueue::with_batches_of(500, 500);
    for (sequence, offset, len) in [(0, 0, 1000), (1, 600, 100), (2, 900, 300)] {
        queue.offer(ring, record(sequence, offset, len));
    }
    let batch = queue.batch(true).unwrap();
    assert_eq!((ranges(&batch), batch.superseded), (vec![(0, 500)], 200));
    queue.done(&batch);
    queue.offer(ring, record(3, 650, 10));
    assert!(queue.touches(3, ByteRange::new(1100, 1101)) && !queue.touches(3, ByteRange::new(0, 500)));
    // 1,410 bytes were offered, 500 are applied, 200 counted as superseded.
    assert_eq!(queue.cut(300), 710);
    assert!(queue.is_empty() && queue.bytes() == 0);
}

/// Returns the file that recovery makes from the records that rings still hold.
fn recovered(file: &[u64], progress: AppliedProgress, held: &BTreeMap<(usize, u64), Taken>) -> Vec<u64> {
    let mut file = file.to_vec();
    let mut left: Vec<&Taken> = held.values().collect();
    left.sort_by_key(|record| record.sequence);
    for record in left {
        let rest = progress.rest(record.sequence, record.range);
        (rest.start..rest.end).for_each(|at| file[at as usize] = record.sequence);
    }
    file
}

proptest! {
    /// Batches of any size give the file that applying the records one by one gives. So does a recovery after a death
    /// between two batches, from the mark and the rings. Room that was given back may have been overwritten or not.
    #[test] // S37
    fn draining_is_applying_in_order(
        records in proptest::collection::vec((0u64..300, 1u64..60, 0usize..3), 1..60),
        order in any::<u64>(),
        stops in proptest::collection::vec(0usize..20, 0..20),
        batch_bytes_max in 1u64..400,
        lone_bytes_max in 1u64..400,
    ) {
        let apply = |model: &mut [u64], sequence: u64, offset: u64, len: u64| {
            (offset..offset + len).for_each(|at| model[at as usize] = sequence);
        };
        let mut model = [u64::MAX; 400];
        for (sequence, (offset, len, _)) in records.iter().enumerate() {
            apply(&mut model, sequence as u64, *offset, *len);
        }
        // Offered in an order that mixes numbers, as threads do.
        let mut numbers: Vec<usize> = (0..records.len()).collect();
        numbers.sort_by_key(|number| (number / 4, (*number as u64).wrapping_mul(order | 1) >> 7));
        let mut queue = ApplyQueue::with_batches_of(batch_bytes_max, lone_bytes_max);
        (0..3).for_each(|ring| queue.join(RingSlot(ring)));
        let (mut file, mut progress) = ([u64::MAX; 400], AppliedProgress::default());
        // All records that rings hold, and those that must still be there.
        let (mut held, mut needed) = (BTreeMap::new(), BTreeMap::new());
        for (count, number) in numbers.iter().enumerate() {
            let (offset, len, ring) = records[*number];
            let taken = record(*number as u64, offset, len);
            queue.offer(RingSlot(ring), taken);
            held.insert((ring, taken.position), taken);
            needed.insert((ring, taken.position), taken);
            let batch = if stops.contains(&(count % 20)) { queue.batch(true) } else { None };
            let Some(batch) = batch else { continue };
            prop_assert!(batch.writes.iter().map(|write| write.range.len()).sum::<u64>() <= lone_bytes_max);
            for piece in batch.writes.iter().flat_map(|write| &write.pieces) {
                prop_assert!(piece.record.sequence < batch.progress.joined);
                apply(&mut file, piece.record.sequence, piece.range.start, piece.range.len());
            }
            let order = |progress: AppliedProgress| (progress.below, progress.joined, progress.swept);
            prop_assert!(order(batch.progress) > order(progress), "it grows");
            progress = batch.progress;
            for (slot, position) in queue.done(&batch) {
                needed.retain(|(ring, at), _| *ring != slot.0 || *at >= position);
            }
            let mut so_far = [u64::MAX; 400];
            for taken in numbers[..=count].iter().collect::<BTreeSet<_>>() {
                apply(&mut so_far, *taken as u64, records[*taken].0, records[*taken].1);
            }
            for survived in [&held, &needed] {
                prop_assert_eq!(&recovered(&file, progress, survived)[..], &so_far[..]);
            }
        }
        while let Some(batch) = queue.batch(true) {
            for piece in batch.writes.iter().flat_map(|write| &write.pieces) {
                apply(&mut file, piece.record.sequence, piece.range.start, piece.range.len());
            }
            queue.done(&batch);
        }
        prop_assert!(queue.is_empty());
        prop_assert_eq!(queue.bytes(), 0);
        prop_assert_eq!(file, model);
    }
}
