//! Measures a large catalogue: `cargo run --release --example ten_million [RECORDS] [DIRECTORY]`.
//!
//! Goal for 10^7 records: at most 256 bytes each on disk, reopened in under 5 s, and memory that leaves an agent below
//! 64 MiB.

use std::path::{Path, PathBuf};
use std::time::Instant;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record, State};
use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

const GROUP: u64 = 1000;

fn identity(number: u64) -> Identity {
    // As long as identities of ext4 and XFS; inode numbers do not come in order.
    let mut bytes = vec![1, 1, 0, 0];
    bytes.extend_from_slice(&(number as u32).wrapping_mul(0x9e37_79b1).to_le_bytes());
    bytes.extend_from_slice(&7u32.to_le_bytes());
    Identity::new(bytes).expect("twelve bytes are an identity")
}

fn record(number: u64) -> Record {
    let time = Timestamp { seconds: 1_700_000_000 + number as i64, nanos: (number * 7919 % 1_000_000_000) as u32 };
    Record {
        state: if number.is_multiple_of(1000) { State::Dirty } else { State::Clean },
        version: Version(number),
        epoch: Epoch(1),
        base: Fingerprint { size: number * 977 % (1 << 30), mtime: time, ctime: time, attributes: 1 },
        was_clean: true,
        racy: false,
        sum: Some(number),
        shown: None,
        pinned: false,
        orphaned: false,
        removing: false,
        synced: false,
        synced_len: 0,
        damaged: false,
        hint: format!("projects/climate/run-{:05}/output/part-{number:08}.nc", number / 1000).into(),
        used_s: 1_700_000_000,
        reason: String::new(),
    }
}

fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Returns a line of `/proc/self/status`, in MiB.
fn memory_mib(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.split_whitespace().nth(1));
    found.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("forebay-ten-million"), PathBuf::from);
    let start = Instant::now();
    let catalogue = FjallCatalogue::open(&directory)?;
    for first in (0..records).step_by(GROUP as usize) {
        let group = (first..records.min(first + GROUP)).map(|n| Change::Put(identity(n), record(n))).collect();
        catalogue.commit(group, Durability::Process)?;
    }
    catalogue.commit(vec![], Durability::Machine)?;
    println!("wrote {records} records in {:.1?}, peak memory {} MiB", start.elapsed(), memory_mib("VmHWM"));
    drop(catalogue);
    println!("{} bytes each on disk", disk_bytes(&directory) / records);

    let start = Instant::now();
    let catalogue = FjallCatalogue::open(&directory)?;
    println!("reopened in {:.3?}, memory {} MiB", start.elapsed(), memory_mib("VmRSS"));
    let start = Instant::now();
    let mut unclean = 0;
    catalogue.unclean(&mut |_, _| unclean += 1)?;
    println!("listed {unclean} that are not clean in {:.3?}", start.elapsed());
    let start = Instant::now();
    for number in (0..records).step_by((records / 10_000).max(1) as usize) {
        assert_eq!(catalogue.get(&identity(number))?.map(|found| found.version), Some(Version(number)));
    }
    println!("looked up 10000 in {:.3?}", start.elapsed());
    let start = Instant::now();
    for number in 0..10_000 {
        assert!(catalogue.get(&identity(records + number))?.is_none());
    }
    println!("missed 10000 in {:.3?}, memory {} MiB", start.elapsed(), memory_mib("VmRSS"));
    drop(catalogue);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
