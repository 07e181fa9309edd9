//! A ring whose owner writes any bytes: nothing panics, and nothing outside the grant comes out.

use types::{ByteRange, Epoch};

use super::*;
use crate::drained::{AppliedProgress, Drained};
use crate::layout::{RecordHeader, RecordKind, at, commit_word};
use crate::limits::CAPACITY_MIN;
use crate::memory::Heap;
use crate::recover::{Bounds, RecoveryReport, Replay, recover};
use crate::sequence::{Sequence, WORD_BYTES};
use crate::sync::Ordering::Relaxed;
use std::sync::Arc;

const CAPACITY: u64 = CAPACITY_MIN;
const WRITABLE: ByteRange = ByteRange { start: 4096, end: 1 << 20 };

fn grant() -> RingGrant {
    RingGrant {
        ring: RingId(0xfeed_f00d_dead_beef_0123_4567_89ab_cdef),
        capacity: CAPACITY,
        epochs: Epoch(3)..=Epoch(5),
        writable: WRITABLE,
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state ^ (*state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Replica that refuses bytes outside of the grant.
struct Guarded;

impl Replay for Guarded {
    fn write(&mut self, offset: u64, bytes: &[u8], _: u64) -> std::io::Result<()> {
        assert!(offset >= WRITABLE.start && offset + bytes.len() as u64 <= WRITABLE.end);
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn check(reader: &RingReader<Arc<Heap>>, found: &[RingItem]) {
    for one in found {
        let RingItem::Record(record) = one else { continue };
        assert!(record.range.start >= WRITABLE.start && record.range.end <= WRITABLE.end, "{record:?}");
        assert!((Epoch(3)..=Epoch(5)).contains(&record.epoch));
        let mut bytes = vec![0; record.range.len() as usize];
        reader.copy(record, 0, &mut bytes);
        assert!(!reader.copy(record, 1, &mut bytes), "past the record");
        assert!(!reader.copy(record, u64::MAX, &mut bytes));
    }
}

/// Makes all calls that the agent ever makes on a ring. Bounded by the ring's size, whatever the ring contains.
fn exercise(memory: &Arc<Heap>, reader: &mut RingReader<Arc<Heap>>) {
    let sequence = Sequence::new(Heap::zeroed(WORD_BYTES));
    let mut found = Vec::new();
    for _ in 0..3 {
        reader.take(&mut |one| found.push(one));
        reader.known_below(&sequence);
        check(reader, &found);
        assert!(reader.used() <= CAPACITY && reader.held() <= CAPACITY);
        reader.release(reader.held() / 2);
    }
    assert!(found.len() as u64 <= CAPACITY / RECORD_BYTES);
    found.clear();
    reader.take_rest(&mut |one| found.push(one));
    check(reader, &found);
    reader.release(u64::MAX);
    let drained = Drained::begin(Heap::zeroed(WORD_BYTES));
    if let Ok(left) = RingReader::left_behind(memory.clone(), grant()) {
        let report = recover(&mut [left], &drained, Bounds::NONE, &mut Guarded).unwrap();
        assert!(report.records + report.lost.len() as u64 <= CAPACITY / RECORD_BYTES);
    }
}

fn filled(random: &mut u64) -> (Arc<Heap>, RingReader<Arc<Heap>>) {
    let memory = Arc::new(Heap::zeroed(HEADER_BYTES + CAPACITY as usize));
    let reader = RingReader::create(memory.clone(), grant()).unwrap();
    let sequence = Sequence::new(Heap::zeroed(WORD_BYTES));
    let writer = Writer::new(memory.clone(), grant().ring, CAPACITY, sequence).unwrap();
    for _ in 0..12 {
        let len = 1 + next(random) % 4000;
        let _ = writer.append(WRITABLE.start + next(random) % 100_000, &vec![7; len as usize], &mut || false);
    }
    (memory, reader)
}

#[test]
fn random_scribbles_never_panic_or_leave_the_grant() {
    let mut random = 1;
    for _ in 0..300 {
        let (memory, mut reader) = filled(&mut random);
        for _ in 0..1 + next(&mut random) % 40 {
            // Half of the changes hit sensitive places: words of the header and of the records' headers.
            let at = match next(&mut random) % 4 {
                0 => [at::HEAD, at::TAIL, at::TAKEN, at::FLAGS, at::EPOCH, at::CAPACITY]
                    [(next(&mut random) % 6) as usize],
                1 => HEADER_BYTES + (next(&mut random) % (CAPACITY / 64)) as usize * 64,
                _ => (next(&mut random) as usize % memory.len()) & !7,
            };
            let value = [u64::MAX, 0, next(&mut random), next(&mut random) & !63][(next(&mut random) % 4) as usize];
            memory.word(at).store(value, Relaxed);
        }
        exercise(&memory, &mut reader);
    }
}

/// Records with a correct checksum, which only the ring's owner can make, and everything else wrong.
#[test]
fn forged_records_never_leave_the_grant() {
    let mut random = 2;
    for _ in 0..300 {
        let (memory, mut reader) = filled(&mut random);
        for _ in 0..20 {
            let slot = next(&mut random) % (CAPACITY / 64) * 64;
            let lap = [0, 1, 2, 1 << 40, u64::MAX / 64 / CAPACITY][(next(&mut random) % 5) as usize];
            let position = lap.wrapping_mul(CAPACITY).wrapping_add(slot) & !63;
            let odd = |random: &mut u64| match next(random) % 5 {
                0 => u64::MAX,
                1 => WRITABLE.end - next(random) % 9000,
                2 => next(random),
                3 => WRITABLE.start - next(random) % 4096,
                _ => WRITABLE.start + next(random) % 9000,
            };
            let header = RecordHeader {
                sequence: odd(&mut random),
                epoch: Epoch(next(&mut random) % 8),
                offset: odd(&mut random),
                length: [0, 1, 64, u32::MAX, next(&mut random) as u32, 9000][(next(&mut random) % 6) as usize],
                kind: RecordKind::Write,
                payload_sum: 0,
                written_ns: odd(&mut random),
            };
            let place = HEADER_BYTES + slot as usize;
            header.store(&memory, place, grant().ring, position);
            let state = [RecordState::Reserved, RecordState::Published, RecordState::Taken, RecordState::Retracted];
            let state = state[(next(&mut random) % 4) as usize];
            memory.word(place).store(commit_word(grant().ring, position, state), Relaxed);
        }
        exercise(&memory, &mut reader);
    }
}

#[test]
fn scribbling_while_the_agent_reads_changes_nothing_of_that() {
    let mut random = 3;
    for _ in 0..20 {
        let (memory, mut reader) = filled(&mut random);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (owner, ends, mut seed) = (memory.clone(), stop.clone(), next(&mut random));
        let thread = std::thread::spawn(move || {
            while !ends.load(Relaxed) {
                let at = (next(&mut seed) as usize % owner.len()) & !7;
                owner.word(at).store(next(&mut seed), Relaxed);
            }
        });
        exercise(&memory, &mut reader);
        stop.store(true, Relaxed);
        thread.join().unwrap();
    }
}

#[test]
fn another_file_is_refused_and_says_why() {
    let memory = Arc::new(Heap::zeroed(HEADER_BYTES + CAPACITY as usize));
    let attach = |grant| RingReader::left_behind(memory.clone(), grant).err();
    assert_eq!(attach(grant()), Some(NotThisRing::Magic), "zeroes");
    drop(RingReader::create(memory.clone(), grant()).unwrap());
    assert_eq!(attach(grant()), None);
    assert_eq!(attach(RingGrant { ring: RingId(1), ..grant() }), Some(NotThisRing::Foreign));
    assert_eq!(attach(RingGrant { capacity: 2 * CAPACITY, ..grant() }), Some(NotThisRing::Size));
    assert_eq!(attach(RingGrant { capacity: u64::MAX, ..grant() }), Some(NotThisRing::Size));
    memory.word(at::VERSION).store(77, Relaxed);
    assert_eq!(attach(grant()), Some(NotThisRing::Version { found: 77 }));
}

/// Replica that keeps the report and checks that nothing is marked yet.
struct Hears<'a>(&'a Drained<Heap>, Option<RecoveryReport>);

impl Replay for Hears<'_> {
    fn write(&mut self, _: u64, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn tell(&mut self, report: &RecoveryReport) {
        assert_eq!(self.0.progress(), Some(AppliedProgress::default()), "who dies now tells it again");
        self.1 = Some(report.clone());
    }
}

#[test] // S46
fn damage_is_told_by_byte_range_before_it_is_marked_and_the_rest_is_kept() {
    let memory = Arc::new(Heap::zeroed(HEADER_BYTES + CAPACITY as usize));
    drop(RingReader::create(memory.clone(), grant()).unwrap());
    let sequence = Sequence::new(Heap::zeroed(WORD_BYTES));
    let writer = Writer::new(memory.clone(), grant().ring, CAPACITY, sequence).unwrap();
    for number in 0..3 {
        writer.append(10_000 + number * 1000, &[number as u8; 1000], &mut || false).unwrap();
    }
    memory.write(HEADER_BYTES + 1088 + 64 + 500, b"!"); // in the payload of the second
    let drained = Drained::begin(Heap::zeroed(WORD_BYTES));
    let left = RingReader::left_behind(memory, grant()).unwrap();
    let mut hears = Hears(&drained, None);
    let report = recover(&mut [left], &drained, Bounds::NONE, &mut hears).unwrap();
    assert_eq!((hears.1.as_ref(), drained.progress()), (Some(&report), Some(AppliedProgress::all_below(u64::MAX))));
    assert_eq!(report.lost.iter().map(|loss| loss.range).collect::<Vec<_>>(), [Some(ByteRange::new(11_000, 12_000))]);
    assert_eq!(
        report.replayed.iter().collect::<Vec<_>>(),
        [ByteRange::new(10_000, 11_000), ByteRange::new(12_000, 13_000)]
    );
}
