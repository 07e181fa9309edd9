//! Rate at which one processor computes the checksum that protects every record.

use std::time::{Duration, Instant};

use crc_fast::{CrcAlgorithm, checksum};

use super::{Component, Measurement, Unit};

/// Measures CRC-32C of 8 KiB (a record in a window) and of 1 MiB (a block of a replica).
pub fn measure(time: Duration) -> Vec<Measurement> {
    [(8 << 10, "8 KiB"), (1 << 20, "1 MiB")].into_iter().map(|(size, name)| crc(size, name, time)).collect()
}

fn crc(size: usize, name: &str, time: Duration) -> Measurement {
    let data: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
    let started = Instant::now();
    let mut bytes = 0u64;
    while bytes == 0 || started.elapsed() < time {
        for _ in 0..16 {
            std::hint::black_box(checksum(CrcAlgorithm::Crc32Iscsi, std::hint::black_box(&data)));
            bytes += size as u64;
        }
    }
    let rate = bytes as f64 / started.elapsed().as_secs_f64();
    Measurement::new(Component::Processor, format!("CRC-32C of {name}, 1 thread"), rate, Unit::BytesPerSecond)
}
