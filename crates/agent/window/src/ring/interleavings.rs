//! Every interleaving of small stories, by `loom`: RUSTFLAGS="--cfg loom" cargo test -p window --lib interleavings
//!
//! The memory consists of `loom`'s words, so a load may return any value that the memory model allows, not only the
//! newest.

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;
use types::{ByteRange, Epoch};

use super::*;
use crate::limits::CAPACITY_MIN;
use crate::memory::Heap;
use crate::sequence::Sequence;

const CAPACITY: u64 = CAPACITY_MIN;

fn grant() -> RingGrant {
    RingGrant {
        ring: RingId(0x1234_5678_9abc_def0_0fed_cba9),
        capacity: CAPACITY,
        epochs: Epoch(1)..=Epoch(1),
        writable: ByteRange::new(0, 1 << 20),
    }
}

/// Makes the memory of a ring and of the file's counter.
fn ring() -> (Arc<Heap>, Arc<Heap>) {
    (Arc::new(Heap::zeroed(HEADER_BYTES + CAPACITY as usize)), Arc::new(Heap::zeroed(8)))
}

struct Shared(Arc<Heap>);

impl Memory for Shared {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.word(at)
    }
    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.write(at, bytes);
    }
    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.0.read(at, bytes);
    }
    fn flush(&self, _at: usize, _len: usize) {}
    fn fence(&self) {}
    fn sleep(&self, at: usize, value: u32, timeout: std::time::Duration) {
        self.0.sleep(at, value, timeout);
    }
    fn wake(&self, _at: usize) {}
}

fn writer(ring: &Arc<Heap>, sequence: &Arc<Heap>) -> Writer<Shared, Shared> {
    let sequence = Sequence::new(Shared(sequence.clone()));
    Writer::new(Shared(ring.clone()), grant().ring, CAPACITY, sequence).unwrap()
}

fn payload(reader: &RingReader<Shared>, taken: &Taken) -> Vec<u8> {
    let mut bytes = vec![0; taken.range.len() as usize];
    assert!(reader.copy(taken, 0, &mut bytes));
    bytes
}

fn model(story: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(story);
}

/// Protocol of ending a ring: a write is acknowledged exactly when the reader has it, whenever the ring is revoked.
#[test]
fn a_write_is_acknowledged_exactly_when_it_is_taken() {
    // Outcomes seen: acknowledged, taken while live, whether the writer found the flag at last.
    static WAYS: Mutex<BTreeSet<(bool, bool, bool)>> = Mutex::new(BTreeSet::new());
    model(|| {
        let (memory, sequence) = ring();
        let mut reader = RingReader::create(Shared(memory.clone()), grant()).unwrap();
        let program = writer(&memory, &sequence);
        let thread = thread::spawn(move || {
            let acknowledged = program.append(8, b"payload!", &mut || true).is_ok();
            (acknowledged, memory.word(at::FLAGS).load(Acquire) != 0)
        });
        let mut taken = Vec::new();
        let mut record = |found| match found {
            RingItem::Record(record) => taken.push(record),
            RingItem::Damage(damage) => panic!("{damage:?}"),
        };
        // Not `take`: the model checker considers conflicts only with the last access to a word, and the look at the
        // flags in `take` would hide the writer's.
        reader.take_published(&mut record);
        let live = reader.held() > 0;
        reader.take_rest(&mut record);
        let (acknowledged, flagged) = thread.join().unwrap();
        WAYS.lock().unwrap().insert((acknowledged, live, flagged));
        assert_eq!(usize::from(acknowledged), taken.len());
        taken.iter().for_each(|one| assert_eq!(payload(&reader, one), b"payload!"));
    });
    let ways = WAYS.lock().unwrap();
    let all = [(false, false, true), (true, false, true), (true, true, false), (true, true, true)];
    assert!(all.iter().all(|way| ways.contains(way)), "not all was tried: {ways:?}");
}

/// The bound that the reader returns is correct: no record below it appears later.
#[test]
fn no_record_appears_below_what_the_reader_said_it_knows() {
    model(|| {
        let (memory, counter) = ring();
        let mut reader = RingReader::create(Shared(memory.clone()), grant()).unwrap();
        let sequence = Sequence::new(Shared(counter.clone()));
        let program = Arc::new(writer(&memory, &counter));
        let other = program.clone();
        let first = thread::spawn(move || other.append(8, b"payload1", &mut || true).is_ok());
        let mut taken = Vec::new();
        let mut known = 0;
        for _ in 0..2 {
            let mut late = Vec::new();
            reader.take(&mut |found| match found {
                RingItem::Record(record) => late.push(record.sequence),
                RingItem::Damage(damage) => panic!("{damage:?}"),
            });
            assert!(late.iter().all(|number| *number >= known), "{late:?} below {known}");
            taken.extend(late);
            known = reader.known_below(&sequence);
            assert!((0..known).all(|number| taken.contains(&number)), "{taken:?} up to {known}");
        }
        assert!(first.join().unwrap());
    });
}

/// Two threads of one program: both records are there, complete, with different numbers.
#[test]
fn threads_reserve_and_publish_without_a_lock() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (memory, sequence) = ring();
        let mut reader = RingReader::create(Shared(memory.clone()), grant()).unwrap();
        let program = Arc::new(writer(&memory, &sequence));
        let other = program.clone();
        let thread = thread::spawn(move || other.append(8, b"payload1", &mut || true).is_ok());
        assert!(program.append(16, b"payload2", &mut || true).is_ok());
        assert!(thread.join().unwrap());
        let mut taken = Vec::new();
        reader.take(&mut |found| match found {
            RingItem::Record(record) => taken.push(record),
            RingItem::Damage(damage) => panic!("{damage:?}"),
        });
        let mut numbers: Vec<u64> = taken.iter().map(|record| record.sequence).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
        for record in taken {
            let expected: &[u8] = if record.range.start == 8 { b"payload1" } else { b"payload2" };
            assert_eq!(payload(&reader, &record), expected);
        }
    });
}
