//! Test vectors of Algorithm 2, and random operations compared with a byte array and a plain map.

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns the byte at `offset` of the file in its `version`th state.
fn byte(offset: u64, version: u8) -> u8 {
    (offset as u8).wrapping_mul(31).wrapping_add((offset >> 8) as u8).wrapping_add(version.wrapping_mul(97))
}

fn data(range: ByteRange, version: u8) -> SharedBytes {
    Arc::new((range.start..range.end).map(|at| byte(at, version)).collect::<Vec<u8>>())
}

fn queue(blocks: &[(u64, u64)]) -> ReadQueue {
    let mut queue = ReadQueue::new(64 * MIB);
    for (offset, len) in blocks {
        let range = ByteRange::at(*offset, *len);
        let ticket = queue.begin(range);
        queue.arrive(ticket, *offset, data(range, 0));
    }
    queue
}

/// Searches `blocks` for (offset, size). Returns the hit and the list afterwards. Checks the bytes.
fn search(blocks: &[(u64, u64)], offset: u64, size: u64) -> (Option<Hit>, Vec<(u64, u64)>) {
    let mut queue = queue(blocks);
    let mut out = vec![0xee; size as usize];
    let hit = queue.search(offset, &mut out);
    let filled = hit.as_ref().map_or(0, |hit| hit.filled);
    assert!((0..filled).all(|at| out[at as usize] == byte(offset + at, 0)), "wrong bytes");
    assert!(out[filled as usize..].iter().all(|byte| *byte == 0xee), "bytes past the hit");
    queue.assert_sound();
    (hit, queue.blocks().collect())
}

fn hit(filled: u64, left: u64, left_size: u64) -> Option<Hit> {
    Some(Hit { filled, remainder: ByteRange::at(left, left_size) })
}

#[test]
fn v1_the_front_of_a_block_is_consumed() {
    let expected = (hit(128 * KIB, 128 * KIB, 0), vec![(128 * KIB, 896 * KIB)]);
    assert_eq!(search(&[(0, MIB)], 0, 128 * KIB), expected);
}

#[test]
fn v2_an_exact_block_is_a_full_hit() {
    assert_eq!(search(&[(0, 128 * KIB)], 0, 128 * KIB), (hit(128 * KIB, 128 * KIB, 0), vec![]));
    assert_eq!(printed::search(&mut vec![(0, 128 * KIB)], ByteRange::at(0, 128 * KIB)).0, 0, "printed: none");
}

#[test]
fn v3_a_hit_spans_blocks_and_splits_both() {
    let blocks = [(0, 64 * KIB), (64 * KIB, 64 * KIB)];
    let expected = (hit(64 * KIB, 96 * KIB, 0), vec![(0, 32 * KIB), (96 * KIB, 32 * KIB)]);
    assert_eq!(search(&blocks, 32 * KIB, 64 * KIB), expected);
}

#[test]
fn v4_the_search_stops_at_a_gap() {
    let blocks = [(0, 64 * KIB), (128 * KIB, 64 * KIB)];
    let expected = (hit(32 * KIB, 64 * KIB, 96 * KIB), vec![(0, 32 * KIB), (128 * KIB, 64 * KIB)]);
    assert_eq!(search(&blocks, 32 * KIB, 128 * KIB), expected);
}

#[test]
fn v5_nothing_at_the_first_byte_is_a_miss() {
    assert_eq!(search(&[(128 * KIB, 64 * KIB)], 0, 64 * KIB), (None, vec![(128 * KIB, 64 * KIB)]));
}

#[test]
fn v6_the_tail_of_a_block_is_not_read_past_its_end() {
    assert_eq!(search(&[(0, MIB)], 960 * KIB, 128 * KIB), (hit(64 * KIB, MIB, 64 * KIB), vec![(0, 960 * KIB)]));
    let said = printed::search(&mut vec![(0, MIB)], ByteRange::at(960 * KIB, 128 * KIB)).0;
    assert_eq!(said, 128 * KIB, "printed: twice what the block has");
}

#[test]
fn a_read_goes_on_behind_gaps_and_lists_what_is_missing() {
    let mut queue = queue(&[(0, 64 * KIB), (128 * KIB, 16 * KIB)]);
    let mut out = vec![0; 128 << 10];
    let missing = queue.read(32 * KIB, &mut out, Purge::Retain);
    assert_eq!(missing, [ByteRange::new(64 * KIB, 128 * KIB), ByteRange::new(144 * KIB, 160 * KIB)]);
    assert_eq!(out[96 << 10], byte(128 * KIB, 0));
    assert_eq!(queue.bytes(), 80 * KIB, "retained");
}

#[test]
fn consuming_frees_what_lies_behind_the_back_window() {
    let mut queue = queue(&[(0, 64 * KIB), (64 * KIB, 64 * KIB)]);
    let mut out = vec![0; 64 << 10];
    assert!(queue.read(32 * KIB, &mut out, Purge::Consume { back_window: 0 }).is_empty());
    assert_eq!(queue.blocks().collect::<Vec<_>>(), [(96 * KIB, 32 * KIB)]);
}

#[test]
fn a_write_during_a_fetch_keeps_the_old_bytes_out() {
    let mut queue = ReadQueue::new(MIB);
    let range = ByteRange::new(0, 64 * KIB);
    let ticket = queue.begin(range);
    assert!(queue.absent(range).is_empty(), "in flight");
    queue.invalidate(ByteRange::new(16 * KIB, 32 * KIB));
    queue.arrive(ticket, 0, data(range, 0));
    assert_eq!(queue.blocks().collect::<Vec<_>>(), [(0, 16 * KIB), (32 * KIB, 32 * KIB)]);
    assert_eq!(queue.absent(range), [ByteRange::new(16 * KIB, 32 * KIB)]);
}

#[test]
fn the_oldest_block_goes_when_the_budget_is_spent() {
    let mut queue = ReadQueue::new(64 * KIB);
    for offset in [0, 32 * KIB, 64 * KIB] {
        let range = ByteRange::at(offset, 32 * KIB);
        let ticket = queue.begin(range);
        queue.arrive(ticket, offset, data(range, 0));
        queue.assert_sound();
    }
    assert_eq!(queue.blocks().collect::<Vec<_>>(), [(32 * KIB, 32 * KIB), (64 * KIB, 32 * KIB)]);
}

#[test] // S47
fn what_is_given_out_where_it_lies_stays_when_the_queue_loses_it() {
    let mut queue = queue(&[(0, 64 * KIB), (64 * KIB, 64 * KIB), (192 * KIB, 64 * KIB)]);
    let range = ByteRange::new(32 * KIB, 96 * KIB);
    let parts = queue.parts(range).unwrap();
    assert_eq!(parts.iter().map(|part| part.as_ref().len()).collect::<Vec<_>>(), [32 << 10, 32 << 10]);
    queue.invalidate(ByteRange::new(0, MIB));
    assert!(queue.parts(range).is_none());
    assert!(parts.iter().flat_map(Part::as_ref).zip(range.start..).all(|(found, at)| *found == byte(at, 0)));
}

#[derive(Debug, Clone)]
enum Step {
    Fetch(u64, u64),
    Arrive(usize),
    Write(u64, u64),
    Read(u64, u64, bool),
    Search(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0u64..400, 1u64..120);
    prop_oneof![
        range().prop_map(|(o, l)| Step::Fetch(o, l)),
        any::<usize>().prop_map(Step::Arrive),
        range().prop_map(|(o, l)| Step::Write(o, l)),
        (range(), any::<bool>()).prop_map(|((o, l), keep)| Step::Read(o, l, keep)),
        range().prop_map(|(o, l)| Step::Search(o, l)),
    ]
}

proptest! {
    /// Compares with a model: one byte array that writes change. A fetch reads it when it begins, which is the worst
    /// moment.
    #[test]
    fn no_read_ever_sees_bytes_older_than_a_write(steps in proptest::collection::vec(step(), 1..80)) {
        let mut file: Vec<u8> = (0..600).map(|at| byte(at, 0)).collect();
        let mut queue = ReadQueue::new(300);
        let mut fetches: Vec<(FetchTicket, u64, SharedBytes)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Fetch(offset, len) => {
                    let ticket = queue.begin(ByteRange::at(offset, len));
                    fetches.push((ticket, offset, Arc::new(file[offset as usize..(offset + len) as usize].to_vec())));
                }
                Step::Arrive(which) if !fetches.is_empty() => {
                    let (ticket, offset, data) = fetches.remove(which % fetches.len());
                    queue.arrive(ticket, offset, data);
                }
                Step::Arrive(_) => {}
                Step::Write(offset, len) => {
                    (offset..offset + len).for_each(|at| file[at as usize] = byte(at, number as u8 + 1));
                    queue.invalidate(ByteRange::at(offset, len));
                }
                Step::Read(offset, len, keep) => {
                    let mut out = vec![0; len as usize];
                    let purge = if keep { Purge::Retain } else { Purge::Consume { back_window: 50 } };
                    let parts = queue.parts(ByteRange::at(offset, len));
                    let mut missing = types::RangeSet::new();
                    queue.read(offset, &mut out, purge).into_iter().for_each(|range| missing.insert(range));
                    for range in missing.missing(ByteRange::at(offset, len)) {
                        let (from, to) = ((range.start - offset) as usize, (range.end - offset) as usize);
                        prop_assert_eq!(&out[from..to], &file[range.start as usize..range.end as usize]);
                    }
                    prop_assert_eq!(parts.is_some(), missing.is_empty());
                    if let Some(parts) = parts {
                        let there: Vec<u8> = parts.iter().flat_map(Part::as_ref).copied().collect();
                        prop_assert_eq!(&there, &file[offset as usize..(offset + len) as usize]);
                    }
                }
                Step::Search(offset, len) => {
                    let mut out = vec![0; len as usize];
                    let filled = queue.search(offset, &mut out).map_or(0, |hit| hit.filled) as usize;
                    prop_assert_eq!(&out[..filled], &file[offset as usize..offset as usize + filled]);
                }
            }
            queue.assert_sound();
        }
    }
}
