//! Cost of a full ring for its program under each rule: cargo run --release -p window --example backpressure
//! [DIRECTORY]
//!
//! The first paper's program waits until the whole queue has been applied, ours until there is room for its write. Both
//! write equal bursts, each of one and a half rings. Between bursts they compute for as long as applying one ring
//! takes. Records are applied at [`RATE`], and room is given back for each MiB. The directory, /dev/shm by default,
//! should be a tmpfs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use types::{ByteRange, Epoch};
use window::layout::{HEADER_BYTES, RingId};
use window::ring::{Backpressure, RingGrant, RingItem, RingReader, Writer};
use window::sequence::{Sequence, WORD_BYTES};
use window::{Mapping, WindowMedium};

/// Default size of a window, bytes.
const CAPACITY: u64 = 16 << 20;
/// Bytes per second that the burst buffer accepts.
const RATE: f64 = 500e6;
/// Bytes of a write, and of each step of applying.
const WRITE: usize = 128 << 10;
const BATCH: u64 = 1 << 20;
const BURST: u64 = CAPACITY * 3 / 2;
const BURSTS: usize = 20;

fn main() -> std::io::Result<()> {
    let base = std::env::args_os().nth(1).map_or(PathBuf::from("/dev/shm"), PathBuf::from);
    println!("bursts of {} MiB, a drain of {:.0} MB/s, median of {BURSTS}", BURST >> 20, RATE / 1e6);
    for (rule, words) in [(Backpressure::WholeQueue, "for the whole queue"), (Backpressure::OwnBytes, "for room")] {
        let dir = base.join(format!("window-backpressure-{}", std::process::id()));
        std::fs::create_dir(&dir)?;
        let times = bursts(&dir, rule);
        std::fs::remove_dir_all(&dir)?;
        let [burst, longest] = times?;
        println!(
            "waiting {words:20} {:6.1} ms a burst, of which the longest write {:6.2} ms",
            burst * 1e3,
            longest * 1e3
        );
    }
    Ok(())
}

/// Returns the seconds of a burst, and of the longest write in it: medians.
fn bursts(dir: &Path, rule: Backpressure) -> std::io::Result<[f64; 2]> {
    let grant = RingGrant {
        ring: RingId(0x0123_4567_89ab_cdef_1122_3344_5566_7788),
        capacity: CAPACITY,
        epochs: Epoch(0)..=Epoch(0),
        writable: ByteRange::new(0, u64::MAX),
    };
    let ring = Mapping::create(&dir.join("ring"), HEADER_BYTES + CAPACITY as usize, WindowMedium::Volatile)?;
    let mut reader = RingReader::create(ring, grant.clone()).map_err(std::io::Error::other)?;
    let sequence = Sequence::new(Mapping::create(&dir.join("sequence"), WORD_BYTES, WindowMedium::Volatile)?);
    let ring = Mapping::open(&dir.join("ring"), WindowMedium::Volatile)?;
    let writer = Writer::new(ring, grant.ring, CAPACITY, sequence).map_err(std::io::Error::other)?;
    let (writer, ended, bytes) = (writer.with_backpressure(rule), AtomicBool::new(false), vec![1; WRITE]);
    let mut times = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| drain(&mut reader, &ended));
        for number in 0..=BURSTS as u64 {
            let (began, mut longest) = (Instant::now(), Duration::ZERO);
            for place in (0..BURST).step_by(WRITE) {
                let one = Instant::now();
                writer.append(number * BURST + place, &bytes, &mut || true).expect("the ring lives");
                longest = longest.max(one.elapsed());
            }
            times.push([began.elapsed(), longest].map(|time| time.as_secs_f64()));
            thread::sleep(Duration::from_secs_f64(CAPACITY as f64 / RATE));
        }
        ended.store(true, Ordering::Release);
    });
    // The first burst touches fresh memory.
    Ok([0, 1].map(|which: usize| median(times[1..].iter().map(|time| time[which]).collect())))
}

/// Takes published records and gives their room back when a burst buffer would have them.
fn drain(reader: &mut RingReader<Mapping>, ended: &AtomicBool) {
    let (mut free, mut taken) = (Instant::now(), Vec::new());
    while !ended.load(Ordering::Acquire) || reader.used() > 0 {
        reader.take(&mut |found| taken.extend(if let RingItem::Record(record) = found { Some(record) } else { None }));
        if taken.is_empty() {
            thread::sleep(Duration::from_micros(50));
        }
        let mut batch = 0;
        for (number, record) in taken.iter().enumerate() {
            batch += record.range.len();
            if batch >= BATCH || number + 1 == taken.len() {
                free = free.max(Instant::now()) + Duration::from_secs_f64(batch as f64 / RATE);
                thread::sleep(free.saturating_duration_since(Instant::now()));
                reader.release(record.end);
                batch = 0;
            }
        }
        taken.clear();
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
