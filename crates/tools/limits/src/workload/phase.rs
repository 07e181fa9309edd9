//! Work of one process in one phase: the loops whose rate is the result.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, Mode, OFlags, fadvise, lstat, open, unlink};
use rustix::io::{ReadWriteFlags, preadv2, retry_on_intr};

use super::block::Block;
use super::layout::Places;
use super::message::{Sample, Task};
use super::pattern::{Kind, Layout, ReadAhead, Sync};
use super::tree::{Names, data_file, directory};
use crate::clock::{cpu_ns, now_ns};

/// Number of places of a file that are tested for being in the page cache.
const RESIDENCY_PROBES: u64 = 16;
/// Number of attempts to drop a file from the page cache, and the pause between them.
const DROPS: u32 = 10;
const DROP_PAUSE: Duration = Duration::from_millis(5);

pub struct Worker {
    task: Task,
    rank: u64,
    block: Block,
    /// Number of files that this process created, for Delete.
    created: u64,
    /// Number of files or transfers that every process has created.
    common: u64,
}

struct Lap<'a> {
    sample: &'a mut Sample,
    until_ns: u64,
}

impl Lap<'_> {
    /// Runs `operation` with 0, 1, 2... below `count` until the deadline and records each time. `operation` returns the
    /// bytes moved.
    ///
    /// The first operation runs in any case. Otherwise a process that was not scheduled until the deadline would leave
    /// nothing for later phases.
    fn run(&mut self, count: u64, mut operation: impl FnMut(u64) -> io::Result<u64>) -> io::Result<()> {
        let mut before = now_ns();
        for index in 0..count {
            if index > 0 && before >= self.until_ns {
                return Ok(());
            }
            let bytes = operation(index)?;
            let after = now_ns();
            self.sample.latencies.add(after - before);
            self.sample.operations += 1;
            self.sample.bytes += bytes;
            before = after;
        }
        self.sample.exhausted = true;
        Ok(())
    }
}

impl Worker {
    /// Creates a process that has done nothing yet.
    pub fn new(rank: u64, task: Task) -> Worker {
        let block = Block::new(task.pattern.transfer, task.seed ^ rank);
        Worker { task, rank, block, created: 0, common: u64::MAX }
    }

    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// Returns the process whose files this one reads. It is in the next group, so that its node's cache cannot answer.
    fn neighbour(&self) -> u64 {
        let shift = if self.task.ranks > self.task.processes { self.task.processes } else { 1 };
        (self.rank + shift) % self.task.ranks
    }

    /// Prepares a phase. Returns the share of the data to be read that is in the page cache.
    pub fn prepare(&mut self, kind: Kind, common: u64) -> io::Result<Option<f64>> {
        self.common = common;
        match kind {
            Kind::Create => fs::create_dir_all(directory(&self.task, self.rank)).map(|()| None),
            Kind::Read => {
                let file = File::open(data_file(&self.task, self.neighbour()))?;
                // Dropping affects only clean pages, and now all are clean. Only pages of this file are dropped, so
                // others do not suffer.
                file.sync_data()?;
                for _ in 0..DROPS {
                    let _ = fadvise(&file, 0, None, Advice::DontNeed);
                    match resident(&file) {
                        // A page that the kernel is moving stays, so try again.
                        Some(share) if share > 0.0 => thread::sleep(DROP_PAUSE),
                        share => return Ok(share),
                    }
                }
                Ok(resident(&file))
            }
            _ => Ok(None),
        }
    }

    /// Works until the deadline or the end of its share. Errors are reported in the sample.
    pub fn run(&mut self, kind: Kind, until_ns: u64) -> Sample {
        let mut sample = Sample { rank: self.rank, started_ns: now_ns(), ..Sample::default() };
        let cpu = cpu_ns();
        let (lap, mut odd) = (Lap { sample: &mut sample, until_ns }, 0);
        let result = match kind {
            Kind::Write => self.write(lap),
            Kind::Read => self.read(lap),
            Kind::Create => self.create(lap),
            Kind::Stat => self.stat(lap).map(|counted| odd = counted),
            Kind::Fetch => self.fetch(lap),
            Kind::Delete => self.delete(lap),
            Kind::Walk => self.walk(lap),
        };
        sample.ended_ns = now_ns();
        sample.odd = odd;
        sample.cpu_ns = cpu_ns() - cpu;
        sample.error = result.err().map(|error| error.to_string());
        if kind == Kind::Create {
            self.created = sample.operations;
        }
        sample
    }

    fn write(&mut self, mut lap: Lap) -> io::Result<()> {
        let pattern = &self.task.pattern;
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, pattern.direct);
        flags.set(OFlags::DSYNC, pattern.sync == Sync::Each);
        let own = pattern.layout == Layout::FilePerProcess;
        let mut options = OpenOptions::new();
        options.write(true).create(true).create_new(own).custom_flags(flags.bits() as i32);
        let file = options.open(data_file(&self.task, self.rank))?;
        let places = Places::new(pattern, self.rank, self.task.ranks);
        let (block, rank) = (&mut self.block, self.rank);
        lap.run(places.slots(), |index| {
            let offset = places.offset(index);
            let data = block.fill(rank, offset, index);
            file.write_all_at(data, offset)?;
            Ok(data.len() as u64)
        })?;
        if pattern.sync == Sync::Close { file.sync_all() } else { Ok(()) }
    }

    fn read(&mut self, mut lap: Lap) -> io::Result<()> {
        let pattern = &self.task.pattern;
        let flags = if pattern.direct { OFlags::DIRECT } else { OFlags::empty() };
        let owner = self.neighbour();
        let path = data_file(&self.task, owner);
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        match pattern.read_ahead {
            ReadAhead::Unsaid => {}
            ReadAhead::Off => fadvise(&file, 0, None, Advice::Random)?,
            ReadAhead::More => fadvise(&file, 0, None, Advice::Sequential)?,
        }
        let places = Places::new(pattern, owner, self.task.ranks);
        let block = &mut self.block;
        lap.run(self.common.min(places.slots()), |index| {
            let offset = places.offset(index);
            let length = block.room().len();
            file.read_exact_at(block.room(), offset)?;
            check(block, length, owner, offset)
        })
    }

    fn create(&mut self, mut lap: Lap) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut names = Names::new(&directory(&self.task, self.rank), self.rank);
        let (pattern, block, rank) = (&self.task.pattern, &mut self.block, self.rank);
        lap.run(pattern.files_max, |index| {
            let path = names.of(index);
            let file = File::from(retry_on_intr(|| open(path, flags, mode))?);
            if pattern.transfer > 0 {
                file.write_all_at(block.fill(rank, 0, index), 0)?;
            }
            if pattern.sync != Sync::Never {
                file.sync_all()?;
            }
            Ok(pattern.transfer)
        })
    }

    /// Reads attributes and counts wrong sizes, because some file systems' attributes lag behind the data.
    fn stat(&mut self, mut lap: Lap) -> io::Result<u64> {
        let owner = self.neighbour();
        let mut names = Names::new(&directory(&self.task, owner), owner);
        let (size, mut odd) = (self.task.pattern.transfer, 0);
        lap.run(self.common, |index| {
            odd += u64::from(lstat(names.of(index))?.st_size.cast_unsigned() != size);
            Ok(0)
        })?;
        Ok(odd)
    }

    fn fetch(&mut self, mut lap: Lap) -> io::Result<()> {
        let owner = self.neighbour();
        let mut names = Names::new(&directory(&self.task, owner), owner);
        let block = &mut self.block;
        lap.run(self.common, |index| {
            let path = names.of(index);
            let file = File::from(retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))?);
            let length = block.room().len();
            file.read_exact_at(block.room(), 0)?;
            check(block, length, owner, 0)
        })
    }

    fn delete(&mut self, mut lap: Lap) -> io::Result<()> {
        let mut names = Names::new(&directory(&self.task, self.rank), self.rank);
        lap.run(self.created, |index| {
            unlink(names.of(index))?;
            Ok(0)
        })
    }

    fn walk(&mut self, mut lap: Lap) -> io::Result<()> {
        let directory = directory(&self.task, self.neighbour());
        let mut entries = fs::read_dir(&directory)?;
        // Reading the directory is part of the time of its entries. At its end the directory is walked again, as find
        // would do.
        let mut walked = 0u64;
        lap.run(u64::MAX, |_| {
            let entry = match entries.next() {
                Some(entry) => entry?,
                None if walked == 0 => return Err(wrong("the directory to walk is empty")),
                None => {
                    walked = 0;
                    entries = fs::read_dir(&directory)?;
                    entries.next().ok_or_else(|| wrong("the directory to walk became empty"))??
                }
            };
            walked += 1;
            let attributes = entry.metadata()?;
            std::hint::black_box(is_wanted(&entry.path(), attributes.len()));
            Ok(0)
        })
    }
}

/// Returns whether a file meets the condition of the io500 suite's find.
fn is_wanted(path: &Path, size: u64) -> bool {
    size == 3_901 && path.as_os_str().as_encoded_bytes().windows(2).any(|two| two == b"01")
}

fn check(block: &Block, length: usize, owner: u64, offset: u64) -> io::Result<u64> {
    if block.is(length, owner, offset) {
        return Ok(length as u64);
    }
    Err(wrong(&format!("the data of process {owner} at {offset} is not what was written")))
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what.to_string())
}

/// Returns the share of tested places of a file that are in the page cache, tested by reads that must not wait. `None`
/// if the file system does not support such reads.
fn resident(file: &File) -> Option<f64> {
    let size = file.metadata().ok()?.len();
    // Without this advice the first test would start read-ahead.
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut byte = [0];
    let mut held = 0;
    for probe in 0..RESIDENCY_PROBES.min(size) {
        let at = size / RESIDENCY_PROBES.min(size) * probe;
        match preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => held += 1,
            Err(rustix::io::Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    let _ = fadvise(file, 0, None, Advice::Normal);
    Some(held as f64 / RESIDENCY_PROBES.min(size).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Pattern, Preset};

    #[test]
    fn a_process_that_comes_too_late_does_one_operation() {
        let mut sample = Sample::default();
        let mut lap = Lap { sample: &mut sample, until_ns: 0 };
        lap.run(5, |index| Ok(index + 7)).unwrap();
        assert_eq!((sample.operations, sample.bytes, sample.exhausted), (1, 7, false));
    }

    #[test]
    fn a_file_that_shows_another_size_is_counted_and_no_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut pattern = Pattern::preset(Preset::MdtestHard);
        pattern.files_max = 5;
        let directory_of = directory.path().to_path_buf();
        let task = Task { pattern, directory: directory_of, across: Vec::new(), processes: 1, ranks: 1, seed: 1 };
        let mut worker = Worker::new(0, task);
        let until = now_ns() + 3_600_000_000_000;
        worker.prepare(Kind::Create, u64::MAX).unwrap();
        assert_eq!(worker.run(Kind::Create, until).operations, 5);
        let file = fs::read_dir(directory.path().join("files")).unwrap().next().unwrap().unwrap().path();
        File::options().write(true).open(file).unwrap().set_len(7).unwrap();
        worker.prepare(Kind::Stat, 5).unwrap();
        let sample = worker.run(Kind::Stat, until);
        assert_eq!((sample.operations, sample.odd, sample.error), (5, 1, None));
    }
}
