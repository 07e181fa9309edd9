//! Measurement of a directory's file system and device: sequential, random, fsync, names. Uses the loops of the sweep.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::statvfs;

use super::{Component, Found, Measurement, Medium, Options, Unit, device};
use crate::bounds::{DEVICE_DEPTH, FREE_SHARE};
use crate::counters::{Behind, Medium as Kinds};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::units::counted;
use crate::workload::{Histogram, Kind, Pattern, Preset, Sync, Task, data_file, together};

/// Number of parallel streams: enough to fill a device, few enough for a small machine.
const STREAMS: u64 = 4;

/// Number of timed measurements of one directory: 8 sequential, 5 scattered, fsync, 6 of names. Filling takes
/// additional time.
pub const MEASUREMENTS: f64 = 20.0;

struct Bench<'a> {
    interrupt: &'a Interrupt,
    directory: &'a Path,
    scratch: &'a Path,
    time: Duration,
    size_max: u64,
    medium: Medium,
    found: Found,
}

/// Measures a directory, with files in `scratch` within it. Operations that this file system does not support
/// (O_DIRECT) are skipped and become findings. Stops after an interrupt.
pub(super) fn measure(
    directory: &Path,
    scratch: &Path,
    options: &Options,
    interrupt: &Interrupt,
) -> Result<Found, Failure> {
    let failed = |error: std::io::Error| Failure::unavailable(format!("measuring {}: {error}", directory.display()));
    let space = statvfs(directory).map_err(|error| failed(error.into()))?;
    let free = (space.f_bavail.saturating_mul(space.f_frsize) as f64 * FREE_SHARE) as u64;
    let behind = Behind::of(directory);
    let medium = Medium { directory: directory.to_path_buf(), behind, write_bytes_per_s: 0.0, read_bytes_per_s: 0.0 };
    let size_max = options.size_max.min(free);
    if size_max < STREAMS << 20 {
        return Err(Failure::output(format!("{} has too little room to be measured", directory.display())));
    }
    let mut bench =
        Bench { interrupt, directory, scratch, time: options.time(), size_max, medium, found: Found::default() };
    let direct = bench.sequential().map_err(failed)?;
    bench.scattered(direct).map_err(failed)?;
    bench.fsync().map_err(failed)?;
    bench.names().map_err(failed)?;
    Ok(Found { medium: Some(bench.medium), ..bench.found })
}

impl Bench<'_> {
    fn add(&mut self, what: String, value: f64, unit: Unit) {
        let directory = Some(self.directory.to_path_buf());
        self.found.measurements.push(Measurement { component: Component::Media, directory, what, value, unit });
    }

    fn task(&self, name: &str, pattern: Pattern, streams: u64) -> std::io::Result<Task> {
        let directory = self.scratch.join(name);
        fs::create_dir_all(&directory)?;
        Ok(Task { pattern, directory, across: Vec::new(), processes: streams, ranks: streams, seed: 3 })
    }

    fn go_on(&self) -> std::io::Result<()> {
        if self.interrupt.came() { Err(std::io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Measures writes and reads of 1 MiB. Returns whether O_DIRECT works.
    fn sequential(&mut self) -> std::io::Result<bool> {
        let mut works = false;
        for (streams, direct) in [(1, false), (STREAMS, false), (1, true), (STREAMS, true)] {
            self.go_on()?;
            let mut pattern = Pattern::preset(Preset::Stream);
            pattern.size_max = self.size_max / streams;
            pattern.direct = direct;
            let task = self.task("sequential", pattern, streams)?;
            let path = if direct { "O_DIRECT, " } else { "" };
            let words = format!("{path}{}", counted(streams, "stream"));
            let outcome = together(&task, &[Kind::Write, Kind::Read], self.time);
            fs::remove_dir_all(&task.directory)?;
            let rates = match outcome {
                Err(_) if direct => {
                    self.found.findings.push(format!("{} knows no O_DIRECT", self.directory.display()));
                    return Ok(false);
                }
                other => other?,
            };
            works |= direct;
            let [(write, _), (read, resident)] = rates[..] else { continue };
            self.add(format!("write 1 MiB, {words}, fsync"), write, Unit::BytesPerSecond);
            self.medium.write_bytes_per_s = self.medium.write_bytes_per_s.max(write);
            let memory = self.medium.behind.medium() == Kinds::Memory;
            if direct || memory || resident.is_some_and(|share| share < 0.1) {
                self.add(format!("read 1 MiB, {words}"), read, Unit::BytesPerSecond);
                self.medium.read_bytes_per_s = self.medium.read_bytes_per_s.max(read);
            } else {
                let words = format!("read 1 MiB, {words}: page cache possible, not counted");
                self.add(words, read, Unit::BytesPerSecond);
            }
        }
        Ok(works)
    }

    /// Measures reads and writes of 4 KiB in scattered order, past the page cache where supported.
    fn scattered(&mut self, direct: bool) -> std::io::Result<()> {
        for streams in [1, STREAMS] {
            self.go_on()?;
            let mut pattern = Pattern::preset(Preset::Stream);
            pattern.size_max = (self.size_max / streams).min(64 << 20) & !0xFFFFF;
            pattern.direct = direct;
            let mut task = self.task("scattered", pattern, streams)?;
            together(&task, &[Kind::Write], Duration::from_secs(3600))?;
            task.pattern.transfer = 4096;
            task.pattern.random = true;
            let how = if direct { "O_DIRECT" } else { "after dropping pages" };
            let words = format!("4 KiB scattered, {how}, {}", counted(streams, "thread"));
            let read = together(&task, &[Kind::Read], self.time)?;
            if direct && streams == 1 {
                self.ring(&task);
            }
            fs::remove_dir_all(&task.directory)?;
            let mut task = self.task("scattered", task.pattern, streams)?;
            task.pattern.sync = if direct { Sync::Close } else { Sync::Each };
            let write = together(&task, &[Kind::Write], self.time)?;
            fs::remove_dir_all(&task.directory)?;
            self.add(format!("read {words}"), read[0].0 / 4096.0, Unit::OperationsPerSecond);
            self.add(
                format!("write {}", words.replace("after dropping pages", "O_DSYNC")),
                write[0].0 / 4096.0,
                Unit::OperationsPerSecond,
            );
        }
        Ok(())
    }

    /// Measures reads of that file through io_uring, which a kernel may refuse.
    fn ring(&mut self, task: &Task) {
        match device::of_file(&data_file(task, 0), self.time) {
            Ok(reads) => {
                let what = format!("read 4 KiB scattered, O_DIRECT, {DEVICE_DEPTH} at a time, io_uring");
                self.add(what, reads, Unit::OperationsPerSecond);
            }
            Err(error) => self.found.findings.push(format!("{}: io_uring: {error}", self.directory.display())),
        }
    }

    /// Measures an append of 4 KiB and its fsync, as a log does.
    fn fsync(&mut self) -> std::io::Result<()> {
        let (mut file, data) = (File::create(self.scratch.join("log"))?, vec![5u8; 4096]);
        let median = Histogram::median_of(self.time, || file.write_all(&data).and_then(|()| file.sync_data()))?;
        self.add("append 4 KiB and fdatasync".to_string(), median, Unit::Nanoseconds);
        Ok(())
    }

    fn names(&mut self) -> std::io::Result<()> {
        for streams in [1, STREAMS] {
            self.go_on()?;
            let mut pattern = Pattern::preset(Preset::MdtestEasy);
            pattern.files_max = 200_000 / streams;
            let task = self.task("names", pattern, streams)?;
            let rates = together(&task, &[Kind::Create, Kind::Stat, Kind::Delete], self.time)?;
            fs::remove_dir_all(&task.directory)?;
            for (kind, (rate, _)) in ["create", "stat", "delete"].iter().zip(rates) {
                let words = format!("{kind} empty files, {}", counted(streams, "thread"));
                self.add(words, rate, Unit::OperationsPerSecond);
            }
        }
        Ok(())
    }
}
