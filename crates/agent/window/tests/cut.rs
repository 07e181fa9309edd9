//! A ring that a program, which has outlived the agent, truncates while it is replayed.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use types::{ByteRange, Epoch};
use window::drained::Drained;
use window::layout::{HEADER_BYTES, RingId};
use window::memory::Heap;
use window::recover::{Bounds, Loss, RecoveryReport, Replay, recover};
use window::ring::{RingGrant, RingReader, Writer};
use window::sequence::{Sequence, WORD_BYTES};
use window::{Mapping, WindowMedium};

const CAPACITY: u64 = 256 << 10;

fn cut(ring: &Path, len: u64) {
    OpenOptions::new().write(true).open(ring).unwrap().set_len(len).unwrap();
}

/// Replica whose first write truncates the ring.
struct Cuts {
    ring: PathBuf,
    len: Option<u64>,
    replica: Vec<u8>,
}

impl Replay for Cuts {
    fn write(&mut self, offset: u64, bytes: &[u8], _: u64) -> io::Result<()> {
        self.replica[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        if let Some(len) = self.len.take() {
            cut(&self.ring, len);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replays three records of 40,000 bytes that do not touch. The ring is truncated before the scan or after the first
/// write.
fn replayed(before: bool, len: u64) -> (Vec<u8>, RecoveryReport) {
    let dir = tempfile::tempdir().unwrap();
    let ring = dir.path().join("ring");
    let grant = RingGrant {
        ring: RingId(7),
        capacity: CAPACITY,
        epochs: Epoch(0)..=Epoch(0),
        writable: ByteRange::new(0, 1 << 30),
    };
    let memory = Mapping::create(&ring, HEADER_BYTES + CAPACITY as usize, WindowMedium::Volatile).unwrap();
    drop(RingReader::create(memory, grant.clone()).unwrap());
    let program = Mapping::open(&ring, WindowMedium::Volatile).unwrap();
    let sequence = Sequence::new(Heap::zeroed(WORD_BYTES));
    let writer = Writer::new(program, grant.ring, CAPACITY, sequence).unwrap();
    for number in 0..3u8 {
        writer.append(u64::from(number) * 50_000, &[number + 1; 40_000], &mut || false).unwrap();
    }
    std::mem::forget(writer); // its memory is gone
    let memory = Mapping::open(&ring, WindowMedium::Volatile).unwrap().guarded().unwrap();
    let left = RingReader::left_behind(memory, grant).unwrap();
    if before {
        cut(&ring, len);
    }
    let mut to = Cuts { ring, len: (!before).then_some(len), replica: vec![9; 150_000] };
    let drained = Drained::begin(Heap::zeroed(WORD_BYTES));
    let report = recover(&mut [left], &drained, Bounds::NONE, &mut to).unwrap();
    (to.replica, report)
}

#[test] // S39
fn what_is_cut_off_a_ring_while_it_is_replayed_is_told_and_nothing_else_comes_in_its_place() {
    for len in [0, 100, 4096, 44_160, 50_000, 65_536, 90_112] {
        for before in [true, false] {
            let (replica, report) = replayed(before, len);
            assert!(!report.lost.is_empty(), "cut to {len}, before {before}");
            let written =
                |at: usize| report.replayed.iter().any(|range| (range.start..range.end).contains(&(at as u64)));
            for (at, byte) in replica.iter().enumerate() {
                let expected = if written(at) { (at / 50_000) as u8 + 1 } else { 9 };
                assert_eq!(*byte, expected, "byte {at}, cut to {len}");
            }
            if !before {
                let lost: Vec<_> = report.lost.iter().filter_map(|loss: &Loss| loss.range).collect();
                assert_eq!(lost, [ByteRange::new(50_000, 90_000), ByteRange::new(100_000, 140_000)]);
            }
        }
    }
}
