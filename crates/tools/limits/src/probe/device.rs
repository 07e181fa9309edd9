//! Measurement of a device below any file system: reads past the page cache, one at a time and many through io_uring.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use slowfs::model::splitmix;

use super::{Component, Measurement, Unit};
use crate::bounds::DEVICE_DEPTH;
use crate::failure::Failure;

pub const MEASUREMENTS: f64 = 4.0;
/// Alignment of memory and offsets for O_DIRECT: at least the device's block size.
const ALIGNMENT: usize = 4096;

/// Contiguous blocks of memory, aligned for O_DIRECT.
struct Blocks {
    memory: Vec<u8>,
    first: usize,
    size: usize,
}

impl Blocks {
    fn new(count: usize, size: usize) -> Blocks {
        let memory = vec![0u8; count * size + ALIGNMENT];
        let first = memory.as_ptr().align_offset(ALIGNMENT);
        Blocks { memory, first, size }
    }

    fn block(&mut self, number: usize) -> &mut [u8] {
        let start = self.first + number * self.size;
        &mut self.memory[start..start + self.size]
    }

    /// Returns the address of a block, without a reference to its neighbours, which the kernel may be writing.
    fn place(&mut self, number: usize) -> *mut u8 {
        assert!((number + 1) * self.size + self.first <= self.memory.len());
        self.memory.as_mut_ptr().wrapping_add(self.first + number * self.size)
    }
}

struct Places {
    size: u64,
    block: u64,
    random: bool,
    next: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        let blocks = self.size / self.block;
        let at = if self.random { splitmix(self.next) % blocks } else { self.next % blocks };
        self.next += 1;
        at * self.block
    }
}

/// Measures large and small reads, alone and many at a time. Never writes. Refusals of io_uring become findings.
pub fn measure(path: &Path, time: Duration) -> Result<(Vec<Measurement>, Vec<String>), Failure> {
    let failed = |error: io::Error| {
        Failure::input(format!("cannot read {} with O_DIRECT: {error}; a device needs root", path.display()))
    };
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).map_err(failed)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if size < 1 << 20 {
        return Err(Failure::input(format!("{} holds less than 1 MiB: nothing to measure", path.display())));
    }
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for (block, name, random) in [(1 << 20, "1 MiB, in order", false), (4096, "4 KiB, scattered", true)] {
        let unit = if random { Unit::OperationsPerSecond } else { Unit::BytesPerSecond };
        let scale = if random { 1.0 } else { block as f64 };
        let mut add = |how: &str, reads: f64| {
            let what = format!("read {name}, {how}");
            let directory = Some(path.to_path_buf());
            found.push(Measurement { component: Component::Device, directory, what, value: reads * scale, unit });
        };
        let places = || Places { size, block, random, next: 0 };
        add("one at a time", alone(&file, places(), time).map_err(failed)?);
        match many(&file, places(), time) {
            Ok(reads) => add(&format!("{DEVICE_DEPTH} at a time, io_uring"), reads),
            Err(error) => findings.push(format!("{}: io_uring: {error}", path.display())),
        }
    }
    Ok((found, findings))
}

/// Measures scattered reads of 4 KiB of a file, past the page cache, with [`DEVICE_DEPTH`] in progress through
/// io_uring. Returns reads per second.
pub fn of_file(path: &Path, time: Duration) -> io::Result<f64> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)?;
    let size = file.metadata()?.len();
    if size < ALIGNMENT as u64 {
        return Err(io::Error::other("the file is empty"));
    }
    many(&file, Places { size, block: ALIGNMENT as u64, random: true, next: 0 }, time)
}

/// Returns reads per second, one read at a time.
fn alone(file: &File, mut places: Places, time: Duration) -> io::Result<f64> {
    let mut blocks = Blocks::new(1, places.block as usize);
    let (began, mut reads) = (Instant::now(), 0u64);
    while reads == 0 || began.elapsed() < time {
        file.read_exact_at(blocks.block(0), places.next())?;
        reads += 1;
    }
    Ok(reads as f64 / began.elapsed().as_secs_f64())
}

/// Returns reads per second with [`DEVICE_DEPTH`] of them in progress.
fn many(file: &File, mut places: Places, time: Duration) -> io::Result<f64> {
    let mut ring = IoUring::new(DEVICE_DEPTH)?;
    let size = places.block as usize;
    let mut blocks = Blocks::new(DEVICE_DEPTH as usize, size);
    let mut idle: Vec<u64> = (0..u64::from(DEVICE_DEPTH)).collect();
    let (began, mut reads, mut wrong) = (Instant::now(), 0u64, None);
    loop {
        let goes_on = wrong.is_none() && (reads == 0 || began.elapsed() < time);
        while goes_on && let Some(slot) = idle.pop() {
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), blocks.place(slot as usize), size as u32);
            let entry = read.offset(places.next()).build().user_data(slot);
            // SAFETY: the descriptor and the block outlive the request: this function returns only when every slot is
            // idle, also after an error, and a slot's block is used by one request at a time. The queue has a place for
            // each slot.
            if unsafe { ring.submission().push(&entry) }.is_err() {
                idle.push(slot);
                break;
            }
        }
        if idle.len() == DEVICE_DEPTH as usize {
            break;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Requests may still be writing to this memory, and nothing reports their end. The memory is therefore
            // leaked.
            Err(error) => {
                std::mem::forget(blocks);
                return Err(error);
            }
        }
        for done in ring.completion() {
            idle.push(done.user_data());
            match done.result() {
                result if result == size as i32 => reads += 1,
                result if result < 0 => wrong = Some(io::Error::from_raw_os_error(-result)),
                _ => wrong = Some(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
    wrong.map_or_else(|| Ok(reads as f64 / began.elapsed().as_secs_f64()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_for_a_device_and_is_only_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        let data: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 7) as u8).collect();
        std::fs::write(&path, &data).unwrap();
        let (found, findings) = measure(&path, Duration::from_millis(20)).unwrap();
        // A kernel may refuse io_uring, which is then a finding.
        assert_eq!(found.len() + findings.len(), 4, "{found:?} {findings:?}");
        assert!(found.iter().all(|measurement| measurement.value > 0.0), "{found:?}");
        assert!(std::fs::read(&path).unwrap() == data);
    }

    #[test]
    fn places_stay_within_the_device_and_repeat_from_its_start() {
        let mut places = Places { size: 10_000, block: 4096, random: false, next: 0 };
        assert_eq!([places.next(), places.next(), places.next()], [0, 4096, 0]);
        let mut places = Places { size: 1 << 30, block: 4096, random: true, next: 0 };
        assert!((0..1000).all(|_| places.next() + 4096 <= 1 << 30));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let said = measure(Path::new("/nonexistent/device"), Duration::ZERO).unwrap_err().message;
        assert!(said.contains("/nonexistent/device") && said.contains("needs root"), "{said}");
    }
}
