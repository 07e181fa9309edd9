//! Cost of an append, beside memcpy and write(2) on a tmpfs: cargo run --release -p window --example append [DIRECTORY]
//!
//! The directory, /dev/shm by default, should be a tmpfs. The results are medians of interleaved rounds. The ring is
//! applied between rounds and is larger than one round, so that no append waits.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use types::{ByteRange, Epoch};
use window::layout::{HEADER_BYTES, RingId};
use window::ring::{RingGrant, RingItem, RingReader, Writer};
use window::sequence::{Sequence, WORD_BYTES};
use window::{Mapping, WindowMedium};

/// Default size of a window, bytes.
const CAPACITY: u64 = 16 << 20;
const ROUNDS: usize = 51;
/// Bytes of one round: half of the ring.
const ROUND: usize = 8 << 20;

struct Window {
    reader: RingReader<Mapping>,
    writer: Writer<Mapping, Mapping>,
}

fn window(dir: &Path, medium: WindowMedium) -> std::io::Result<Window> {
    let path = dir.join(format!("ring-{medium:?}"));
    let grant = RingGrant {
        ring: RingId(0x0123_4567_89ab_cdef_1122_3344_5566_7788),
        capacity: CAPACITY,
        epochs: Epoch(0)..=Epoch(0),
        writable: ByteRange::new(0, u64::MAX),
    };
    let ring = Mapping::create(&path, HEADER_BYTES + CAPACITY as usize, medium)?;
    let reader = RingReader::create(ring, grant.clone()).map_err(std::io::Error::other)?;
    let sequence = Mapping::create(&dir.join(format!("sequence-{medium:?}")), WORD_BYTES, medium)?;
    let writer = Writer::new(Mapping::open(&path, medium)?, grant.ring, CAPACITY, Sequence::new(sequence));
    Ok(Window { reader, writer: writer.map_err(std::io::Error::other)? })
}

impl Window {
    /// Returns the microseconds per append, without the time between rounds.
    fn round(&mut self, bytes: &[u8]) -> f64 {
        let time = per_call(bytes.len(), |offset| {
            self.writer.append(offset as u64, bytes, &mut || false).expect("the ring has room for a round");
        });
        while self.reader.used() > 0 {
            self.reader.take(&mut |found| assert!(matches!(found, RingItem::Record(_))));
            self.reader.release(u64::MAX);
        }
        time
    }
}

fn per_call(len: usize, mut call: impl FnMut(usize)) -> f64 {
    let count = ROUND / (len + 64);
    let start = Instant::now();
    (0..count).for_each(|number| call(number * len));
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> std::io::Result<()> {
    let base = std::env::args_os().nth(1).map_or(PathBuf::from("/dev/shm"), PathBuf::from);
    let dir = base.join(format!("window-append-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &Path) -> std::io::Result<()> {
    let mut volatile = window(dir, WindowMedium::Volatile)?;
    let mut emulated = window(dir, WindowMedium::Emulated)?;
    let file = File::create_new(dir.join("file"))?;
    let mut copy = vec![1u8; ROUND + 64];
    println!("us per call, median of {ROUNDS} rounds    64 B    8 KiB  128 KiB");
    let names = ["memcpy to warm memory", "append", "append with cache lines flushed", "pwrite(2) over warm pages"];
    let mut table = [[0.0; 3]; 4];
    for (column, len) in [64, 8 << 10, 128 << 10].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..=ROUNDS {
            times[0].push(per_call(len, |offset| {
                // Where a ring would put it: some processors copy slowly between addresses equal in their low twelve
                // bits.
                let to = offset / len * (len + 64) + 64;
                copy[to..to + len].copy_from_slice(black_box(&bytes));
                black_box(&mut copy);
            }));
            times[1].push(volatile.round(&bytes));
            times[2].push(emulated.round(&bytes));
            let mut failed = Ok(());
            times[3].push(per_call(len, |offset| {
                if let Err(error) = file.write_all_at(&bytes, offset as u64) {
                    failed = Err(error);
                }
            }));
            failed?;
        }
        for (row, mut times) in times.into_iter().enumerate() {
            times.remove(0); // the first round touches fresh pages
            table[row][column] = median(times);
        }
    }
    for (name, times) in names.iter().zip(table) {
        println!("{name:36} {:8.3} {:8.3} {:8.2}", times[0], times[1], times[2]);
    }
    for (name, over, under) in [("append / memcpy", 1, 0), ("pwrite / append", 3, 1)] {
        let ratio = |column: usize| table[over][column] / table[under][column];
        println!("{name:36} {:8.2} {:8.2} {:8.2}", ratio(0), ratio(1), ratio(2));
    }
    Ok(())
}
